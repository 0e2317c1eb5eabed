// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Communicators, owned and borrowed, and groups of ranks. For calls of MPI without an event loop;
/// `cohort::communicator` is the one whose operations are awaited.
///
/// \code
/// #include <cohort/mpi/comm.hpp>
///
/// int main(int argc, char** argv) {
///   const cohort::environment env(argc, argv);
///   const auto world = cohort::mpi::comm_ref::world();              // borrowed: nobody frees it
///   const cohort::mpi::comm half = world.split(world.rank() % 2);   // owned: freed in the end
///   const auto rest = world.group().exclude(cohort::ranks(0));
///   const cohort::mpi::comm others = world.create(rest);            // empty on rank 0
///   cohort::mpi::check(MPI_Barrier(half.native()), "MPI_Barrier");  // throws what MPI reports
/// }
/// \endcode

#include <cohort/core/error.hpp>
#include <cohort/core/ranks.hpp>
#include <cohort/mpi/environment.hpp>
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

class comm;

/// A borrowed communicator. A value with its rank and size read once, so that asking is free.
///
/// Calls that make a new communicator are collective over this one and block inside MPI while they
/// hold mpi::lock; do not make them from inside an event loop that others wait for.
class comm_ref {
 public:
  /// MPI_COMM_NULL, of size 0.
  comm_ref() noexcept {}
  /// Throws errc::invalid_communicator for MPI_COMM_NULL.
  explicit comm_ref(MPI_Comm native);

  [[nodiscard]] static comm_ref world() { return comm_ref(MPI_COMM_WORLD); }
  [[nodiscard]] static comm_ref self() { return comm_ref(MPI_COMM_SELF); }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] MPI_Comm native() const noexcept { return native_; }
  [[nodiscard]] explicit operator bool() const noexcept { return native_ != MPI_COMM_NULL; }
  /// Whether this connects two groups; sizes and ranks are then those of the local group.
  [[nodiscard]] bool is_inter() const;
  /// The members, in rank order. Local.
  [[nodiscard]] mpi::group group() const;

  /// A copy with its own message space, the same topology, and errors returned.
  [[nodiscard]] comm dup() const;
  /// Of an intercommunicator: an ordinary one of the ranks of both groups.
  [[nodiscard]] comm merge() const;
  /// One communicator per color, ordered by key and then by rank here. A negative color takes no
  /// part and gets an empty communicator.
  [[nodiscard]] comm split(int color, int key = 0) const;
  /// One communicator per shared-memory node.
  [[nodiscard]] comm split_node(int key = 0) const;
  /// A communicator of the members of a group. Collective over that group only, if all give the
  /// same tag; ranks outside get an empty communicator without a call.
  [[nodiscard]] comm create(const mpi::group& members, int tag = 0) const;

 protected:
  MPI_Comm native_ = MPI_COMM_NULL;
  int rank_ = MPI_PROC_NULL;
  int size_ = 0;
};

/// Owns a communicator. Freeing it is collective, so let all ranks drop theirs in the same order;
/// after MPI_Finalize it is a no-op.
class comm : public comm_ref {
 public:
  comm() noexcept {}
  comm(comm&& other) noexcept;
  comm& operator=(comm&& other) noexcept;
  ~comm() { reset(); }

  /// Duplicates a communicator of the user's, which stays the user's. Collective, blocking.
  [[nodiscard]] static comm from(MPI_Comm original) { return comm_ref(original).dup(); }
  /// Takes over a communicator and makes it return errors; MPI_COMM_NULL gives an empty one.
  [[nodiscard]] static comm adopt(MPI_Comm owned);

  [[nodiscard]] comm_ref borrow() const noexcept { return *this; }
  /// Gives up ownership.
  [[nodiscard]] MPI_Comm release() noexcept;
  /// Frees the communicator now.
  void reset() noexcept;
  /// Leaves it to MPI for good: it can be used as before, and is not freed in the end. For one on
  /// which something may still be on its way. MPI must not give its number to another then.
  void keep() noexcept { kept_ = true; }

 private:
  bool kept_ = false;
};

/// The largest tag MPI accepts, read once per process. Throws errc::not_initialized before
/// MPI_Init.
[[nodiscard]] int max_tag();

inline comm_ref::comm_ref(MPI_Comm native) : native_(native) {
  if (native == MPI_COMM_NULL) {
    throw error(errc::invalid_communicator, "MPI_COMM_NULL");
  }
  if (!running()) {
    throw error(finalized() ? errc::finalized : errc::not_initialized, "mpi::comm_ref");
  }
  const lock calls;
  check(MPI_Comm_rank(native, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(native, &size_), "MPI_Comm_size");
}

inline bool comm_ref::is_inter() const {
  const lock calls;
  int flag = 0;
  check(MPI_Comm_test_inter(native_, &flag), "MPI_Comm_test_inter");
  return flag != 0;
}

inline group comm_ref::group() const {
  const lock calls;
  MPI_Group members = MPI_GROUP_NULL;
  check(MPI_Comm_group(native_, &members), "MPI_Comm_group");
  return mpi::group::adopt(members);
}

inline comm comm_ref::dup() const {
  const lock calls;
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(native_, &copy), "MPI_Comm_dup");
  return comm::adopt(copy);
}

inline comm comm_ref::merge() const {
  const lock calls;
  MPI_Comm all = MPI_COMM_NULL;
  check(MPI_Intercomm_merge(native_, 0, &all), "MPI_Intercomm_merge");
  return comm::adopt(all);
}

inline comm comm_ref::split(int color, int key) const {
  const lock calls;
  MPI_Comm part = MPI_COMM_NULL;
  check(MPI_Comm_split(native_, color < 0 ? MPI_UNDEFINED : color, key, &part), "MPI_Comm_split");
  return comm::adopt(part);
}

inline comm comm_ref::split_node(int key) const {
  const lock calls;
  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(native_, MPI_COMM_TYPE_SHARED, key, MPI_INFO_NULL, &node),
        "MPI_Comm_split_type");
  return comm::adopt(node);
}

inline comm comm_ref::create(const mpi::group& members, int tag) const {
  if (members.rank() < 0) {
    return comm();
  }
  const lock calls;
  MPI_Comm result = MPI_COMM_NULL;
  check(MPI_Comm_create_group(native_, members.native(), tag, &result), "MPI_Comm_create_group");
  return comm::adopt(result);
}

inline comm::comm(comm&& other) noexcept
    : comm_ref(other), kept_(std::exchange(other.kept_, false)) {
  other.comm_ref::operator=(comm_ref());
}

inline comm& comm::operator=(comm&& other) noexcept {
  if (this != &other) {
    reset();
    comm_ref::operator=(other);
    other.comm_ref::operator=(comm_ref());
    kept_ = std::exchange(other.kept_, false);
  }
  return *this;
}

inline comm comm::adopt(MPI_Comm owned) {
  comm result;
  if (owned == MPI_COMM_NULL) {
    return result;
  }
  watch_finalize();
  const lock calls;
  MPI_Comm_set_errhandler(owned, MPI_ERRORS_RETURN);
  result.comm_ref::operator=(comm_ref(owned));
  return result;
}

inline MPI_Comm comm::release() noexcept {
  const MPI_Comm native = native_;
  comm_ref::operator=(comm_ref());
  kept_ = false;
  return native;
}

inline void comm::reset() noexcept {
  if (native_ != MPI_COMM_NULL && !kept_ && running()) {
    const lock calls;
    MPI_Comm_free(&native_);
  }
  comm_ref::operator=(comm_ref());
  kept_ = false;
}

inline int max_tag() {
  static const int limit = [] {
    if (!running()) {
      throw error(finalized() ? errc::finalized : errc::not_initialized, "mpi::max_tag");
    }
    const lock calls;
    void* value = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");
    return found != 0 ? *static_cast<int*>(value) : 32767;  // what the standard guarantees
  }();
  return limit;
}

}  // namespace cohort::mpi
