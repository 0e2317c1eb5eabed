// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The one way in which communicators are made inside a loop: nobody is in two creations at once.
/// And what each rank does on its own for one (`on_all_or_none`): it fails on all ranks if it fails
/// on one.

#include <cohort/comm/creation_order.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/core/config.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ranks.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/lock.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

namespace cohort::comm {

/// The text that an exception was made with, without that of its code.
[[nodiscard]] std::string facts_of(const std::system_error& failed);

/// Throws on all ranks what it is called with on the first rank where that is not null.
void throw_on_all(const mpi::comm_ref& over, const std::exception_ptr& mine);

/// Calls `step` on each rank, and if it throws on one, throws on all: the error of the first such
/// rank, with its number. Collective over `over`, and blocks; for what comes before something that
/// blocks until all ranks are there. Of an intercommunicator each rank has its own error only.
template <class Step>
void on_all_or_none(const mpi::comm_ref& over, Step step) {
  std::exception_ptr mine;
  try {
    step();
  } catch (...) {
    mine = std::current_exception();
  }
  throw_on_all(over, mine);
}

inline std::string facts_of(const std::system_error& failed) {
  std::string text = failed.what();
  const std::string of_code = failed.code().message();
  if (!text.ends_with(of_code)) return text;
  text.resize(text.size() - of_code.size());
  if (text.ends_with(": ")) text.resize(text.size() - 2);
  return text;
}

/// What a rank tells the others of a step that has failed there.
struct refusal {
  enum class kind : std::int32_t { library, system, mpi };
  kind of = kind::system;
  std::int32_t value = static_cast<std::int32_t>(std::errc::not_enough_memory);  // to tell more
  std::array<char, 248> text{};

  void set(const std::system_error& failed) {
    const std::error_code code = failed.code();
    value = code.value();
    if (code.category() == cohort_category()) {
      of = kind::library;
    } else if (code.category() == mpi::mpi_category()) {
      of = kind::mpi;
      value = mpi::error_class(code);
    } else if (code.category() != std::generic_category() &&
               code.category() != std::system_category()) {
      of = kind::library;
      value = static_cast<std::int32_t>(errc::aborted);
    }
    const std::string facts = facts_of(failed);
    std::copy_n(facts.data(), std::min(facts.size(), text.size() - 1), text.data());
  }
  [[nodiscard]] std::error_code code() const noexcept {
    if (of == kind::library) return make_error_code(static_cast<errc>(value));
    if (of == kind::mpi) return mpi::make_error(value);
    return {value, std::generic_category()};
  }
};

inline void throw_on_all(const mpi::comm_ref& over, const std::exception_ptr& mine) {
  if (over.is_inter()) {
    if (mine) std::rethrow_exception(mine);
    return;
  }
  refusal told;
  try {
    try {
      if (mine) std::rethrow_exception(mine);
    } catch (const std::system_error& failed) {
      told.set(failed);
    }
  } catch (...) {  // of another kind, or no memory to tell more
  }
  int first = mine ? over.rank() : over.size();
  {
    const mpi::lock calls;
    mpi::check(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, over.native()),
               "MPI_Allreduce");
    if (first == over.size()) return;
    mpi::check(MPI_Bcast(&told, sizeof(told), MPI_BYTE, first, over.native()), "MPI_Bcast");
  }
  const std::string facts = told.text.data();
  throw error(told.code(), "rank " + std::to_string(first) + (facts.empty() ? "" : ": ") + facts);
}

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
/// The new communicator is made with messages between members only, so it does not matter which
/// collectives ranks have under way. It costs about four messages to each neighbour in a
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
  COHORT_INLINE std::size_t at_look() override;
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
