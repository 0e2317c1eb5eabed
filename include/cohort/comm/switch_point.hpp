// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file From which of its collectives on a communicator goes another way.

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace cohort::comm {

/// Ranks that share memory agree from which of their collectives on another way than MPI carries
/// them, while they go on with them, and nobody waits for anybody. Each numbers its collectives
/// from 1 and asks before each, from when it has joined; what it has begun before was MPI's.
///
/// A word that all share has the number of ranks that have joined and the highest number that one
/// of these has begun through MPI. Once all have joined it changes no more: collectives up to that
/// number are MPI's on all ranks, and nobody has begun a later one.
class switch_point {
 public:
  using word = std::atomic<std::uint64_t>;
  static_assert(word::is_always_lock_free, "it is shared between processes");

  /// `shared` is 0 before the first rank joins. At most 65 534 ranks.
  switch_point(word& shared, int ranks) noexcept
      : shared_(&shared), all_(static_cast<std::uint64_t>(ranks)) {}

  /// This rank can go the other way; it has begun `begun` collectives.
  void join(std::uint64_t begun) noexcept {
    change([=](std::uint64_t now) { return merged(now, begun) + one_rank; });
  }
  /// Whether collective `number`, which this rank is about to begin, goes the other way; then all
  /// later ones do, too. If not, MPI has it.
  [[nodiscard]] bool is_behind(std::uint64_t number) noexcept {
    // If the last rank joins now, it sees this number, or this rank sees that it has joined.
    const std::uint64_t before = change([=](std::uint64_t now) { return merged(now, number); });
    return joined_in(before) == all_ && number > begun_in(before);
  }
  /// This rank waits no longer for the others: no collective will go the other way. False if that
  /// was agreed before.
  bool refuse() noexcept {
    const std::uint64_t before = change([](std::uint64_t now) { return now | nobody; });
    return joined_in(before) != all_;
  }

 private:
  static constexpr unsigned shift = 48;
  static constexpr std::uint64_t one_rank = std::uint64_t{1} << shift;
  static constexpr std::uint64_t nobody = std::uint64_t{0xFFFF} << shift;

  [[nodiscard]] static std::uint64_t joined_in(std::uint64_t of) noexcept { return of >> shift; }
  [[nodiscard]] static std::uint64_t begun_in(std::uint64_t of) noexcept {
    return of & (one_rank - 1);
  }
  [[nodiscard]] static std::uint64_t merged(std::uint64_t now, std::uint64_t begun) noexcept {
    return (now & nobody) | std::max(begun_in(now), begun);
  }
  /// What was there before; nothing is changed that is final.
  template <class Change>
  std::uint64_t change(Change changed) noexcept {
    std::uint64_t now = shared_->load(std::memory_order_acquire);
    while (joined_in(now) != all_ && joined_in(now) != joined_in(nobody)) {
      if (shared_->compare_exchange_weak(now, changed(now))) break;
    }
    return now;
  }

  word* shared_;
  std::uint64_t all_;
};

}  // namespace cohort::comm
