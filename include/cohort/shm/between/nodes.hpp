// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Which ranks are on which node, and what the nodes tell each other about one vector.

#include <cohort/core/config.hpp>
#include <cohort/core/kinds.hpp>
#include <cohort/core/pack_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::shm::detail {

/// The ranks of a communicator by their nodes. Nodes are numbered by their lowest ranks, the ranks
/// of a node from 0 in their order.
class node_map {
 public:
  /// All on one.
  node_map(int rank, int ranks);
  /// `on[r]` is equal for ranks of one node.
  node_map(int rank, std::span<const std::uint64_t> on);

  [[nodiscard]] std::size_t nodes() const noexcept { return members_.size(); }
  [[nodiscard]] std::size_t ranks() const noexcept { return node_.size(); }
  /// Of this rank.
  [[nodiscard]] std::size_t node() const noexcept { return node_[rank_]; }
  [[nodiscard]] std::size_t place() const noexcept { return place_[rank_]; }
  [[nodiscard]] std::size_t size_here() const noexcept { return members_[node()].size(); }

  [[nodiscard]] std::size_t node_of(std::size_t rank) const noexcept { return node_[rank]; }
  [[nodiscard]] std::size_t place_of(std::size_t rank) const noexcept { return place_[rank]; }
  [[nodiscard]] const std::vector<int>& members(std::size_t node) const noexcept {
    return members_[node];
  }
  [[nodiscard]] int rank_here(std::size_t place) const noexcept { return members_[node()][place]; }
  /// Places that every node has: each carries a share of a vector between the nodes.
  [[nodiscard]] std::size_t rails() const noexcept { return rails_; }

  /// Where each rank has a block of its own, they are carried in an order of their own: by rails,
  /// of a rail by nodes, of a node by places. So what a rail has for a node lies together.
  [[nodiscard]] std::size_t rail_of(std::size_t rank) const noexcept {
    return place_[rank] % rails_;
  }
  [[nodiscard]] std::size_t rank_at(std::size_t slot) const noexcept { return order_[slot]; }
  [[nodiscard]] std::size_t slot_of(std::size_t rank) const noexcept { return slot_[rank]; }
  /// The first slot of a node on a rail; that of node `nodes()` is where the rail ends.
  [[nodiscard]] std::size_t first_slot(std::size_t rail, std::size_t node) const noexcept {
    return first_slot_[rail * nodes() + node];
  }
  [[nodiscard]] std::size_t slots(std::size_t rail, std::size_t node) const noexcept {
    return first_slot(rail, node + 1) - first_slot(rail, node);
  }
  /// Where in a rail's buffer is what `source` has for `target`, counted in blocks; that rail's
  /// place is `rail_of(target)`, and this node is that of one of them. What goes out comes first,
  /// in slots of the targets; then what has come in, by nodes.
  [[nodiscard]] std::size_t pair_at(std::size_t source, std::size_t target) const noexcept;
  /// The most blocks that a buffer must have room for, on any node: equal on all ranks.
  [[nodiscard]] std::size_t room(op_kind kind) const noexcept;

 private:
  std::size_t rank_;
  std::vector<std::size_t> node_;
  std::vector<std::size_t> place_;
  std::vector<std::vector<int>> members_;
  std::size_t rails_ = 1;
  std::vector<std::size_t> slot_;
  std::vector<std::size_t> order_;
  std::vector<std::size_t> first_slot_;
  std::vector<std::size_t> others_before_;  // ranks of other nodes than this on nodes before one
};

/// One thing that a node does with a share: it sends a part of it to a node, and receives one from
/// a node, at the same time. Offsets are bytes.
struct node_step {
  enum class use : std::uint8_t {
    take,          ///< what comes is the result
    mine_first,    ///< it is combined with what is there, which is the left operand
    theirs_first,  ///< the right one
  };
  static constexpr std::size_t nobody = SIZE_MAX;

  std::size_t to = nobody;
  std::size_t out = 0;
  std::size_t out_bytes = 0;
  std::size_t from = nobody;
  std::size_t in = 0;
  std::size_t in_bytes = 0;
  use what = use::take;
  /// Nothing has come yet for what it sends, or combines: that is still what this node began with.
  bool sends_own = false;
  bool combines_own = false;

  friend bool operator==(const node_step&, const node_step&) = default;
};

/// Appends what this node does so that all have the sum of a piece of `bytes`, of elements of
/// `size` bytes; `whole` are those of the share that it is a piece of. Every element is summed on
/// one node only, or in the same way on all: all nodes have the same bits, in every run.
void plan_sum(std::vector<node_step>& steps, const node_map& map, std::size_t whole,
              std::size_t bytes, std::size_t size);
/// The same so that one of two nodes has it.
void plan_sum_for_one(std::vector<node_step>& steps, const node_map& map, std::size_t which,
                      std::size_t bytes);
/// The same so that all have what `root` has.
void plan_broadcast(std::vector<node_step>& steps, const node_map& map, std::size_t root,
                    std::size_t whole, std::size_t bytes);
/// Says of the steps of a sum what is still this node's own.
void mark_own(std::vector<node_step>& steps) noexcept;

/// For kinds where each rank has a block of `block` bytes, what this rank does as the rail of its
/// place with the blocks in its buffer, of which the first is that of the rail's first slot.
/// reduce_scatter: this node gets the sums of its blocks; all_gather: it gets all; either in a
/// ring, nodes - 1 waits. all_to_all: it swaps with each node in turn, as many waits.
void plan_blocks(std::vector<node_step>& steps, const node_map& map, op_kind kind,
                 std::size_t block);

/// Up to here, and between two nodes, each node sends all that it has, log2(nodes) times, and waits
/// as often. Above, up to `halved_up_to`, each combines a part, and waits twice as often.
/// Above, parts go round in a ring, 2 (nodes - 1) waits, but each node only talks to its
/// neighbours.
inline constexpr std::size_t doubled_up_to = 16 * 1024;
inline constexpr std::size_t halved_up_to = 128 * 1024;
/// Between two nodes halving sends no less, but each sums half of it: which counts where one rank
/// does that alone.
inline constexpr std::size_t doubled_alone_up_to = 256 * 1024;
[[nodiscard]] inline bool is_halved_between_two(const node_map& map, std::size_t whole) noexcept {
  return map.nodes() == 2 && map.rails() == 1 && whole > doubled_alone_up_to;
}
/// Up to here a broadcast goes from node to node in a tree, above in a chain.
inline constexpr std::size_t tree_up_to = 32 * 1024;

}  // namespace cohort::shm::detail

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/shm/between/nodes.ipp>
#endif
