// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What a verb does that blocks: `communicator_state::run`.
///
/// 1. By promise, or where there is one rank, MPI's blocking call does it.
/// 2. Else, where nothing is in flight or open, MPI is given it and is asked for a short while, or
///    the backend looks as long. Most calls end so, with nothing made for them.
/// 3. What has not ended then, or had no such chance, becomes an operation, and this thread waits
///    for it as for any other: in laps of the engine, in the loop, or for another thread.

#include <cohort/comm/mpi_blocking.hpp>
#include <cohort/comm/requests/body_operation.ipp>
#include <cohort/comm/requests/list.ipp>
#include <cohort/mpi/layout.hpp>
#include <cohort/progress/engine.hpp>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>

namespace cohort::comm::detail {

/// The operation of a call that blocks. It lies on the caller's stack.
class blocking_operation final : public body_operation {
 public:
  blocking_operation(communicator_ref comm, const body_functions& functions, void* body)
      : body_operation(&ended, comm, functions, body, functions.bytes(body)) {}

  /// Starts it and waits. Throws what it has failed with.
  outcome_of_requests run() {
    waiting place(owner(), waiting::on_trouble::stay);
    place.begin();
    if (start()) owner().complete(this);
    return wait(place);
  }
  /// The same of what has been begun without it. `has_ended`: nothing is left to wait for.
  outcome_of_requests go_on(bool has_ended) {
    if (has_ended) {
      end(true);
      return result();
    }
    waiting place(owner(), waiting::begun());
    place.begin();
    owner().started();
    return wait(place);
  }
  /// Throws what a call of that number has failed with.
  [[noreturn]] void fail_after(std::error_code why, std::uint64_t number) {
    sequence = number;
    fail(why);
    end_unposted();
    throw std::system_error(error(), why_);
  }

  using body_operation::count_as_live;
  using body_operation::describe;
  [[nodiscard]] bool is_pending() const noexcept {
    return request_source::pending(*this) || waits_for_turn_;
  }

 private:
  using waiting = progress::engine::in_place;

  outcome_of_requests wait(waiting& place) {
    place.wait(&is_over, &is_over_);
    return result();
  }
  outcome_of_requests result() const {
    if (failed()) [[unlikely]]
      throw std::system_error(error(), why_);
    return {status, left, message};
  }

  void posted() override {}
  void tell(const failure_text& text) override { why_ = text.str(); }

  static bool is_over(const void* flag) {
    return static_cast<const std::atomic<bool>*>(flag)->load(std::memory_order_acquire);
  }
  static void ended(progress::operation* base, action what) {
    auto& self = static_cast<blocking_operation&>(*base);
    if (what == action::destroy) self.fail(errc::engine_stopped);
    self.end(what != action::destroy);
    progress::engine& engine = self.owner();
    self.is_over_.store(true, std::memory_order_release);  // the operation may be gone then
    engine.end_wait();
  }

  std::atomic<bool> is_over_{false};
  std::string why_;
};

// ---- by MPI's blocking calls --------------------------------------------------------------------
// A program that promises them says that no other thread is in MPI meanwhile, below
// MPI_THREAD_MULTIPLE: so no guard is needed. What is quick here counts twice: a locked
// instruction, or a read of what was written in smaller pieces, waits until the message before has
// left the core's write buffer for a line that another core has.

inline void count_blocking_call(communicator_state& on) {
  const request_source::guard hold(on.source, mpi::level() == thread_level::multiple);
  on.sequence.add(1);
}

/// Throws it, of the call that was counted last. With no guard held.
[[noreturn, gnu::noinline]] inline void fail_blocking_call(communicator_state& on,
                                                           const body_functions& functions,
                                                           void* body, int return_code) {
  const communicator_ref self{&on, on.generation.load(std::memory_order_relaxed)};
  blocking_operation(self, functions, body)
      .fail_after(mpi::make_error(return_code), on.sequence.get());
}

/// False: it may not be used now, as in the next. Else MPI has said something.
inline bool block_in_message(communicator_state& on, const body_functions& functions, void* body,
                             MPI_Status& seen, int& return_code) {
  if (!on.source.is_quiet()) return false;
  return_code = functions.block(body, on.plain.data, seen);
  if (return_code == body_functions::too_large) return false;
  count_blocking_call(on);
  return true;
}

[[gnu::noinline]] inline bool block_in_collective(communicator_state& on,
                                                  const body_functions& functions, void* body,
                                                  bool is_promised, int& return_code) {
  if (functions.call == nullptr || functions.is_gated || on.queues) return false;
  if (!on.source.is_quiet() && !(is_promised && on.engine.may_do_without_lap())) return false;
  std::optional<collective_call> call;
  try {
    call = functions.call(body);
  } catch (...) {  // so it will where it is started, which reports it
  }
  if (!call || !on.blocks->takes(*call)) return false;
  count_blocking_call(on);
  if (is_promised) on.by_backend.add(functions.bytes(body));
  const mpi::lock calls(!is_promised);
  return_code = on.blocks->block(*call);
  return true;
}

inline bool block_in_mpi(communicator_state& on, const body_functions& functions, void* body,
                         MPI_Status& seen) {
  const bool is_promised = on.backend == on.blocks;  // else this rank waits for no other
  int return_code = MPI_SUCCESS;
  const bool has_blocked = is_promised && functions.block != nullptr
                               ? block_in_message(on, functions, body, seen, return_code)
                               : block_in_collective(on, functions, body, is_promised, return_code);
  if (has_blocked && return_code != MPI_SUCCESS) [[unlikely]]
    fail_blocking_call(on, functions, body, return_code);
  return has_blocked;
}

// ---- by requests, and by operations -------------------------------------------------------------

/// One call, on the caller's stack.
class blocking_call final : late_operation {
 public:
  /// Into `seen`, what is to be said of it.
  blocking_call(communicator_state& on, const body_functions& functions, void* body,
                outcome_of_requests& seen) noexcept
      : on_(on), functions_(functions), body_(body), seen_(seen) {}

  void run(bool may_stay) {
    if (may_stay && at_once()) [[likely]] {
      if (operation_) [[unlikely]]
        go_on();
    } else {
      run_operation();
    }
  }

 private:
  /// If nothing else is in flight. True: it has ended, or there is an operation.
  bool at_once() {
    const bool waits = functions_.agreed != nullptr &&
                       (functions_.is_gated || functions_.keeps_turn || on_.queues);
    if (waits || on_.engine.oversubscribed()) return false;
    const request_source::guard hold(on_.source);
    if (!on_.source.is_quiet()) return false;
    const bool may_be_backends = functions_.call != nullptr && !functions_.is_gated &&
                                 on_.options.checks != checks::cross_rank;
    if (may_be_backends) {
      if (on_.choosing != backend_choosing::over) return false;
      if (on_.backend != nullptr && functions_.bytes(body_) > any_backend::most_bytes_at_once)
        return false;
    }
    const std::uint64_t before = on_.sequence.get();
    if (functions_.is_numbered) number_ = on_.sequence.next();
    auto backend = backend_run::not_begun;
    try {
      if (may_be_backends && on_.backend != nullptr) {
        const collective_call call = functions_.call(body_);
        if (on_.backend->takes(call)) {
          std::error_code error;
          backend = on_.backend->run(call, *this, error);
          if (backend == backend_run::not_begun) {
            on_.sequence.set(before);
            return false;
          }
          on_.by_backend.add(functions_.bytes(body_));
          if (error) get().fail(error);
        }
      }
      if (backend == backend_run::not_begun) post_and_look();
    } catch (...) {
      get().fail_as_thrown();
    }
    if (!operation_) [[likely]]
      return true;
    operation_->describe();
    has_ended_ = backend != backend_run::begun && ends_soon();
    return true;
  }
  /// Stage by stage, until one does not end soon. With the guard held.
  void post_and_look() {
    poster post(on_, *this);
    int return_code = functions_.post(body_, post);
    while (return_code == MPI_SUCCESS && has_request_) {
      if (!on_.source.look_for_end(request_, seen_.status, return_code)) break;
      has_request_ = false;
      seen_.left = request_;
      if (return_code != MPI_SUCCESS || functions_.advance == nullptr) break;
      if (!functions_.advance(body_, post)) break;
      if (!is_made_) seen_.status = empty_status.native();  // MPICH writes little of a send
    }
    if (return_code != MPI_SUCCESS) [[unlikely]]
      get().fail(mpi::make_error(return_code));
    if (has_request_) get();
  }
  /// The operation, with the guard held.
  [[gnu::noinline]] bool ends_soon() {
    if (!operation_->is_pending()) return true;
    return request_source::pending(*operation_) && on_.source.look_for_end(*operation_);
  }

  [[gnu::noinline]] void go_on() { seen_ = operation_->go_on(has_ended_); }
  [[gnu::noinline]] void run_operation() {
    make();
    seen_ = operation_->run();
  }
  /// From late_operation, with the guard held.
  request_operation& get() override {
    if (is_made_) return *operation_;
    make();
    operation_->count_as_live(number_);
    operation_->status = seen_.status;
    operation_->left = seen_.left;
    if (has_request_) on_.add(request_, *operation_);
    has_request_ = false;
    return *operation_;
  }
  [[gnu::noinline]] void make() {
    is_made_ = true;
    operation_.emplace(communicator_ref{&on_, on_.generation.load(std::memory_order_relaxed)},
                       functions_, body_);
  }

  communicator_state& on_;
  const body_functions& functions_;
  void* const body_;
  std::uint64_t number_ = 0;
  bool has_ended_ = false;
  outcome_of_requests& seen_;
  std::optional<blocking_operation> operation_;
};

[[gnu::noinline]] inline void block_otherwise(communicator_state& on,
                                              const body_functions& functions, void* body,
                                              bool may_stay, outcome_of_requests& seen) {
  blocking_call(on, functions, body, seen).run(may_stay);
}

}  // namespace cohort::comm::detail

namespace cohort::comm {

COHORT_INLINE outcome_of_requests communicator_state::run(const body_functions& functions,
                                                          void* body) {
  outcome_of_requests seen{empty_status.native(), MPI_REQUEST_NULL, MPI_MESSAGE_NULL};
  const bool owes_turn = (sequence.get() + 1) % engine.most_calls_without_turn == 0;
  if (owes_turn) engine.owe_turn();
  const bool may_stay = !owes_turn && source.usable() == errc{} && !engine.is_in_handler() &&
                        functions.check(body, *this) == errc{};
  if (!(may_stay && blocks != nullptr && detail::block_in_mpi(*this, functions, body, seen.status)))
    detail::block_otherwise(*this, functions, body, may_stay, seen);
  return seen;
}

}  // namespace cohort::comm
