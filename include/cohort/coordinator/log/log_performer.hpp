// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the log says is done: data is started, failures are told.

#include <cohort/coordinator/data/data_plane.hpp>
#include <cohort/coordinator/data/stand_in.hpp>
#include <cohort/coordinator/sets/set_view.hpp>
#include <cohort/coordinator/timeline.hpp>
#include <cohort/protocol/node.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace cohort::coordination {

/// Takes the actions of the protocol's node, in their order, and hands what is elected to the data
/// plane, which tells it of the end.
template <class Any>
class log_performer final : private data_plane::client {
 public:
  explicit log_performer(negotiation<Any>& log) noexcept : log_(log) {}

  [[nodiscard]] data_plane::client& client() noexcept { return *this; }
  void perform() {
    using protocol::action_kind;
    for (std::size_t i = 0; i < log_.node.actions().size(); ++i) {
      const protocol::action one = log_.node.actions()[i];
      switch (one.kind) {
        case action_kind::start:
          if (log_.tuned.active()) log_.tuned.elected(one);
          start(one);
          break;
        case action_kind::adjust:
          log_.tuned.apply(log_.node.adjustment_of(one));
          break;
        case action_kind::start_join:
          start_join(one);
          break;
        case action_kind::fail:
        case action_kind::fail_join:
          fail(one);
          break;
        case action_kind::report:
          log_.reports.report(log_.node.report_of(one));
          break;
        case action_kind::renumber:
          log_.tasks.for_each([&](task& each) {
            if (each.name == one.name) each.epoch -= one.number;
          });
          if (log_.tuned.active()) log_.tuned.names_change();
          break;
        case action_kind::drain:
          log_.groups.drain(one);
          break;
        case action_kind::end_set:
          log_.sets.ended(one.set);
          log_.touch();
          break;
        case action_kind::close:
          if (one.detail != protocol::none) log_.faults.log_closed(*log_.node.verdict_of(one));
          break;
      }
    }
    log_.node.clear_actions();
    log_.plane.traced = log_.recording.events->active();
    if (log_.faults.any()) log_.faults.close();  // what is elected after it is not started here
    log_.plane.run();
    log_.groups.run();
    if (log_.sets.lacks_place()) log_.sets.place();
  }
  /// An operation of the log that the data plane does not run has ended.
  void finished() noexcept { ++done_; }
  /// Operations finished since this was asked last, for the root's node.
  [[nodiscard]] std::size_t take_finished() noexcept { return std::exchange(done_, 0); }
  /// What is being filled in, if anything.
  [[nodiscard]] execution* take_pack() noexcept { return std::exchange(pack_, nullptr); }
  /// It has been elected.
  void watch_operation(task& one) const noexcept {
    if (!tools::watched()) [[likely]] {
      return;
    }
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < one.tensors(); ++i) {
      if (one[i].kernels != nullptr) bytes += one[i].bytes();
    }
    one.watched.begin(tools::category::operation, {log_.tasks.given_name(one)}, bytes);
  }

 private:
  // If memory runs out here, what is to be started is either in a pack or not marked as started. So
  // somebody ends it in any case.
  void start(const protocol::action& one) {
    const protocol::entry_record& entry = log_.node.entry(one.entry);
    if (log_.node.name(one.name).listed && entry.sig.kind != op_kind::message) {
      return log_.sets.listed_elected(*reinterpret_cast<task*>(one.token), one);
    }
    task* own = task_of(one.token);
    std::unique_ptr<stand_in> neutral;
    set_view<Any>& set = own == nullptr ? log_.sets.at(one.set) : *own->view;
    if (own == nullptr) neutral = make_neutral(entry.sig, set);
    if (pack_ == nullptr) {
      pack_ = &log_.plane.make(set.place);
      pack_->log_count = one.log_count;
      pack_->elected = log_.now();
    }
    task* const what = own == nullptr ? neutral.get() : own;
    pack_->tasks.push_back(what);
    static_cast<void>(neutral.release());
    if (own != nullptr) {
      own->started = true;
      own->withdrawn = false;  // that came too late; a device is told of the deadline anew
      if (own->linked) {       // else nobody asks for its name
        watch_operation(*own);
        own->holds_name = true;
        log_.node.hold(own->name);
      }
    }
    what->contributors = one.count;
    if (is_sized(entry.sig.kind)) take_sizes(one, set);
    if (!one.last) return;
    if (pack_->tasks.size() > 1) {
      ++set.counted.packs;
      set.counted.packed += pack_->tasks.size();
    }
    log_.plane.push(*pack_);
    pack_ = nullptr;
  }
  /// Sizes that are known, or room for those that the operation exchanges. [protocol Z3, Z4]
  void take_sizes(const protocol::action& one, set_view<Any>& set) {
    pack_->known = one.known;
    if (one.known) {
      pack_->rows = sizes_.at(one.entry);
      return;
    }
    ++set.counted.size_exchanges;
    pack_->rows = std::make_shared<size_vector>();
    pack_->rows->log_count = one.log_count;
    if (protocol::is_cached(log_.node.entry(one.entry).sig)) sizes_[one.entry] = pack_->rows;
  }
  void start_join(const protocol::action& one) {
    set_view<Any>& set = log_.sets.at(one.set);
    pack_ = &log_.plane.make(set.place);
    pack_->is_join = true;
    pack_->log_count = one.log_count;
    pack_->newest = one.count;
    pack_->elected = log_.now();
    task* const mine = std::exchange(set.joining, nullptr);
    std::unique_ptr<stand_in> neutral;
    if (mine == nullptr) {
      neutral = std::make_unique<stand_in>();
      neutral->view = &set;
    }
    pack_->tasks.push_back(mine == nullptr ? neutral.get() : mine);
    static_cast<void>(neutral.release());
    if (mine != nullptr) {
      mine->watched.begin(tools::category::operation, tools::literal("join"));
      mine->started = true;
    }
    log_.plane.push(*pack_);
    pack_ = nullptr;
  }
  void fail(const protocol::action& one) {
    const bool is_join = one.kind == protocol::action_kind::fail_join;
    auto* own =
        is_join ? std::exchange(log_.sets.at(one.set).joining, nullptr) : task_of(one.token);
    if (own == nullptr) return;
    const protocol::verdict& why = *log_.node.verdict_of(one);
    const std::string_view name =
        is_join ? "join" : protocol::own_name(log_.node.name(one.name).text);
    const std::string_view verb = is_join ? "join" : own->verb();
    if (log_.recording.events->active()) trace_failure(*own, name);
    std::optional<protocol::withdrawal_reason> withdrawn;
    if (one.withdrew) withdrawn = one.own_reason;
    own->fail(log_.reports.error_of(*own->view, name, verb, why, withdrawn));
    log_.tasks.complete(*own);
  }
  void trace_failure(const task& one, std::string_view name) {
    log_.recording.events->span(phase::negotiate, name, static_cast<std::uint64_t>(one.epoch),
                                static_cast<std::uint32_t>(one.view->id), 0, one.submitted,
                                log_.now());
  }
  void data_done(execution& what) noexcept override {
    const bool traced = log_.recording.events->active();
    const auto end = log_.now();
    const auto set = static_cast<std::uint32_t>(what.tasks.front()->view->id);
    if (traced) {
      const std::string_view verb = what.is_join ? "join" : what.tasks.front()->verb();
      for (const execution::span& one : what.spans()) {
        log_.recording.events->span(one.what, verb, 0, set, what.log_count, one.begin, one.end,
                                    one.bytes);
      }
      log_.recording.events->data(verb, set, what.log_count, what.tasks.size(), what.bytes(),
                                  what.begun, end,
                                  what.on_device() ? log_.device->name() : std::string_view("mpi"));
    }
    for (task* each : what.tasks) {
      if (what.is_join) {
        each->number = what.newest_rank();
      } else if (is_persistent(each->kind) && each->context != nullptr) {
        log_.groups.elected(
            *each);  // of one that was given up as well: its starts may have to be made up
      }
      if (!each->linked) {
        each->destroy();
        continue;
      }
      if (traced) {
        const std::string_view name = what.is_join ? "join" : log_.tasks.given_name(*each);
        const auto epoch = static_cast<std::uint64_t>(each->epoch);
        log_.recording.events->span(phase::negotiate, name, epoch, set, what.log_count,
                                    each->submitted, what.elected);
        log_.recording.events->span(phase::queue, name, epoch, set, what.log_count, what.elected,
                                    what.begun);
      }
      log_.tasks.complete(*each);
    }
    if (log_.node.shape().is_root()) done_ += what.tasks.size();
    done_ != 0 ? log_.touch() : log_.touch_for_end();
  }
  void data_started(const execution& what, comm::path_statistics coordinator_statistics::* by,
                    std::size_t bytes) noexcept override {
    (what.tasks.front()->view->counted.*by).add(bytes);
  }
  void data_failing(execution& what, std::error_code why) noexcept override {
    log_.faults.failing(what, why);
  }
  void data_failed(execution& what, std::error_code why) noexcept override {
    log_.faults.failed(what, why);
  }

  negotiation<Any>& log_;
  execution* pack_ = nullptr;  // being filled in
  std::size_t done_ = 0;
  std::unordered_map<protocol::entry_index, std::shared_ptr<size_vector>> sizes_;
};

}  // namespace cohort::coordination
