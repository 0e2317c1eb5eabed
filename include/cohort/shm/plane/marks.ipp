// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Whether all ranks have begun the same call; part of the bodies of shm/plane/sequence.hpp.

#include <cohort/shm/plane/sequence.hpp>

#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <string_view>

namespace cohort::shm::detail {

/// That of the reduction, in four bits; of one of the program's own the highest.
inline std::uint8_t number_of(MPI_Op operation) noexcept {
  // In the order of `reduction_code`. An average is a sum here.
  static const std::array<MPI_Op, 14> all{MPI_OP_NULL, MPI_SUM,  MPI_OP_NULL, MPI_PROD,  MPI_MIN,
                                          MPI_MAX,     MPI_LAND, MPI_LOR,     MPI_LXOR,  MPI_BAND,
                                          MPI_BOR,     MPI_BXOR, MPI_MINLOC,  MPI_MAXLOC};
  const auto found = std::find(all.begin(), all.end(), operation);
  return found == all.end() ? 15 : static_cast<std::uint8_t>(found - all.begin());
}
inline std::string operation_name(std::uint8_t number) {
  return number == 15 ? "one of the program's" : name_of(static_cast<reduction_code>(number));
}

COHORT_INLINE call_mark::call_mark(const comm::collective_call& call, std::size_t size) noexcept {
  const std::uint8_t operation = number_of(call.op);
  const std::uint64_t whole = call.count * size;
  bytes = static_cast<std::uint32_t>(whole ^ whole >> 32U);
  root = static_cast<std::uint16_t>(call.root);
  what = static_cast<std::uint8_t>(static_cast<std::size_t>(call.kind) << 4U | operation);
  if (is_reduction(call.kind)) element = static_cast<std::uint8_t>(size ^ size >> 8U);
}

COHORT_INLINE std::string call_mark::difference(const call_mark& other, std::size_t rank) const {
  const auto text = [&](std::string_view field, auto here, auto there) {
    std::ostringstream out;
    out << field << '=' << here << " here, " << there << " on rank " << rank;
    return out.str();
  };
  const auto kind = [](const call_mark& of) {
    return name_of(static_cast<op_kind>(of.what >> 4U));
  };
  if (kind(*this) != kind(other)) return text("verb", kind(*this), kind(other));
  if (what != other.what) {
    return text("operation", operation_name(what & 15U), operation_name(other.what & 15U));
  }
  if (bytes != other.bytes) return text("bytes", bytes, other.bytes);
  if (root != other.root) return text("root", root, other.root);
  return text("element.bytes", unsigned{element}, unsigned{other.element});
}

COHORT_INLINE bool sequence::all_agree(const chunk_of& one) {
  if (one.begin != 0) return true;
  const pending_call& call = call_of(one);
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    const call_mark& theirs = line_of(rank, summed_).call;
    if (theirs == call.mark) continue;
    differs_on_ = static_cast<int>(rank);
    differs_ = theirs;
    return false;
  }
  return true;
}

COHORT_INLINE std::string sequence::mismatch() const {
  const pending_call& call = calls_[first_];
  return std::string(name_of(call.what.kind)) + ": " +
         call.mark.difference(differs_, rank_of(static_cast<std::size_t>(differs_on_)));
}

}  // namespace cohort::shm::detail
