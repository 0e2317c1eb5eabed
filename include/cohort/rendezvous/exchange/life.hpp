// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How a rendezvous is opened, how its steps are swept away, and how its ranks close
/// together.

#include <cohort/comm/backend_opening.hpp>
#include <cohort/comm/joint.hpp>
#include <cohort/core/crypto.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/option_errors.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/look_task.hpp>
#include <cohort/rendezvous/exchange/messenger.hpp>
#include <cohort/rendezvous/node/node.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::meeting {

// ---- opening ----------------------------------------------------------------------------------

inline constexpr const char* option_ranges = "chunk is at least 1, transfers are 1 to 32767";

/// Of this process: random, never 0.
[[nodiscard]] inline std::uint64_t process_incarnation() {
  static const std::uint64_t value = random_number() | 1U;
  return value;
}

/// What ranks tell each other first.
struct opening_facts {
  std::uint64_t incarnation;
  std::uint64_t chunk;  // 0: the rank refuses its options
};

/// What ranks do not agree on, null if there is nothing.
template <class Any = void>
[[nodiscard]] std::exception_ptr differing(int rank, const std::vector<opening_facts>& all) {
  std::vector<std::uint64_t> chunks;
  rank_set refusing;
  for (const opening_facts& each : all) {
    if (each.chunk == 0) refusing.insert(static_cast<int>(chunks.size()));
    chunks.push_back(each.chunk);
  }
  if (!refusing.empty()) {
    return std::make_exception_ptr(
        refused_options(rank, "rendezvous", {{option_ranges, refusing}}));
  }
  const auto same = static_cast<std::size_t>(std::count(chunks.begin(), chunks.end(), chunks[0]));
  if (same == chunks.size()) return nullptr;
  return std::make_exception_ptr(
      differing_options(rank, "rendezvous", {"chunk"}, chunks,
                        [](const auto&, auto chunk) { return std::to_string(chunk); }));
}

/// Makes the two communicators over `all.parent`, then tells all ranks of the incarnations and
/// compares what must be equal.
template <class Any>
progress::look_task<> open_with_others(exchange_core<Any>& all, messenger<Any>& by,
                                       opening_facts own) {
  communicator made;
  auto making = comm::joint::create(all.parent, [&](mpi::comm fresh) {
    mpi::comm second = fresh.dup();
    made = communicator::adopt(all.parent, std::move(fresh), std::move(second));
  });
  co_await making;
  std::vector<opening_facts> told(static_cast<std::size_t>(made.size()));
  auto telling = comm::joint::all_gather(made, own, told);
  co_await telling;
  auto opening_rings = comm::open_rings(made, "rendezvous");
  std::shared_ptr<comm::message_rings> rings = co_await opening_rings;
  const typename exchange_core<Any>::look_lock hold(all);
  if (const std::exception_ptr why = differing(all.node.rank(), told)) {
    by.break_down(why);
    co_return;
  }
  std::vector<std::uint64_t> incarnations;
  for (const opening_facts& each : told) incarnations.push_back(each.incarnation);
  all.node.open_with(std::move(incarnations));
  by.open(std::move(made), std::move(rings));
  by.flush(true);
}

// ---- what is left -----------------------------------------------------------------------------

/// Warns of values that nobody has received; `what` says where it ends with them.
template <class Any = void>
void warn_of_leaks(int rank, const std::vector<leaked_value>& leaks, const char* what) {
  if (leaks.empty()) return;
  constexpr std::size_t most = 20;
  std::string text = "rank " + std::to_string(rank) + ": rendezvous " + what + ":";
  for (std::size_t i = 0; i < std::min(leaks.size(), most); ++i) {
    text += "\n  step " + std::to_string(leaks[i].step);
    text += ", '" + to_string(leaks[i].key) + "': ";
    text += std::to_string(leaks[i].values) + " of " + std::to_string(leaks[i].bytes) + " bytes";
  }
  if (leaks.size() > most) text += "\n  and " + std::to_string(leaks.size() - most) + " keys more";
  log::write(log::level::warning, text);
}

/// Warns of receives in a rendezvous that was never initialised, and ends.
template <class Node>
void warn_of_waiting(const Node& of) {
  std::string waiting;
  for (const step_id id : of.steps()) {
    for (const waiting_key& one : of.look_up(id)->local.list()) {
      if (one.receives == 0) continue;
      waiting += "\n  step " + std::to_string(id);
      waiting += ", '" + to_string(one.key) + "'";
    }
  }
  if (waiting.empty()) return;
  log::write(log::level::warning,
             "a rendezvous ends that was never initialised; waiting were:" + waiting);
}

/// Cleans up the steps that have passed their time to live.
class step_sweep {
 public:
  using clock = progress::engine::clock;

  /// With a time of zero no step is cleaned up.
  explicit step_sweep(std::chrono::nanoseconds ttl) : ttl_(ttl) {}

  [[nodiscard]] bool is_on() const noexcept { return ttl_ > ttl_.zero(); }
  /// Without `at_once`, only if the last sweep is some time ago. Warns of values that this loses.
  template <class Node>
  void sweep(Node& of, clock::time_point now, bool at_once = false) {
    if (!is_on() || (!at_once && now - last_ < ttl_ / 4)) return;
    last_ = now;
    for (const step_id id : of.steps()) {
      step_state& one = *of.look_up(id);
      const auto used = one.last_use.load(std::memory_order_relaxed);
      if (used == 0) {  // made by another rank's message
        one.last_use.store(now.time_since_epoch().count(), std::memory_order_relaxed);
        continue;
      }
      const clock::time_point since{clock::duration(used)};
      if (one.leases.load() != 0 || now - since <= ttl_ || is_waited_in(one)) continue;
      warn_of_leaks(of.rank(), Node::leaks_of(one),
                    "has passed its time to live with values that nobody received");
      of.cleanup(id);
    }
  }

 private:
  [[nodiscard]] static bool is_waited_in(const step_state& one) {
    bool waits = !one.drains.empty();
    one.local.for_each_waiting([&](const rendezvous_key&, const receiver&) { waits = true; });
    for (const auto& [key, channel] : one.out) waits = waits || !channel.requests.empty();
    return waits;
  }

  std::chrono::nanoseconds ttl_;
  clock::time_point last_{};
};

// ---- closing ----------------------------------------------------------------------------------

/// Waits until a condition holds, which is asked with both locks.
template <class Any, class Condition>
progress::look_task<> reach(exchange_core<Any>& all, progress::look_notice& changed,
                            Condition holds) {
  for (;;) {
    {
      const comm::request_source::guard guarded(*all.source.load());
      const typename exchange_core<Any>::look_lock hold(all);
      if (holds()) co_return;
    }
    co_await changed;
  }
}

/// Three rounds of all ranks, after which nothing is on its way. A rank that breaks down throws,
/// and takes no part in those that come.
template <class Any>
progress::look_task<> meet_to_close(exchange_core<Any>& all, messenger<Any>& by,
                                    progress::look_notice& changed) {
  const auto until = [&](auto holds) {
    return reach(all, changed, [&all, holds] {
      if (all.broken) std::rethrow_exception(all.broken);
      return holds();
    });
  };
  auto opened = until([&] { return by.is_open(); });
  co_await opened;
  auto all_leave = comm::joint::barrier(by.control());
  co_await all_leave;  // no more requests are made
  auto answered = until([&] { return by.is_quiet(); });
  co_await answered;
  auto all_are_answered = comm::joint::barrier(by.control());
  co_await all_are_answered;  // and all transfers are done, everywhere
  auto silent = until([&] {
    all.node.outbox().close();
    return by.is_quiet();
  });
  co_await silent;
  std::vector<std::uint64_t> sent;  // messages to each rank
  for (int to = 0; to < by.control().size(); ++to) sent.push_back(by.messages_to(to));
  std::uint64_t expected = 0;
  auto counting = comm::joint::request(by.control(), [&](MPI_Request* posted) {
    return mpi::post::ireduce_scatter_block(sent.data(), &expected, 1, MPI_UINT64_T, MPI_SUM,
                                            by.control().native(), posted);
  });
  co_await counting;
  auto all_come = until([&] { return by.messages_received() == expected && by.is_quiet(); });
  co_await all_come;
}

/// The same, and then the end of the channel.
template <class Any>
progress::look_task<> close_with_others(exchange_core<Any>& all, messenger<Any>& by,
                                        progress::look_notice& changed) {
  try {
    auto meeting_others = meet_to_close(all, by, changed);
    co_await meeting_others;
  } catch (...) {
    const comm::request_source::guard guarded(*all.source.load());
    const typename exchange_core<Any>::look_lock hold(all);
    by.break_down(std::current_exception());
  }
  auto released = reach(all, changed, [&] { return by.close() && all.operations == 0; });
  co_await released;
}

/// Whether this rank has closed, who waits until all have, and the task that closes with them.
template <class Any>
class closing final : private comm::look_hook {
 public:
  using clock = progress::engine::clock;

  closing(exchange_core<Any>& all, messenger<Any>& by) : here_(all), messenger_(by) {}
  ~closing() override {
    comm::request_source* const requests = here_.source.load();
    if (requests == nullptr || here_.closed.load()) return;  // closed: it may be gone
    const comm::request_source::guard hold(*requests);
    requests->forget(here_);
    requests->forget(*this);
  }

  [[nodiscard]] bool has_begun() const noexcept { return has_begun_; }
  [[nodiscard]] bool has_expired() const noexcept { return expired_; }
  [[nodiscard]] const std::vector<leaked_value>& leaks() const noexcept { return leaks_; }
  [[nodiscard]] const receiver_list& waiting() const noexcept { return closers_; }

  // With the node's lock.
  void begin(std::string_view why = {}) {
    if (std::exchange(has_begun_, true)) return;
    until_ = clock::now() + here_.options.leave_time;
    if (!here_.node.is_open()) {
      warn_of_waiting(here_.node);
      leaks_ = here_.node.finish();
    }
    here_.node.close(why);
    if (!here_.node.is_open()) finish();
  }
  /// Begins, and ends `one` when all have closed.
  void wait(receiver& one) {
    begin();
    if (!here_.closed.load() && !expired_) return closers_.push(one);
    if (const std::exception_ptr why = here_.closed.load() ? here_.broken : late_error()) {
      one.fail(why);
    }
    one.end();
  }
  void stop_waiting(receiver& one, const std::exception_ptr& why) { closers_.end(one, why); }

  // With both locks.
  /// Something has happened: the task sees in the next look whether it can go on.
  void advance() {
    if (has_begun() && !here_.closed.load()) here_.source.load()->at_next_look(*this);
  }
  void check_deadline(clock::time_point now) {
    if (has_begun() && now > until_) expire();
  }
  /// The deadline has passed. The others may still come: this rank serves them while its loop runs.
  void expire() {
    if (std::exchange(expired_, true)) return;
    here_.miss();
    log::write(log::level::error, late_text());
    closers_.end_all(late_error());
    comm::joint::operation::let_idle(*here_.source.load(), this);
  }
  /// The others have not come at the end of the context: MPI keeps what it works on.
  void leave_to_mpi() {
    task_begun_ = true;
    changed_.drop();
    comm::joint::operation::leave_to_mpi(*here_.source.load(), this);
    messenger_.close();
    messenger_.keep();
  }

 private:
  /// With the lock of the request source alone.
  std::size_t at_look() override {
    const std::size_t ended_before = endpoint::ended();
    if (std::exchange(task_begun_, true)) {
      changed_.notify();
    } else {
      begin_task();
    }
    return endpoint::ended() - ended_before;
  }
  /// Where there is no memory for it, the next look that something has happened before tries again.
  void begin_task() try {
    progress::begin_look_task(close_with_others(here_, messenger_, changed_),
                              {.verb = "rendezvous: closing", .owner = this, .stalls = false},
                              [this](const std::exception_ptr& why) {
                                const comm::request_source::guard guarded(*here_.source.load());
                                const typename exchange_core<Any>::look_lock hold(here_);
                                if (!why) return finish();
                                task_begun_ = false;
                                messenger_.break_down(why);
                                advance();
                              });
  } catch (...) {
    task_begun_ = false;
    throw;
  }
  void finish() {
    if (here_.closed.load()) return;
    const bool broken = here_.broken != nullptr;
    if (here_.node.is_open() && !broken) {
      leaks_ = here_.node.finish();
      warn_of_leaks(here_.node.rank(), leaks_, "closes with values that nobody has received");
    }
    here_.closed.store(true);
    if (!broken) process::missing.fetch_sub(here_.missed);  // they have come after all
    if (comm::request_source* const source = here_.source.load()) {
      source->forget(here_);
      source->forget(*this);
    }
    if (broken) messenger_.keep();  // one that breaks down alone cannot free them
    messenger_.release();
    here_.parent = communicator();
    closers_.end_all(here_.broken);
  }
  [[nodiscard]] std::exception_ptr late_error() const {
    return std::make_exception_ptr(error(errc::stalled, late_text()));
  }
  [[nodiscard]] std::string late_text() const {
    return "rank " + std::to_string(here_.node.rank()) +
           ": rendezvous: the other ranks have not closed in time; its communicators are kept";
  }

  exchange_core<Any>& here_;
  messenger<Any>& messenger_;
  progress::look_notice changed_;  // for the task
  receiver_list closers_;
  std::vector<leaked_value> leaks_;
  bool has_begun_ = false;
  bool task_begun_ = false;
  bool expired_ = false;
  clock::time_point until_ = clock::time_point::max();
};

}  // namespace cohort::meeting
