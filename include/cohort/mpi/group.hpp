// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Ordered sets of processes. Everything here is local: no communication.

#include <cohort/core/ranks.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace cohort::mpi {

/// Owns an MPI group. Freed by the destructor, or not at all once MPI is finalized.
class group {
 public:
  /// The empty group.
  group() noexcept {}
  group(group&& other) noexcept : native_(other.release()) {}
  group& operator=(group&& other) noexcept;
  ~group() { reset(); }

  /// Takes over a group.
  [[nodiscard]] static group adopt(MPI_Group owned) noexcept;

  [[nodiscard]] int size() const;
  /// The rank of this process in the group, or -1 if it is not a member.
  [[nodiscard]] int rank() const;
  [[nodiscard]] MPI_Group native() const noexcept { return native_; }

  /// The members at these ranks, in this order. Throws errc::bad_rank for one beyond the size.
  [[nodiscard]] group include(const ranks& members) const;
  /// All members but those at these ranks. Throws errc::bad_rank for one beyond the size.
  [[nodiscard]] group exclude(const ranks& members) const;
  /// All members of this group, then those of the other that are not in it.
  [[nodiscard]] group unite(const group& other) const;
  /// The members that are in both, in the order of this group.
  [[nodiscard]] group intersect(const group& other) const;
  /// The members that are not in the other, in the order of this group.
  [[nodiscard]] group subtract(const group& other) const;

  /// The ranks in the other group of the members at these ranks; -1 for a process that is not
  /// there.
  [[nodiscard]] std::vector<int> translate(const ranks& members, const group& other) const;

  /// Whether both have the same members in the same order.
  [[nodiscard]] bool operator==(const group& other) const { return compare(other) == MPI_IDENT; }
  /// Whether both have the same members in any order.
  [[nodiscard]] bool similar(const group& other) const { return compare(other) != MPI_UNEQUAL; }

  /// Gives up ownership.
  [[nodiscard]] MPI_Group release() noexcept { return std::exchange(native_, MPI_GROUP_EMPTY); }

 private:
  explicit group(MPI_Group owned) noexcept : native_(owned) {}
  void reset() noexcept;
  [[nodiscard]] int compare(const group& other) const;
  void require_members(const ranks& members) const;

  MPI_Group native_ = MPI_GROUP_EMPTY;
};

inline group& group::operator=(group&& other) noexcept {
  if (this != &other) {
    reset();
    native_ = other.release();
  }
  return *this;
}

inline group group::adopt(MPI_Group owned) noexcept { return group(owned); }

inline int group::size() const {
  const lock calls;
  int result = 0;
  check(MPI_Group_size(native_, &result), "MPI_Group_size");
  return result;
}

inline int group::rank() const {
  const lock calls;
  int result = MPI_UNDEFINED;
  check(MPI_Group_rank(native_, &result), "MPI_Group_rank");
  return result == MPI_UNDEFINED ? -1 : result;
}

inline group group::include(const ranks& members) const {
  require_members(members);
  const lock calls;
  MPI_Group result = MPI_GROUP_NULL;
  check(MPI_Group_incl(native_, static_cast<int>(members.size()), members.data(), &result),
        "MPI_Group_incl");
  return group(result);
}

inline group group::exclude(const ranks& members) const {
  require_members(members);
  const lock calls;
  MPI_Group result = MPI_GROUP_NULL;
  check(MPI_Group_excl(native_, static_cast<int>(members.size()), members.data(), &result),
        "MPI_Group_excl");
  return group(result);
}

inline group group::unite(const group& other) const {
  const lock calls;
  MPI_Group result = MPI_GROUP_NULL;
  check(MPI_Group_union(native_, other.native_, &result), "MPI_Group_union");
  return group(result);
}

inline group group::intersect(const group& other) const {
  const lock calls;
  MPI_Group result = MPI_GROUP_NULL;
  check(MPI_Group_intersection(native_, other.native_, &result), "MPI_Group_intersection");
  return group(result);
}

inline group group::subtract(const group& other) const {
  const lock calls;
  MPI_Group result = MPI_GROUP_NULL;
  check(MPI_Group_difference(native_, other.native_, &result), "MPI_Group_difference");
  return group(result);
}

inline std::vector<int> group::translate(const ranks& members, const group& other) const {
  require_members(members);
  std::vector<int> result(members.size());
  const lock calls;
  check(MPI_Group_translate_ranks(native_, static_cast<int>(members.size()), members.data(),
                                  other.native_, result.data()),
        "MPI_Group_translate_ranks");
  for (int& rank : result) {
    rank = rank == MPI_UNDEFINED ? -1 : rank;
  }
  return result;
}

inline void group::reset() noexcept {
  if (native_ != MPI_GROUP_EMPTY && native_ != MPI_GROUP_NULL && running()) {
    const lock calls;
    MPI_Group_free(&native_);
  }
  native_ = MPI_GROUP_EMPTY;
}

inline int group::compare(const group& other) const {
  const lock calls;
  int result = MPI_UNEQUAL;
  check(MPI_Group_compare(native_, other.native_, &result), "MPI_Group_compare");
  return result;
}

inline void group::require_members(const ranks& members) const {
  const int limit = size();
  for (const int rank : members) {
    if (rank >= limit) {
      throw error(errc::bad_rank,
                  "rank=" + std::to_string(rank) + " in a group of size=" + std::to_string(limit));
    }
  }
}

}  // namespace cohort::mpi
