// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Persistent groups on this rank.

#include <cohort/comm/backend_opening.hpp>
#include <cohort/coordinator/bundle.hpp>
#include <cohort/coordinator/data/compress.hpp>
#include <cohort/coordinator/data/data_plane.hpp>
#include <cohort/coordinator/data/stand_in.hpp>
#include <cohort/coordinator/sets/group_capture.hpp>
#include <cohort/coordinator/sets/set_view.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::coordination {

template <class Any>
class group_list;

/// A persistent group on one rank: its tensors, a communicator and a data plane of its own. Its
/// starts need no message, for every one is the next collective on that communicator. On device
/// memory, and in a set that shares its log, every start is an operation like any other.
/// [protocol H1]
template <class Any>
class persistent_state final : public group_state,
                               public std::enable_shared_from_this<persistent_state<Any>>,
                               private data_plane::client {
 public:
  persistent_state(negotiation<Any>& log, set_view<Any>& set)
      : log_(log), view_(set), plane_(*this, set.options(), 1) {}

  MPI_Comm made = MPI_COMM_NULL;  ///< MPI writes here until the group is elected and done

 private:
  friend class group_list<Any>;
  friend class group_capture<Any>;
  void data_done(execution& what) noexcept override {
    for (task* each : what.tasks) {
      if (!each->linked) {
        each->destroy();
      } else if (log_.node.holds_group_completions()) {
        if (!log_.faults.any()) {
          held_.emplace_back(each, what.log_count);
          continue;
        }
        each->fail(log_.faults.error_for(*each));  // nobody will say whether it is good
        log_.tasks.complete(*each);
      } else {
        end(*each, what.log_count);
      }
    }
    plane_.waiting() != 0 ? log_.touch() : log_.touch_for_end();
  }
  void data_started(const execution& what, comm::path_statistics coordinator_statistics::* by,
                    std::size_t bytes) noexcept override {
    log_.performer.client().data_started(what, by, bytes);
  }
  void data_failing(execution& what, std::error_code why) noexcept override {
    log_.faults.failing(what, why);
  }
  void data_failed(execution& what, std::error_code why) noexcept override {
    log_.faults.failed(what, why);
  }
  /// What waits is started.
  void open(std::shared_ptr<comm::any_backend> by) {
    backend_ = std::move(by);
    plane_.open(*log_.control.state(), backend_.get());
    plane_.run();
  }
  [[nodiscard]] bool is_elected() const noexcept { return device_ != nullptr || !view_.is_whole(); }
  void release() noexcept {
    removed_ = true;
    name_ = protocol::none;                 // whose number may be given to another
    if (device_) device_->buffers.clear();  // and with them the memory
  }
  void end(task& one, std::uint64_t number) noexcept {
    if (number >= good_) {
      const std::string why = log_.node.reason_for_leaving(place_.set);
      one.fail(std::make_exception_ptr(
          peer_lost_error(log_.node.log().departed.list(),
                          "rank " + std::to_string(log_.rank) + ": persistent group '" + text_ +
                              "' start " + std::to_string(number) + ": a rank has left without it" +
                              (why.empty() ? "" : ", " + why))));
    }
    log_.tasks.complete(one);
  }
  void push(task& one, std::uint64_t number) {
    one.contributors = static_cast<std::uint64_t>(view_.size());
    execution& what = plane_.make(place_);
    what.log_count = number;
    what.keeps_layout = true;
    what.elected = log_.now();
    what.tasks.push_back(&one);
    plane_.push(what);
    plane_.run();
  }

  negotiation<Any>& log_;
  set_view<Any>& view_;
  set_place place_;          // of its starts
  protocol::signature sig_;  // of a start
  std::vector<tensor> members_;
  std::unique_ptr<device_part> device_;  // of every start
  std::uint64_t starts_ = 0;             // where they are elected
  std::string text_;
  std::source_location site_;  // where it was made
  protocol::name_index name_ = protocol::none;
  mpi::comm comm_;
  std::shared_ptr<comm::any_backend> backend_;
  data_plane plane_;
  std::uint64_t good_ = UINT64_MAX;  // starts from here on lack a rank [protocol H4]
  bool removed_ = false;
  std::deque<std::pair<task*, std::uint64_t>> held_;  // complete, not yet for sure [protocol H3]
};

/// Groups enter by an election and leave by another; between these, starts.
template <class Any>
class group_list {
 public:
  explicit group_list(negotiation<Any>& log) noexcept : log_(log) {}

  std::shared_ptr<group_state> add(task& one, std::string_view name, protocol::signature sig,
                                   const std::source_location& site) {
    auto group = std::make_shared<group_type>(log_, *one.view);
    if (one.wanted != compression::none) compress<Any>(one, name, sig);
    if (one.space != memory_space::host) {
      one.take(sig);
      try {
        if (!one.error) log_.device.require(one, name, sig);
        sig.places = log_.device.locate(one);
      } catch (...) {
        one.fail(std::current_exception());
      }
      one.space = memory_space::host;  // of what makes the group
      group->device_ = std::move(one.device);
    }
    group->sig_ = sig;
    group->text_ = name;
    group->site_ = site;
    for (std::size_t i = 0; i < one.tensors(); ++i) group->members_.push_back(one[i]);
    // A creation moves no data: the collective is the making of the communicator.
    one.kind = sig.kind = op_kind::group_create;
    one.context = group.get();
    one.made = group->is_elected() ? nullptr : &group->made;
    {
      const comm::request_source::guard hold(log_.source);
      all_.push_back(group);
    }
    log_.tasks.submit(one, name, sig, site, std::chrono::nanoseconds::zero());
    return group;
  }
  void start(task& one, group_state& which) {
    auto& group = static_cast<group_type&>(which);
    one.take(group.sig_);
    one.first = group.members_.front();
    one.others.assign(group.members_.begin() + 1, group.members_.end());
    std::optional<group_capture<Any>> capture;  // or a replay; none: a plain start
    if (one.device) capture.emplace(log_, group, one);
    if (group.is_elected() && (group.device_ || !capture)) {
      return start_elected(one, group, capture);
    }
    {
      const comm::request_source::guard hold(log_.source);
      ++one.view->counted.submitted;
      if (capture) {
        one.fail(capture->refused());
        return log_.tasks.complete(one);
      }
      std::optional<std::uint64_t> number;
      // After a fault here its collective would be taken for the one that has failed.
      if (!log_.faults.broken && !log_.faults.any() && group.name_ != protocol::none &&
          !group.removed_) {
        number = log_.node.start_group(group.name_);
      }
      if (!number) {
        if (log_.faults.broken) {
          one.fail(log_.faults.broken);
        } else if (log_.faults.any()) {
          one.fail(log_.reports.error_of(*one.view, group.text_, protocol::name_of(group.sig_.kind),
                                         *log_.faults.first));
        } else {
          one.fail(log_.tasks.refusal(group.text_));
        }
        return log_.tasks.complete(one);
      }
      one.name = group.name_;
      one.epoch = static_cast<protocol::epoch>(*number);
      one.started = true;
      one.submitted = log_.now();
      log_.performer.watch_operation(one);
      log_.tasks.link(one);
      group.push(one, *number);
    }
    log_.engine.started();
  }
  void remove(task& one, group_state& which, const std::source_location& site) {
    auto& group = static_cast<group_type&>(which);
    protocol::signature sig = group.sig_;
    {
      const comm::request_source::guard hold(log_.source);
      if (group.name_ == protocol::none || group.removed_) {
        one.fail(log_.tasks.refusal(group.text_));
        return log_.tasks.complete(one);
      }
      // [protocol H5]
      sig.detail = group.is_elected() ? group.starts_ : log_.node.group_starts(0, group.text_);
    }
    one.kind = sig.kind = op_kind::group_remove;
    one.context = &group;
    log_.tasks.submit(one, group.text_, sig, site, std::chrono::nanoseconds::zero());
  }
  /// A creation or a removal is complete.
  void elected(task& own) {
    auto& group = *static_cast<group_type*>(own.context);
    if (own.kind == op_kind::group_remove) return group.release();
    group.name_ = own.name;
    if (group.is_elected()) return;
    try {
      group.comm_ = mpi::comm::adopt(group.made);
    } catch (...) {
      group.name_ = protocol::none;
      own.fail(std::current_exception());
      return;
    }
    group.place_ = {
        0, group.view_.rank(), group.view_.size(), group.comm_.native(), {group.comm_.native()}};
    // A start needs no other rank's engine, so it goes on inside calls of MPI, unless asked.
    const comm::communicator_state& on = *log_.control.state();
    const bool chooses = on.options.backend == backend_choice::hierarchical
                             ? comm::chooses_backend_over_nodes(on)
                             : comm::chooses_backend(on);
    if (!chooses) return group.open({});
    auto choosing = comm::open_backend_together(log_.control, group.comm_.native(),
                                                comm::backend_wish(), "persistent group");
    ++log_.life.openings;
    progress::begin_look_task(std::move(choosing), {.verb = "persistent_group"},
                              [this, opens = group.shared_from_this()](
                                  const std::exception_ptr& why, comm::opened_backend by) {
                                const comm::request_source::guard held(log_.source);
                                if (why) log_.faults.break_down(why);
                                opens->open(std::move(by.backend));
                                --log_.life.openings;
                                log_.life.check_released();
                              });
  }
  // [protocol H4] Each rank makes up the starts that others have made, which completes these inside
  // MPI.
  void drain(const protocol::action& one) {
    if (log_.faults.any()) return;
    for (const auto& group : all_) {
      if (group->name_ != one.name || group->is_elected()) continue;
      group->good_ = one.count;
      for (auto number = static_cast<std::uint64_t>(one.number); number < one.log_count; ++number) {
        group->push(*make_neutral(group->sig_, group->view_).release(), number);
      }
      for (const auto& [held, number] : std::exchange(group->held_, {})) {
        group->end(*held, number);
      }
    }
  }
  /// Starts what waits.
  void run() noexcept {
    for (const auto& each : all_) {
      if (each->plane_.waiting() != 0) each->plane_.run();
    }
  }
  [[nodiscard]] bool under_way() const noexcept {
    return std::any_of(all_.begin(), all_.end(), [](const auto& each) {
      return each->plane_.under_way() != 0 || each->plane_.waiting() != 0;
    });
  }
  template <class Visit>
  void for_each_plane(Visit visit) const {
    for (const auto& each : all_) visit(each->plane_);
  }
  /// No drain will come to say which starts are good.
  void fail_held() {
    for (const auto& group : all_) {
      for (const auto& [held, number] : std::exchange(group->held_, {})) {
        held->fail(log_.faults.error_for(*held));
        log_.tasks.complete(*held);
      }
    }
  }
  /// The set has ended, which shares its log: its starts are elected, and none is under way.
  void forget(const set_view<Any>& set) noexcept {
    std::erase_if(all_, [&set](const auto& each) {
      if (&each->view_ == &set) each->release();
      return &each->view_ == &set;
    });
  }
  void clear() noexcept { all_.clear(); }
  void leave_to_mpi() {
    for (const auto& each : all_) each->comm_.keep();
  }

 private:
  using group_type = persistent_state<Any>;
  /// The n-th start on one rank belongs to the n-th on the others, as submissions of a name do.
  void start_elected(task& one, group_type& group,
                     const std::optional<group_capture<Any>>& capture) {
    protocol::signature sig = group.sig_;
    std::uint64_t number = 0;
    {
      const comm::request_source::guard hold(log_.source);
      std::exception_ptr why;
      if (group.name_ == protocol::none || group.removed_) {
        why = log_.faults.broken ? log_.faults.broken : log_.tasks.refusal(group.text_);
      } else if (capture) {
        why = capture->refused();
      }
      if (why) {
        ++one.view->counted.submitted;
        one.fail(std::move(why));
        return log_.tasks.complete(one);
      }
      if (group.device_) use_device(one, *group.device_);
      number = ++group.starts_;
      one.is_start = true;
    }
    try {
      if (capture) capture->describe(number, sig);
    } catch (...) {
      one.fail(std::current_exception());  // on this rank alone, and the others hear of it
    }
    log_.tasks.submit(one, group.text_ + ": start", sig, group.site_,
                      std::chrono::nanoseconds::zero());
  }
  /// What of the group a start takes. It has buffers of its own, for a removal gives the group's
  /// back.
  static void use_device(task& one, const device_part& of_group) {
    device_part& part = one.use_device();
    part.buffers = of_group.buffers;
    if (part.on.device < 0) part.on = of_group.on;
    if (part.use != comm::device_use::replay) part.ends = of_group.ends;
  }

  negotiation<Any>& log_;
  std::vector<std::shared_ptr<group_type>> all_;
};

}  // namespace cohort::coordination
