// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The kinds of operations and the numbers of reductions: one list for verbs, for backends of
/// communicators, for what coordinators agree upon and for the calls of devices.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace cohort {

/// What an operation does. The values travel in the messages of coordinators.
enum class op_kind : std::uint8_t {
  all_reduce,  ///< detail of a persistent group: 1 is a capture, n + 1 replays that of start n
  all_gather,
  broadcast,
  all_to_all,
  reduce_scatter,
  reduce,
  gather,
  scatter,
  barrier,
  // Of coordinators: no backend of a communicator gets one of these.
  group_create,  ///< of a persistent group (protocol H1)
  group_remove,  ///< its removal; the detail is the number of starts (protocol H5)
  message,       ///< of a pair of ranks, its listed members: the root sends it to rank `detail`
  set_add,       ///< of a process set of the operation's members, in the same log (protocol D1)
  arena_add,     ///< of memory of the devices' backend, on every rank
  // What one rank does in the queue of a device; no ranks agree on these.
  send,
  recv
};
/// Those that ranks agree on.
inline constexpr std::uint8_t op_kind_count = 14;

namespace detail {
inline constexpr std::string_view op_kind_names[] = {"all_reduce",
                                                     "all_gather",
                                                     "broadcast",
                                                     "all_to_all",
                                                     "reduce_scatter",
                                                     "reduce",
                                                     "gather",
                                                     "scatter",
                                                     "barrier",
                                                     "persistent_group",
                                                     "remove of a persistent_group",
                                                     "message",
                                                     "add_process_set",
                                                     "make_fusion_arena",
                                                     "send",
                                                     "recv"};
inline constexpr std::string_view reduction_names[] = {
    "none",   "sum",         "average",    "product",     "min",
    "max",    "logical_and", "logical_or", "logical_xor", "bit_and",
    "bit_or", "bit_xor",     "min_loc",    "max_loc",     "adasum"};
}  // namespace detail

/// "all_reduce": a literal.
[[nodiscard]] constexpr std::string_view name_of(op_kind kind) noexcept {
  const auto number = static_cast<std::size_t>(kind);
  return number < std::size(detail::op_kind_names) ? detail::op_kind_names[number] : "?";
}

/// Whether contributions are combined.
[[nodiscard]] constexpr bool is_reduction(op_kind kind) noexcept {
  return kind == op_kind::all_reduce || kind == op_kind::reduce || kind == op_kind::reduce_scatter;
}
/// Whether one rank gives, or gets, what the others do not.
[[nodiscard]] constexpr bool is_rooted(op_kind kind) noexcept {
  return kind == op_kind::broadcast || kind == op_kind::reduce || kind == op_kind::gather ||
         kind == op_kind::scatter;
}
/// Whether a rank's input is one block for each rank.
[[nodiscard]] constexpr bool is_divided(op_kind kind) noexcept {
  return kind == op_kind::scatter || kind == op_kind::reduce_scatter || kind == op_kind::all_to_all;
}
/// Whether a rank's result has one block of each rank.
[[nodiscard]] constexpr bool is_assembled(op_kind kind) noexcept {
  return kind == op_kind::gather || kind == op_kind::all_gather || kind == op_kind::all_to_all;
}
/// Whether several small ones may run as one, in a pack.
[[nodiscard]] constexpr bool is_fusible(op_kind kind) noexcept {
  return kind == op_kind::all_reduce || kind == op_kind::broadcast;
}
/// Whether sizes may differ per rank, so that the ranks of a coordinator tell them (protocol Z1).
[[nodiscard]] constexpr bool is_sized(op_kind kind) noexcept {
  return kind == op_kind::all_gather || kind == op_kind::all_to_all;
}
[[nodiscard]] constexpr bool is_persistent(op_kind kind) noexcept {
  return kind == op_kind::group_create || kind == op_kind::group_remove;
}
/// Whether a rank's data goes to others. The root of a message is its sender.
[[nodiscard]] constexpr bool brings_data(op_kind kind, bool is_root) noexcept {
  return is_root ||
         (kind != op_kind::broadcast && kind != op_kind::scatter && kind != op_kind::message);
}
/// Whether a rank gets a result; the root of a broadcast has it.
[[nodiscard]] constexpr bool gets_result(op_kind kind, bool is_root) noexcept {
  if (kind == op_kind::message) return !is_root;
  return is_root || (kind != op_kind::reduce && kind != op_kind::gather);
}

/// The numbers of the reductions that every rank knows. Those of the user begin at `first_own`:
/// digests of their types. The values travel in the messages of coordinators.
enum class reduction_code : std::uint32_t {
  no_reduction,
  sum,
  average,
  product,
  min,
  max,  ///< the last that devices have
  logical_and,
  logical_or,
  logical_xor,
  bit_and,
  bit_or,
  bit_xor,
  min_loc,
  max_loc,
  adasum,  ///< of whole vectors, where all others go element by element
  first_own = 256,
};

/// "sum".
[[nodiscard]] inline std::string name_of(reduction_code code) {
  const auto number = static_cast<std::size_t>(code);
  if (number < std::size(detail::reduction_names)) {
    return std::string(detail::reduction_names[number]);
  }
  return "user operation #" + std::to_string(number);
}

/// Whether contributions are summed up: an average is divided afterwards.
[[nodiscard]] constexpr bool is_sum(reduction_code code) noexcept {
  return code == reduction_code::sum || code == reduction_code::average;
}
/// Whether there are elements that change nothing, for a rank that has joined.
[[nodiscard]] constexpr bool has_neutral_element(reduction_code code) noexcept {
  return code < reduction_code::min_loc || code == reduction_code::adasum;
}
/// Devices have no bitwise and logical reductions, no Adasum, and none of the user's.
[[nodiscard]] constexpr bool devices_have(reduction_code code) noexcept {
  return code <= reduction_code::max;
}

}  // namespace cohort
