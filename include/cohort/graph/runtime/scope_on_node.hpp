// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// One open scope of this rank on its machine: who waits in it, and what it says is to be done.

#include <cohort/core/log.hpp>
#include <cohort/graph/error.hpp>
#include <cohort/graph/machine/endpoint.hpp>
#include <cohort/graph/machine/node.hpp>
#include <cohort/graph/runtime/open_scope.hpp>
#include <cohort/graph/runtime/recorder.hpp>
#include <cohort/graph/runtime/task_hashes.hpp>
#include <cohort/graph/scope_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::graph::runtime {

/// What a scope needs of its rank.
class scope_owner {
 public:
  /// Something has happened: what it leads to is done soon, in a turn.
  void wake() noexcept {
    if (!turn_is_due_) ask_for_turn();
  }
  /// A number that was not used before.
  [[nodiscard]] virtual std::uint64_t next_number() noexcept = 0;
  virtual void post_receive(const machine::action& one) = 0;
  virtual void send_value(const machine::action& one) = 0;
  /// Of a window; the same on all ranks.
  virtual void window_ended(const machine::window_report& how) = 0;
  [[nodiscard]] virtual std::shared_ptr<void> keep() = 0;

 protected:
  ~scope_owner() = default;
  virtual void ask_for_turn() noexcept = 0;
  bool turn_is_due_ = false;
};

/// A coroutine that runs as a task, which the scope can cancel.
class running_coroutine {
 public:
  asio::cancellation_signal signal;
  machine::task_index index = 0;
  std::size_t place = 0;  // among those of its scope
};

template <class Any>
class scope_on_node final : public open_scope {
 public:
  using node_type = machine::basic_node<Any>;

  scope_on_node(scope_owner& owner, progress::engine& engine, int rank, int ranks)
      : open_scope(engine, rank, ranks), owner_(owner) {}

  void open(machine::basic_endpoint<Any>& all, const machine::scope_id& id,
            const machine::node_options& options, const scope_options& with) {
    if (with.hashes()) hashes_.emplace(rank_);
    if (with.records()) recorder_.emplace(rank_, with.name(), with.recording());
    observed_ = recorder_ || hashes_;
    node_.emplace(all, id, options, std::move(memory_));
    id_ = id;
    opening_ = owner_.next_number();
    window_ = window_number();
    cancelled_.store(false, std::memory_order_relaxed);
    last_ = {};
    owner_.wake();
  }
  [[nodiscard]] bool is_open() const noexcept { return node_.has_value(); }
  [[nodiscard]] bool has_ready() const noexcept { return node_ && node_->has_ready(); }
  /// Null if it is not open.
  [[nodiscard]] node_type* node() noexcept { return node_ ? &*node_ : nullptr; }

  /// Whether its tasks run as an observed_run says.
  [[nodiscard]] bool is_observed() const noexcept { return observed_; }
  /// Null if its tasks are not hashed.
  [[nodiscard]] task_hashes<Any>* hashes() noexcept { return hashes_ ? &*hashes_ : nullptr; }

  /// Null if none are kept.
  [[nodiscard]] const std::shared_ptr<result_store>& results() const noexcept { return results_; }

  // ---- open_scope ----
  [[nodiscard]] std::uint32_t family(const machine::family_facts& facts) override {
    return node_->family(facts);
  }
  machine::content_ptr spawn(const machine::task_name& task, const machine::definition_view& what,
                             const std::source_location& site) override {
    auto result = node_->spawn(task, what, site_of(site));
    owner_.wake();
    return std::move(result.refused);
  }
  machine::content_ptr put(const machine::task_name& task, machine::content_ptr value,
                           source_hasher hasher, const std::source_location& site) override {
    std::optional<task_hash> hash;
    if (hashes_ && hasher != nullptr && task.what.home == rank_) [[unlikely]] {
      try {
        hash = hasher(*value);
      } catch (...) {  // its fields throw: it stays here, and what reads it has no hash
      }
    }
    auto result =
        node_->put(task, std::move(value), site_of(site), hash ? &hash->bytes() : nullptr);
    if (recorder_ && result.is_first) [[unlikely]] {
      const auto now = steady_clock::now();
      recorder_->add(*node_, node_->record_of(task), recorded_kind::source, {now, now, {}});
    }
    owner_.wake();
    return std::move(result.refused);
  }
  machine::content_ptr refuse(const machine::task_name& task, errc why, std::string text,
                              const std::source_location& site) override {
    auto result = node_->refuse(task, why, text, site_of(site));
    owner_.wake();
    return std::move(result.refused);
  }
  [[nodiscard]] machine::content_ptr stale(const machine::task_name& task, std::uint64_t window,
                                           const std::source_location& site) const override {
    if (node_ && window >> 32U == opening_) {
      return node_->stale(task, static_cast<std::uint32_t>(window), site_of(site));
    }
    machine::failure why;
    why.code = errc::stale_name;
    why.root = task.what;
    why.rank = rank_;
    why.text = "rank " + std::to_string(rank_) + ": a task of a scope that has ended, named at " +
               std::string(site.file_name()) + ":" + std::to_string(site.line());
    return machine::content_ptr(new machine::failed_content(std::move(why)));
  }
  void await(machine::producer who, const machine::task_name& task, bool takes,
             const std::source_location& site, waiter& one) override {
    if (who == no_producer) {
      throw cohort::error(errc::not_supported,
                          "graph: a task does not await tasks; split it: what it would await is a "
                          "dependency of the second one");
    }
    machine::await_start begun = node_->await(who, task, takes, site_of(site));
    if (begun.ended) {
      one.what = std::move(begun.ended);
      one.may_move = begun.may_move;
      one.end();
    } else {
      one.number = begun.number;
      waiting_.emplace(begun.number, &one);
    }
    owner_.wake();
  }
  void withdraw(const machine::task_name& task, waiter& one) override {
    const auto at = waiting_.find(one.number);
    if (at == waiting_.end() || at->second != &one) return;  // it has ended
    waiting_.erase(at);
    node_->withdraw(one.number);
    if (withdrawn_.size() == most_told) withdrawn_.clear();
    withdrawn_.push_back(node_->record_of(task));
    one.error = std::make_exception_ptr(std::system_error(
        asio::error::operation_aborted, "graph: an await of " + node_->text_of(task)));
    one.end();
    owner_.wake();
  }
  void end_window(machine::producer who, machine::window_end how, waiter& one) override {
    node_->end_window(who, how);  // may throw: then nobody waits
    at_window_.push_back(&one);
    owner_.wake();
  }
  // Between its end and its handler there is nothing to cancel, and perhaps no scope; nor between
  // its end in the node and here.
  void cancel_window(waiter& one) override {
    if (std::find(at_window_.begin(), at_window_.end(), &one) == at_window_.end()) return;
    if (window_number() != window_) return;
    machine::failure cause;
    cause.code = errc::cancelled;
    cause.rank = rank_;
    cause.text = "the await of the window's end was cancelled";
    const std::string waited = machine::text_of(waiting_now());
    if (!waited.empty()) cause.text += "; here waited: " + waited;
    cancel(std::move(cause));
  }
  void ask(waiter& one, bool withdrawn) override {
    // Not anew while others ask: homes that have had their time would count as silent.
    if (asking_.empty())
      node_->start_report(withdrawn ? std::span<const machine::task_index>(withdrawn_)
                                    : std::span<const machine::task_index>());
    asking_.push_back(&one);
    owner_.wake();
  }
  void stop_asking(waiter& one) override {
    if (std::erase(asking_, &one) == 0) return;
    one.stalled = node_->report_so_far();
    one.end();
  }
  // Without homes, and not instead of a report that is being made.
  [[nodiscard]] machine::stall_report waiting_now() {
    if (!asking_.empty()) return node_->report_so_far();
    node_->start_report();
    return node_->take_report();
  }
  [[nodiscard]] machine::producer fork() override { return node_->fork(); }
  void end(machine::producer who) override {
    node_->end(who);
    owner_.wake();
  }
  void cancel(machine::failure cause) override {
    node_->cancel(std::move(cause));
    if (node_->cause()) cancelled_.store(true, std::memory_order_relaxed);
    owner_.wake();
  }
  [[nodiscard]] std::string text_of(const machine::task_name& task) const override {
    return node_->text_of(task);
  }
  [[nodiscard]] std::string name_of(machine::task_index task) const override {
    return node_->text_of(task);
  }
  [[nodiscard]] task_hash hash_of(const machine::task_name& task) override {
    must_hash();
    return hashes_->of(*node_, node_->record_of(task));
  }
  [[nodiscard]] task_hash hash_of(machine::task_index task) override {
    must_hash();
    return hashes_->of(*node_, task);
  }
  void cache(std::uint32_t family, const std::string& version) override {
    if (!hashes_) return;
    std::vector<std::byte> beginning = cached_beginning(version);
    if (beginnings.size() <= family) beginnings.resize(family + 1);
    if (!beginnings[family].empty() && beginnings[family] != beginning) {
      throw cohort::error(errc::invalid_argument,
                          "graph: a family cannot be cached under two versions in one scope");
    }
    beginnings[family] = std::move(beginning);
  }
  void keep_results(std::shared_ptr<result_store> in) override { results_ = std::move(in); }
  [[nodiscard]] recorder* recording() noexcept override {
    return recorder_ ? &*recorder_ : nullptr;
  }
  [[nodiscard]] std::shared_ptr<void> keep() override { return owner_.keep(); }

  // ---- the rank ----
  /// Does what the node says, until it says nothing. True if the scope has closed.
  bool do_actions() {
    bool closed = false;
    while (!closed && !node_->actions().empty()) {
      const std::span<machine::action> all = node_->actions();
      actions_.assign(std::move_iterator(all.begin()), std::move_iterator(all.end()));
      node_->clear_actions();
      for (machine::action& one : actions_) closed = act(one) || closed;
    }
    actions_.clear();
    if (!closed && !asking_.empty() && node_->has_report()) end_asking();
    return closed;
  }
  /// For ages in reports.
  void set_time(std::uint32_t milliseconds) noexcept { node_->set_time(milliseconds); }
  void began(const std::shared_ptr<running_coroutine>& one) {
    one->place = running_.size();
    running_.push_back(one);
  }
  void ended(const running_coroutine& one) {
    std::shared_ptr<running_coroutine>& last = running_.back();
    last->place = one.place;
    std::swap(running_[one.place], last);
    running_.pop_back();
  }
  /// The context goes away.
  void drop_waiters() noexcept {
    const auto awaits = std::exchange(waiting_, {});
    const auto windows = std::exchange(at_window_, {});
    const auto reports = std::exchange(asking_, {});
    for (const auto& [number, one] : awaits) one->drop();
    for (waiter* const one : windows) one->drop();
    for (waiter* const one : reports) one->drop();
  }

 private:
  static constexpr std::size_t most_told = 100;
  static constexpr std::size_t most_kept = std::size_t{64} << 20U;  // bytes, for the next opening

  [[nodiscard]] static machine::spawn_site site_of(const std::source_location& from) noexcept {
    return {from.file_name(), from.line()};
  }
  [[nodiscard]] std::uint64_t window_number() const noexcept {
    return (opening_ << 32U) | node_->window();
  }
  void must_hash() const {
    if (node_ && hashes_) return;
    throw cohort::error(
        errc::not_supported,
        "graph: the tasks of this scope are not hashed: see scope_options::hash_tasks");
  }
  bool act(machine::action& one) {
    switch (one.kind) {
      case machine::action_kind::resume:
        resume(one);
        break;
      case machine::action_kind::post_receive:
        owner_.post_receive(one);
        break;
      case machine::action_kind::send_value:
        owner_.send_value(one);
        break;
      case machine::action_kind::window_ended:
        return end_window_here();
      case machine::action_kind::cancelled:
        cancel_running();
        break;
      case machine::action_kind::warn:
        log::write(log::level::warning, one.text);
        break;
    }
    return false;
  }
  void resume(machine::action& one) {
    const auto at = waiting_.find(one.number);
    if (at == waiting_.end()) return;
    waiter& who = *at->second;
    waiting_.erase(at);
    who.what = std::move(one.what);
    who.may_move = one.may_move;
    who.end();
  }
  bool end_window_here() {
    const bool closed = node_->closed();
    const machine::window_report report = node_->report();
    note(report);
    owner_.window_ended(report);
    window_ = window_number();
    withdrawn_.clear();
    for (waiter* const one : std::exchange(at_window_, {})) {
      one->report = report;
      one->end();
    }
    if (closed) close();
    return closed;
  }
  // What `run` tells of the windows up to this one: one with a failure may be followed by others.
  void note(const machine::window_report& one) {
    machine::window_report before = std::exchange(last_, one);
    last_.failed += before.failed;
    if (before.first_failure) last_.first_failure = std::move(before.first_failure);
    last_.divergences.insert(last_.divergences.begin(),
                             std::move_iterator(before.divergences.begin()),
                             std::move_iterator(before.divergences.end()));
    if (last_.divergences.size() > most_told) last_.divergences.resize(most_told);
  }
  void end_asking() {
    const machine::stall_report all = node_->take_report();
    for (waiter* const one : std::exchange(asking_, {})) {
      one->stalled = all;
      one->end();
    }
  }
  void close() {
    end_asking();
    opening_ = 0;
    window_ = 0;
    recorder_.reset();
    hashes_.reset();
    results_ = nullptr;
    beginnings.clear();
    machine::node_memory left = node_->leave_memory();
    node_.reset();
    if (left.capacity() > most_kept) left = {};
    memory_ = std::move(left);
  }
  /// What a cancelled coroutine does at once may end others.
  void cancel_running() {
    cancelled_.store(true, std::memory_order_relaxed);
    const auto all = running_;
    for (const auto& one : all) one->signal.emit(asio::cancellation_type::terminal);
  }

  scope_owner& owner_;
  machine::node_memory memory_;  // of the node before
  std::optional<node_type> node_;
  bool observed_ = false;
  std::optional<recorder> recorder_;
  std::optional<task_hashes<Any>> hashes_;
  std::shared_ptr<result_store> results_;  // threads may still have it
  std::unordered_map<machine::await_number, waiter*> waiting_;
  std::vector<waiter*> at_window_;
  std::vector<waiter*> asking_;
  std::vector<std::shared_ptr<running_coroutine>> running_;
  std::vector<machine::task_index> withdrawn_;  // in this window, the last ones
  std::vector<machine::action> actions_;        // of one round
};

}  // namespace cohort::graph::runtime
