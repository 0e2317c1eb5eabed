// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Where tensors lie that travel together, in which calls they go, and which elements of a
/// result are whose: one set of pure functions for MPI, shared memory and NCCL. All ranks come to
/// the same, for they know the same sizes and options.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace cohort {

/// Of `count` elements, those of a rank. The parts differ by one element at most, and the first
/// ranks have the larger ones.
struct rank_part {
  std::size_t begin;
  std::size_t count;
};
[[nodiscard]] constexpr rank_part part_of_rank(std::size_t count, int rank, int ranks) noexcept {
  const auto n = static_cast<std::size_t>(ranks);
  const auto which = static_cast<std::size_t>(rank);
  return {count / n * which + std::min(which, count % n),
          count / n + (which < count % n ? 1U : 0U)};
}
/// How many those are.
[[nodiscard]] constexpr std::size_t part_of(std::size_t count, int rank, int ranks) noexcept {
  return part_of_rank(count, rank, ranks).count;
}

namespace packs {

/// What caches and NCCL like, and a multiple of the size of every element that has a name.
inline constexpr std::size_t line = 64;

/// The next multiple of `unit`.
[[nodiscard]] constexpr std::size_t aligned(std::size_t offset, std::size_t unit = line) noexcept {
  return (offset / unit + (offset % unit != 0 ? 1 : 0)) * unit;
}

/// How tensors lie in a pack.
enum class spacing : std::uint8_t {
  tight,  ///< at multiples of their size, up to a line: small ones do not grow
  wide    ///< each begins a line
};

/// Where a tensor begins whose neighbour in the pack ends at `end`.
[[nodiscard]] constexpr std::size_t begin_behind(std::size_t end, std::size_t bytes,
                                                 spacing how) noexcept {
  std::size_t unit = line;
  if (how == spacing::tight) unit = std::bit_ceil(std::clamp<std::size_t>(bytes, 1, line));
  return (end + unit - 1) & ~(unit - 1);  // no division: this is asked for every tensor
}

/// A tensor, as a layout sees it.
struct item {
  std::size_t bytes = 0;
  bool small = true;      ///< it is copied, to travel with others
  bool joins = true;      ///< small: it may travel with the one before it
  std::size_t piece = 0;  ///< large: bytes that travel at a time; 0: all of it at once
};

/// What goes in one call: small tensors that follow each other, or a large one, or a piece of it.
struct call {
  std::uint32_t first = 0;    ///< tensor
  std::uint32_t tensors = 1;  ///< how many
  std::size_t offset = 0;     ///< of a piece: where in its tensor
  std::size_t bytes = 0;      ///< of the piece, or to the end of the last tensor
  bool small = true;
};

/// visit(begin, length) for each part of `all` in turn: `most` each, and the rest.
template <class Visit>
constexpr void cut(std::size_t all, std::size_t most, Visit visit) {
  for (std::size_t begin = 0; begin < all; begin += most) visit(begin, std::min(most, all - begin));
}

/// visit(call) for each call in which `tensors` of them go, in their order. `item_of(i)` is asked
/// once for each; `most` are the bytes of a pack, which a single tensor may exceed.
template <class ItemOf, class Visit>
constexpr void lay_out(std::size_t tensors, spacing how, std::size_t most, ItemOf item_of,
                       Visit visit) {
  call run;
  run.tensors = 0;
  const auto close = [&] {
    if (run.tensors != 0) visit(static_cast<const call&>(run));
    run.tensors = 0;
  };
  for (std::uint32_t i = 0; i < tensors; ++i) {
    const item each = item_of(i);
    if (each.small) {
      const std::size_t end = begin_behind(run.bytes, each.bytes, how) + each.bytes;
      if (run.tensors != 0 && each.joins && end <= most) {
        ++run.tensors;
        run.bytes = end;
        continue;
      }
      close();
      run = {i, 1, 0, each.bytes, true};
      continue;
    }
    close();
    if (each.piece == 0) {
      visit(call{i, 1, 0, each.bytes, false});
    } else {
      cut(each.bytes, each.piece,
          [&](std::size_t begin, std::size_t length) { visit(call{i, 1, begin, length, false}); });
    }
  }
  close();
}

/// visit(tensor, where it begins in the pack) for each of a call of small ones. `bytes_of(i)` are
/// those of a tensor.
template <class BytesOf, class Visit>
constexpr void for_each_place(std::size_t first, std::size_t tensors, spacing how, BytesOf bytes_of,
                              Visit visit) {
  std::size_t end = 0;
  for (std::size_t i = first; i < first + tensors; ++i) {
    const std::size_t bytes = bytes_of(i);
    const std::size_t begin = begin_behind(end, bytes, how);
    visit(i, begin);
    end = begin + bytes;
  }
}

}  // namespace packs
}  // namespace cohort
