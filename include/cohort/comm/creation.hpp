// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The one way in which communicators are made inside a loop: nobody is in two creations at once.

#include <cohort/comm/creation_order.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/core/ranks.hpp>
#include <cohort/mpi/comm.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace cohort::comm {

class communicator_state;

/// Tags of creations, on the parent's second communicator: of those that the program begins, and of
/// those that follow an invitation (cluster/membership/invitation.hpp), at a time of which it knows
/// nothing.
inline constexpr int creation_tag = 32766;
inline constexpr int invited_creation_tag = 32765;

/// A creation of communicators over the ranks of a communicator, or some of them. Part of an
/// operation, which goes on when it is this creation's turn on all members.
///
/// MPI lets a process be in several creations, but libraries hang if two processes enter them in
/// different orders, which ranks that run at different speeds do (Open MPI issue 2025). What is
/// made here is made when all members have called, and none of their processes takes part in
/// another creation; `creation_stages` tells how. Those over one communicator with the same tag
/// follow one another as they were begun, which must be the same order on all ranks.
///
/// The new communicator is made with messages between members only, so that it is of no account
/// which collectives ranks have under way. It costs about four messages to each neighbour in a
/// tree, and what MPI takes to make it, during which the engine of each member stands still.
///
/// Everything is called with the guard of the parent's source held.
class creation final : private look_hook {
 public:
  /// `parent` and `op` must live until it has left. `members` are ranks of the parent; none: all.
  /// Takes the memory for all stages, in which the others count on this rank.
  creation(communicator_state& parent, request_operation& op, ranks members = ranks(),
           int tag = creation_tag);
  ~creation() override { creation_turn::of_process().leave(); }

  /// Enters. `op` goes on from the next look, without a request if need be: call
  /// `engine().started()` after the guard.
  void begin() noexcept;

  /// For the stages of `op`, after an error too: true while the creation is under way. Then, unless
  /// `op` has failed, calls `make(mpi::comm)` with the communicator of the members, over which it
  /// may call what blocks until all members call it. Leaves after that, also if `make` throws.
  template <class Make>
  bool goes_on(Make make) {
    if (advance()) return true;
    const leaver when_done{*this};
    if (linked_ && !op_.failed()) make(made());
    return false;
  }

  /// Takes part no more: the operation has been given up.
  void leave() noexcept;

  /// The next one over the same parent.
  [[nodiscard]] creation* next() const noexcept { return next_; }
  [[nodiscard]] request_operation& operation() const noexcept { return op_; }
  /// For its turn, without a request.
  [[nodiscard]] bool is_waiting() const noexcept { return op_.waits_for_turn_; }
  /// The context goes away with what is under way on this communicator.
  static void abandon(communicator_state& parent) noexcept;
  /// Ends with `why` what waits without a request; the source ends the others.
  static void fail_waiting(communicator_state& parent, std::error_code why,
                           progress::ready_queue& ready) noexcept;

 private:
  struct leaver {
    creation& of;
    ~leaver() { of.leave(); }
  };
  std::size_t at_look() override;
  bool advance() noexcept;
  bool take_stages();
  void line_up();
  bool post_exchange();
  void wait() noexcept;
  [[nodiscard]] bool is_first() const noexcept;
  [[nodiscard]] int rank_of(int member) const noexcept;
  [[nodiscard]] mpi::comm made() const;

  communicator_state& parent_;
  request_operation& op_;
  ranks members_;
  int tag_;
  creation* next_ = nullptr;  // over the same parent
  bool linked_ = false;
  bool waits_for_turn_ = false;  // of the process; else of the parent
  creation_stages stages_;
  std::vector<char> received_;  // MPI writes here
  char sent_ = 0;
};

}  // namespace cohort::comm

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/comm/creation.ipp>
#endif
