// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Collectives with a count and a displacement per rank, 64-bit with every MPI.

#include <cohort/core/error.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/native.hpp>
#include <cohort/mpi/post.hpp>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::mpi {

/// Where the blocks of the ranks lie in a buffer: counts and displacements in elements. MPI reads
/// the arrays until the operation is complete, so keep the object, in one place, for as long.
///
/// Numbers that fit an int are given to the functions every MPI has. Larger ones go to the _c
/// functions, or, without these, are counted in units of a derived type of the largest block that
/// divides them all. If no unit makes them fit, the constructor throws errc::count_too_large.
class blocks {
 public:
  /// Blocks that follow each other without gaps.
  blocks(std::span<const std::size_t> counts, MPI_Datatype type);
  /// Blocks at stated places; as many displacements as counts, otherwise errc::size_mismatch.
  blocks(std::span<const std::size_t> counts, std::span<const std::size_t> displacements,
         MPI_Datatype type);

  [[nodiscard]] MPI_Datatype type() const noexcept { return type_; }
  /// Whether the numbers need the _c functions.
  [[nodiscard]] bool large() const noexcept { return !large_counts_.empty(); }
  [[nodiscard]] const int* counts() const noexcept { return counts_.data(); }
  [[nodiscard]] const int* displacements() const noexcept { return displacements_.data(); }
  /// The same numbers for the _c functions: filled if large(), or by widen().
  [[nodiscard]] const MPI_Count* large_counts() const noexcept { return large_counts_.data(); }
  [[nodiscard]] const MPI_Aint* large_displacements() const noexcept {
    return large_displacements_.data();
  }
  /// Makes large() true: both sides of an all-to-all go to the same function. Posting does it.
  void widen();
  /// Whether type() is a unit of several elements, which reductions cannot use.
  [[nodiscard]] bool folded() const noexcept { return static_cast<bool>(owned_); }

 private:
  void assign(std::span<const std::size_t> counts, std::span<const std::size_t> displacements);

  MPI_Datatype type_;
  datatype owned_;
  std::vector<int> counts_;
  std::vector<int> displacements_;
  std::vector<MPI_Count> large_counts_;
  std::vector<MPI_Aint> large_displacements_;
};

inline blocks::blocks(std::span<const std::size_t> counts, MPI_Datatype type) : type_(type) {
  std::vector<std::size_t> displacements(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), displacements.begin(), std::size_t{0});
  assign(counts, displacements);
}

inline blocks::blocks(std::span<const std::size_t> counts,
                      std::span<const std::size_t> displacements, MPI_Datatype type)
    : type_(type) {
  if (counts.size() != displacements.size()) {
    throw error(errc::size_mismatch, "blocks: counts=" + std::to_string(counts.size()) +
                                         ", displacements=" + std::to_string(displacements.size()));
  }
  assign(counts, displacements);
}

inline void blocks::assign(std::span<const std::size_t> counts,
                           std::span<const std::size_t> displacements) {
  std::size_t largest = 0;
  std::size_t unit = 0;
  for (const auto& list : {counts, displacements}) {
    for (const std::size_t number : list) {
      largest = std::max(largest, number);
      unit = std::gcd(unit, number);
    }
  }
  if (largest > INT_MAX && has_large_counts) {
    large_counts_.assign(counts.begin(), counts.end());
    large_displacements_.assign(displacements.begin(), displacements.end());
    return;
  }
  if (largest > INT_MAX) {
    if (largest / unit > INT_MAX) {
      throw error(errc::count_too_large, "blocks: largest=" + std::to_string(largest) +
                                             ", common unit=" + std::to_string(unit));
    }
    owned_ = contiguous_type(unit, type_);
    type_ = owned_.native();
  } else {
    unit = 1;
  }
  const auto scaled = [unit](std::size_t number) { return static_cast<int>(number / unit); };
  counts_.resize(counts.size());
  displacements_.resize(displacements.size());
  std::transform(counts.begin(), counts.end(), counts_.begin(), scaled);
  std::transform(displacements.begin(), displacements.end(), displacements_.begin(), scaled);
}

inline void blocks::widen() {
  if (!large()) {
    large_counts_.assign(counts_.begin(), counts_.end());
    large_displacements_.assign(displacements_.begin(), displacements_.end());
  }
}

namespace post {

namespace detail {
#if MPI_VERSION >= 4
inline constexpr auto large_igatherv = &MPI_Igatherv_c;
inline constexpr auto large_iscatterv = &MPI_Iscatterv_c;
inline constexpr auto large_iallgatherv = &MPI_Iallgatherv_c;
inline constexpr auto large_ialltoallv = &MPI_Ialltoallv_c;
inline constexpr auto large_ineighbor_allgatherv = &MPI_Ineighbor_allgatherv_c;
inline constexpr auto large_ineighbor_alltoallv = &MPI_Ineighbor_alltoallv_c;
inline constexpr auto large_ireduce_scatter = &MPI_Ireduce_scatter_c;
#else
inline constexpr missing large_ireduce_scatter;
inline constexpr missing large_igatherv, large_iscatterv, large_iallgatherv, large_ialltoallv,
    large_ineighbor_allgatherv, large_ineighbor_alltoallv;
#endif
}  // namespace detail

[[nodiscard]] inline int igatherv(const void* in, MPI_Count count, MPI_Datatype type, void* out,
                                  const blocks& parts, int root, MPI_Comm comm,
                                  MPI_Request* request) {
  if (!parts.large() && detail::fits(count)) {
    return MPI_Igatherv(in, detail::narrow(count), type, out, parts.counts(), parts.displacements(),
                        parts.type(), root, comm, request);
  }
  return detail::large_igatherv(in, count, type, out, parts.large_counts(),
                                parts.large_displacements(), parts.type(), root, comm, request);
}

[[nodiscard]] inline int iscatterv(const void* in, const blocks& parts, void* out, MPI_Count count,
                                   MPI_Datatype type, int root, MPI_Comm comm,
                                   MPI_Request* request) {
  if (!parts.large() && detail::fits(count)) {
    return MPI_Iscatterv(in, parts.counts(), parts.displacements(), parts.type(), out,
                         detail::narrow(count), type, root, comm, request);
  }
  return detail::large_iscatterv(in, parts.large_counts(), parts.large_displacements(),
                                 parts.type(), out, count, type, root, comm, request);
}

[[nodiscard]] inline int iallgatherv(const void* in, MPI_Count count, MPI_Datatype type, void* out,
                                     const blocks& parts, MPI_Comm comm, MPI_Request* request) {
  if (!parts.large() && detail::fits(count)) {
    return MPI_Iallgatherv(in, detail::narrow(count), type, out, parts.counts(),
                           parts.displacements(), parts.type(), comm, request);
  }
  return detail::large_iallgatherv(in, count, type, out, parts.large_counts(),
                                   parts.large_displacements(), parts.type(), comm, request);
}

[[nodiscard]] inline int ineighbor_allgatherv(const void* in, MPI_Count count, MPI_Datatype type,
                                              void* out, const blocks& parts, MPI_Comm comm,
                                              MPI_Request* request) {
  if (!parts.large() && detail::fits(count)) {
    return MPI_Ineighbor_allgatherv(in, detail::narrow(count), type, out, parts.counts(),
                                    parts.displacements(), parts.type(), comm, request);
  }
  return detail::large_ineighbor_allgatherv(in, count, type, out, parts.large_counts(),
                                            parts.large_displacements(), parts.type(), comm,
                                            request);
}

[[nodiscard]] inline int ialltoallv(const void* in, blocks& sent, void* out, blocks& received,
                                    MPI_Comm comm, MPI_Request* request) {
  if (!sent.large() && !received.large()) {
    return MPI_Ialltoallv(in, sent.counts(), sent.displacements(), sent.type(), out,
                          received.counts(), received.displacements(), received.type(), comm,
                          request);
  }
  sent.widen();
  received.widen();
  return detail::large_ialltoallv(in, sent.large_counts(), sent.large_displacements(), sent.type(),
                                  out, received.large_counts(), received.large_displacements(),
                                  received.type(), comm, request);
}

[[nodiscard]] inline int ineighbor_alltoallv(const void* in, blocks& sent, void* out,
                                             blocks& received, MPI_Comm comm,
                                             MPI_Request* request) {
  if (!sent.large() && !received.large()) {
    return MPI_Ineighbor_alltoallv(in, sent.counts(), sent.displacements(), sent.type(), out,
                                   received.counts(), received.displacements(), received.type(),
                                   comm, request);
  }
  sent.widen();
  received.widen();
  return detail::large_ineighbor_alltoallv(
      in, sent.large_counts(), sent.large_displacements(), sent.type(), out,
      received.large_counts(), received.large_displacements(), received.type(), comm, request);
}

/// Needs blocks that follow each other. Folded ones are MPI_ERR_COUNT: reductions cannot use them.
[[nodiscard]] inline int ireduce_scatter(const void* in, void* out, const blocks& parts, MPI_Op op,
                                         MPI_Comm comm, MPI_Request* request) {
  if (parts.folded()) {
    return MPI_ERR_COUNT;
  }
  if (!parts.large()) {
    return MPI_Ireduce_scatter(in, out, parts.counts(), parts.type(), op, comm, request);
  }
  return detail::large_ireduce_scatter(in, out, parts.large_counts(), parts.type(), op, comm,
                                       request);
}

}  // namespace post
}  // namespace cohort::mpi
