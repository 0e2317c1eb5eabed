// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How a rendezvous is opened, how its steps are swept away, and how its ranks close
/// together.

#include <cohort/comm/joint.hpp>
#include <cohort/core/crypto.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/log.hpp>
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
  const typename exchange_core<Any>::look_lock hold(all);
  if (const std::exception_ptr why = differing(all.node.rank(), told)) {
    by.break_down(why);
    co_return;
  }
  std::vector<std::uint64_t> incarnations;
  for (const opening_facts& each : told) incarnations.push_back(each.incarnation);
  all.node.open_with(std::move(incarnations));
  by.open(std::move(made));
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

/// How far a rank has closed. The steps between them are rounds of all ranks.
enum class closing_stage : std::uint8_t {
  open,
  left,          ///< this rank sends and receives no more
  all_left,      ///< so do all: no more requests are made
  all_answered,  ///< all requests have been answered, and all transfers done, everywhere
  counted,      ///< how many messages have been sent to here is known: when they have come, nothing
                ///< is on its way
  left_to_mpi,  ///< no round begins any more
  closed,
};

/// How far this rank has closed, and who waits until all have.
template <class Any>
class closing {
 public:
  using clock = progress::engine::clock;

  closing(exchange_core<Any>& all, messenger<Any>& by) : here_(all), messenger_(by) {}

  [[nodiscard]] bool has_begun() const noexcept { return stage_ != closing_stage::open; }
  [[nodiscard]] bool has_expired() const noexcept { return expired_; }
  [[nodiscard]] const std::vector<leaked_value>& leaks() const noexcept { return leaks_; }
  [[nodiscard]] const receiver_list& waiting() const noexcept { return closers_; }

  // With the node's lock.
  void begin() {
    if (has_begun()) return;
    stage_ = closing_stage::left;
    until_ = clock::now() + here_.options.leave_time;
    if (!here_.node.is_open()) {
      warn_of_waiting(here_.node);
      leaks_ = here_.node.finish();
    }
    here_.node.close();
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
  /// Goes on with the rounds, as far as this rank has got.
  void advance() {
    if (!has_begun() || here_.closed.load()) return;
    if (here_.broken) return release();
    if (!messenger_.is_open() || round_ != nullptr) return;
    switch (stage_) {
      case closing_stage::left:
        return begin_round();
      case closing_stage::all_answered:
        here_.node.outbox().close();
        [[fallthrough]];
      case closing_stage::all_left:
        if (messenger_.is_quiet()) begin_round();
        return;
      case closing_stage::counted:
        if (messenger_.messages_received() == messages_expected_ && messenger_.is_quiet())
          release();
        return;
      case closing_stage::open:
      case closing_stage::left_to_mpi:
      case closing_stage::closed:
        return;
    }
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
    if (round_ != nullptr) here_.source.load()->set_idle(*round_, true);
  }
  /// The others have not come at the end of the context: MPI keeps what it works on.
  void leave_to_mpi() {
    stage_ = closing_stage::left_to_mpi;
    round::leave_to_mpi(*this);
    messenger_.close();
    messenger_.keep();
  }

 private:
  class round;

  void begin_round() {
    round_ = new round(*this);
    ++here_.operations;
    try {
      round_->begin();
    } catch (...) {
      --here_.operations;
      delete std::exchange(round_, nullptr);
      messenger_.break_down(std::current_exception());
    }
  }
  void release() {
    if (messenger_.close() && here_.operations == 0) finish();
  }
  void finish() {
    if (here_.closed.load()) return;
    const bool broken = here_.broken != nullptr;
    if (here_.node.is_open() && !broken) {
      leaks_ = here_.node.finish();
      warn_of_leaks(here_.node.rank(), leaks_, "closes with values that nobody has received");
    }
    stage_ = closing_stage::closed;
    here_.closed.store(true);
    if (!broken) process::missing.fetch_sub(here_.missed);  // they have come after all
    if (comm::request_source* const source = here_.source.load()) source->forget(here_);
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
  closing_stage stage_ = closing_stage::open;
  round* round_ = nullptr;  // inside MPI
  std::uint64_t messages_expected_ = 0;
  receiver_list closers_;
  std::vector<leaked_value> leaks_;
  bool expired_ = false;
  clock::time_point until_ = clock::time_point::max();
};

/// What brings all ranks to the next stage. It is a barrier, and before `counted` a sum of the
/// messages that were sent to each rank.
template <class Any>
class closing<Any>::round final : public comm::request_operation {
 public:
  explicit round(closing& owner) : request_operation(&run), owner_(owner) {
    advance_ = &advanced;
    advances_failed_ = true;
    verb = "rendezvous_close";
    stalls = false;  // who awaits it is named
    rank = owner.here_.node.rank();
  }
  void begin() {
    MPI_Request request = MPI_REQUEST_NULL;
    const messenger<Any>& by = owner_.messenger_;
    const MPI_Comm comm = by.control().state()->exchange.native();
    if (owner_.stage_ != closing_stage::all_answered) {
      mpi::check(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
    } else {
      for (int to = 0; to < by.control().size(); ++to) sent_.push_back(by.messages_to(to));
      mpi::check(mpi::post::ireduce_scatter_block(sent_.data(), &owner_.messages_expected_, 1,
                                                  MPI_UINT64_T, MPI_SUM, comm, &request),
                 "MPI_Ireduce_scatter_block");
    }
    owner_.here_.source.load()->add(request, *this);
  }
  static void leave_to_mpi(closing& owner) {
    owner.here_.source.load()->leave_to_mpi(&advanced, [&](request_operation& op) {
      return &static_cast<round&>(op).owner_ == &owner;
    });
  }

 private:
  static bool advanced(request_operation* base) {
    auto* self = static_cast<round*>(base);
    closing& owner = self->owner_;
    const typename exchange_core<Any>::look_lock hold(owner.here_);
    --owner.here_.operations;
    owner.round_ = nullptr;
    if (owner.stage_ < closing_stage::counted) {  // else it has left the rest to MPI
      owner.stage_ = static_cast<closing_stage>(static_cast<std::uint8_t>(owner.stage_) + 1);
    }
    if (self->failed()) {
      owner.messenger_.break_down(
          std::make_exception_ptr(std::system_error(self->error(), "rendezvous: closing")));
    }
    owner.here_.advance();
    return false;
  }
  static void run(operation* base, action) { delete static_cast<round*>(base); }

  closing& owner_;
  std::vector<std::uint64_t> sent_;  // messages to each rank
};

}  // namespace cohort::meeting
