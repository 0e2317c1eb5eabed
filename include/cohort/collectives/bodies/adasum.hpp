// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The messages of `op::adasum`: a rank's vector enters, and in its place is the result when the
/// last stage is over. For direct calls and for coordinators, which post for it.

#include <cohort/core/adasum.hpp>
#include <cohort/core/buffer.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/native.hpp>
#include <cohort/mpi/post.hpp>

#include <cstddef>
#include <cstdint>

namespace cohort::collectives {

/// The tag of the `number`-th operation on a communicator, for all its messages. It is above those
/// of a coordinator's other messages and below those by which communicators are made, which both
/// may be under way on the same one. After 16384 operations it comes again: as many at most may be
/// under way.
[[nodiscard]] constexpr int adasum_tag(std::uint64_t number) noexcept {
  constexpr std::uint64_t tags = 1U << 14U;
  return 2 + static_cast<int>(number % tags);
}

/// One Adasum under way on one rank: whole vectors travel to the partner of each stage, so that
/// both compute the same from the same. The messages of one operation have one tag, which no other
/// has that is under way on the communicator: without it a later operation whose stage is sooner
/// done would get the message of an earlier one.
///
/// *Cost*: log2(n) exchanges of the vector, and two more messages of its length where n is no power
/// of two; as much memory as the vector besides.
class adasum_exchange {
 public:
  /// `data` is this rank's vector, `other` has room for one more. Both live as long as this.
  void begin(int rank, int ranks, int tag, std::byte* data, std::byte* other,
             std::size_t bytes) noexcept {
    *this = {};
    rank_ = rank;
    ranks_ = ranks;
    tag_ = tag;
    data_ = data;
    other_ = other;
    bytes_ = bytes;
  }
  /// Posts the next stage, when the messages of the one before have come. False if there is none.
  ///
  /// `combine(out, a, b)`: out = the Adasum of a and b, one of which `out` is, in bytes from the
  /// beginning. `add(return_code, request)` takes a request over; false where that has failed.
  template <class Combine, class Add>
  bool post_next(MPI_Comm on, Combine combine, Add add) {
    if (last_.combines) {
      const bool is_lower = rank_ < last_.partner;
      combine(data_, is_lower ? data_ : other_, is_lower ? other_ : data_);
    }
    last_ = {};
    while (stage_ < adasum_stages(ranks_)) {
      const adasum_stage now = adasum_stage_of(stage_++, rank_, ranks_);
      if (now.partner < 0) continue;
      last_ = now;
      if (now.receives) post_recv(on, now.combines ? other_ : data_, add);
      if (now.sends) post_send(on, add);
      return true;
    }
    return false;
  }

 private:
  template <class Add>
  void post_recv(MPI_Comm on, std::byte* to, Add add) const {
    const mpi::layout whole(buffer_view<std::byte>(to, bytes_), mpi::large_count::fold);
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc =
        mpi::post::irecv(to, whole.count(), whole.type(), last_.partner, tag_, on, &request);
    add(rc, request);
  }
  template <class Add>
  void post_send(MPI_Comm on, Add add) const {
    const mpi::layout whole(buffer_view<const std::byte>(data_, bytes_), mpi::large_count::fold);
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc =
        mpi::post::isend(data_, whole.count(), whole.type(), last_.partner, tag_, on, &request);
    add(rc, request);
  }

  int rank_ = 0;
  int ranks_ = 1;
  int tag_ = 0;
  int stage_ = 0;      // the next
  adasum_stage last_;  // whose messages are under way
  std::byte* data_ = nullptr;
  std::byte* other_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace cohort::collectives
