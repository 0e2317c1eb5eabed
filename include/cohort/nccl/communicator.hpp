// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::nccl::communicator`: an NCCL communicator, made, split, finalised and aborted by
/// awaiting.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/source.hpp>
#include <cohort/nccl/state.hpp>

#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// An NCCL communicator over the ranks of an MPI communicator, one device each. A handle: copies
/// are the same communicator.
///
/// When the last handle goes, the operations that were started end, then it is finalised and
/// destroyed in the background; `io.run()` returns after that, and `MPI_Finalize` waits for it.
/// What has not ended after `leave_bound` is leaked and named; from then on nothing is freed on
/// that device, because it might wait for ever. Handles must not outlive the context.
///
/// *Threads*: any. Operations must be started in one order on all ranks, over *all* communicators
/// of a device, because that is the order in which they are launched there. Making and splitting
/// count as operations of that order. All communicators of a device belong to one io_context.
class communicator {
 public:
  using executor_type = asio::io_context::executor_type;

  /// No communicator. Every verb on it completes with errc::invalid_communicator.
  communicator() noexcept {}
  explicit communicator(std::shared_ptr<communicator_state> state)
      : handle_(std::make_shared<const handle>(std::move(state))) {}

  [[nodiscard]] int rank() const noexcept { return state()->rank; }
  [[nodiscard]] int size() const noexcept { return state()->size; }
  [[nodiscard]] int device() const noexcept { return state()->device; }
  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }
  [[nodiscard]] executor_type get_executor() const noexcept {
    return state()->source.engine().get_executor();
  }
  /// NCCL's own, or null once it has ended. Calls of your own must not come between those of the
  /// library: await everything first.
  [[nodiscard]] ncclComm_t native() const {
    return state()->source.exclusively([&] { return state()->native; });
  }
  /// What went wrong last on this communicator and rank, with all facts.
  [[nodiscard]] failure last_failure() const { return state()->last_failure(); }
  [[nodiscard]] phase stands() const noexcept { return state()->stands.load(); }

  /// The ranks of equal `color` (negative: none, and the result is empty), ordered by `key`, on the
  /// same devices. Waits for the operations of this one first.
  /// `void(std::exception_ptr, communicator)`. *Collective*. *Source*: a split of the MPI
  /// communicator and a fresh communicator: `ncclCommSplit` may wait for operations of the parent
  /// on another rank.
  template <class Token = default_token>
  auto split(int color, int key = 0, Token&& token = Token()) const;

  /// Ends it now: waits for its operations, finalises and destroys it. `void(std::exception_ptr)`,
  /// with errc::stalled after `leave_bound`. *Collective*. Verbs fail with errc::closed from then
  /// on.
  template <class Token = default_token>
  auto finalize(Token&& token = Token()) const;

  /// Ends it now, whatever is in flight: its operations end with errc::aborted, and those of the
  /// peers with ncclRemoteError. `void(std::exception_ptr)`, when NCCL has aborted; that happens on
  /// a thread, because it blocks. Other communicators go on.
  template <class Token = default_token>
  auto abort(Token&& token = Token()) const;

  /// For verbs. Null for an empty handle.
  [[nodiscard]] const std::shared_ptr<communicator_state>& state() const noexcept {
    static const std::shared_ptr<communicator_state> none;
    return handle_ ? handle_->state : none;
  }

 private:
  struct handle {
    explicit handle(std::shared_ptr<communicator_state> its) noexcept : state(std::move(its)) {}
    handle(const handle&) = delete;
    ~handle() { state->source.leave(*state); }
    std::shared_ptr<communicator_state> state;
  };
  std::shared_ptr<const handle> handle_;
};

/// Makes an NCCL communicator over the ranks of `world`. `void(std::exception_ptr, communicator)`.
///
/// The ranks first tell each other over MPI what they have. If one has no device, two have the
/// same, or versions of NCCL or options differ, *all* ranks get the same error, which names the
/// ranks, and NCCL is not called. Rank 0 then makes the id and MPI carries it. Nothing blocks the
/// loop. It cannot be cancelled, nor shortened by a deadline; NCCL's init is bounded by
/// `init_bound`. *Collective over* `world`. *Errors*: rank_error with errc::no_device,
/// errc::wrong_device (one device for two ranks); mismatch_error; category `nccl` from init.
/// *Example*: `auto gpus = co_await cohort::nccl::make_communicator(world);`
template <class Token = default_token>
auto make_communicator(const cohort::communicator& world,
                       const communicator_options& options = communicator_options(),
                       Token&& token = Token());

/// Makes an NCCL communicator over several devices of each rank of `world`, and one handle for each
/// device of this one, in the order of `devices`. `void(std::exception_ptr,
/// std::vector<communicator>)`.
///
/// The ranks of NCCL are those of the devices: those of rank 0 of MPI come first, in the order that
/// it gives, then those of rank 1, and so on. Ranks may bring different numbers of devices, but at
/// least one. Averages divide by the number of devices. Operations are started on each handle, or
/// together by a \ref set_group. A failure of one of the handles ends the others too. `split` is
/// refused with errc::not_supported. `options.device` is not used; all else is as above, and a
/// rank_error names ranks of NCCL, but for errc::invalid_argument (no device, or too many), which
/// names ranks of MPI.
/// *Example*: `auto gpus = co_await cohort::nccl::make_communicators(world, devices);`
template <class Token = default_token>
auto make_communicators(const cohort::communicator& world, std::vector<int> devices,
                        const communicator_options& options = communicator_options(),
                        Token&& token = Token());

/// The same over a communicator that somebody else has made, over the same ranks in the same order,
/// as a non-blocking one: calls on a blocking one would stop the loop until the peers call.
/// It stays theirs: it is never finalised, and aborted only if `options.abort_borrowed` says so.
/// The options' `device` and `config` are not used.
template <class Token = default_token>
auto borrow_communicator(const cohort::communicator& world, ncclComm_t native,
                         const communicator_options& options = communicator_options(),
                         Token&& token = Token());

}  // namespace cohort::nccl

#include <cohort/nccl/detail/start_making.hpp>

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/nccl/detail/communicator.ipp>
#endif

#endif
