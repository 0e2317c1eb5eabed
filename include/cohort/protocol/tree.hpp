// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The tree along which facts travel up and decisions travel down, as one rank sees it.

#include <cohort/core/error.hpp>
#include <cohort/core/ranks.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::protocol {

/// Where the members of a process set are, seen from one rank of the tree. A *source* is a child or
/// the rank itself; it is named by its number, and a set of sources is a mask of bits.
struct set_in_tree {
  rank_set members;
  std::uint64_t sources = 0;   ///< those with members in their subtree
  std::vector<rank_set> from;  ///< per source: its members
  std::size_t size = 0;        ///< members
  std::size_t below = 0;       ///< members in the subtree of this rank
  bool contains_me = false;
};

/// One rank's view of the tree: its parent, its children, which ranks are below which, and the
/// process sets of the negotiation. The tree is the same for all its sets; rank 0 is its root. It
/// does not change.
template <class Any = void>
class basic_tree {
 public:
  static constexpr int max_children = 63;  ///< a source is a bit of 64, one is the rank itself

  /// Ranks in blocks: a subtree is a range of ranks, so sets of ranks stay short.
  [[nodiscard]] static basic_tree balanced(int rank, int ranks, int radix);
  /// The same among the first ranks of each node (equal numbers in `node_of`), and again on each
  /// node, so that a message between nodes is sent once per node.
  [[nodiscard]] static basic_tree node_aware(int rank, std::span<const int> node_of, int radix);
  /// Any tree: the parent of each rank, -1 for rank 0, and always a lower rank.
  [[nodiscard]] static basic_tree from_parents(int rank, std::span<const int> parents);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] int parent() const noexcept { return parent_; }
  [[nodiscard]] bool is_root() const noexcept { return parent_ < 0; }
  [[nodiscard]] const std::vector<int>& children() const noexcept { return children_; }
  [[nodiscard]] int child_count() const noexcept { return static_cast<int>(children_.size()); }
  /// The source that stands for this rank itself: the one after the children.
  [[nodiscard]] int self() const noexcept { return child_count(); }
  /// The number of a child, or -1.
  [[nodiscard]] int source_of(int rank) const noexcept;
  [[nodiscard]] bool is_leaf_child(int child) const noexcept {
    return subtrees_[static_cast<std::size_t>(child)].size() == 1;
  }
  /// The ranks below a child, itself included.
  [[nodiscard]] const rank_set& subtree(int child) const noexcept {
    return subtrees_[static_cast<std::size_t>(child)];
  }

  /// What this rank needs to know of a process set.
  [[nodiscard]] set_in_tree set_of(rank_set members) const;

 private:
  basic_tree(int rank, int ranks, int parent) : rank_(rank), ranks_(ranks), parent_(parent) {}
  void add_child(int rank, rank_set subtree);

  int rank_;
  int ranks_;
  int parent_;
  std::vector<int> children_;
  std::vector<rank_set> subtrees_;
};
using tree = basic_tree<>;

// ---- implementation --------------------------------------------------------------------------

template <class Any>
void basic_tree<Any>::add_child(int rank, rank_set subtree) {
  if (child_count() == max_children) {
    throw error(errc::invalid_argument, "tree: rank " + std::to_string(rank_) + " has more than " +
                                            std::to_string(max_children) + " children");
  }
  children_.push_back(rank);
  subtrees_.push_back(std::move(subtree));
}

// A block of ranks: its first is the head, the others are shared out among at most `radix` blocks.
template <class Any>
basic_tree<Any> basic_tree<Any>::balanced(int rank, int ranks, int radix) {
  if (rank < 0 || rank >= ranks || radix < 1) {
    throw error(errc::invalid_argument, "tree: rank=" + std::to_string(rank) +
                                            ", ranks=" + std::to_string(ranks) +
                                            ", radix=" + std::to_string(radix));
  }
  int first = 0;
  int last = ranks;  // exclusive
  int parent = -1;
  for (;;) {
    const int rest = last - first - 1;
    const int blocks = std::min(radix, rest);
    const auto start = [&](int block) {
      return first + 1 +
             static_cast<int>(static_cast<std::int64_t>(rest) * block / std::max(blocks, 1));
    };
    if (rank == first) {
      tree result(rank, ranks, parent);
      for (int block = 0; block < blocks; ++block) {
        result.add_child(start(block), rank_set::span(start(block), start(block + 1) - 1));
      }
      return result;
    }
    parent = first;
    int block = 0;
    while (start(block + 1) <= rank) ++block;
    const int next = start(block);
    last = start(block + 1);
    first = next;
  }
}

template <class Any>
basic_tree<Any> basic_tree<Any>::from_parents(int rank, std::span<const int> parents) {
  const int ranks = static_cast<int>(parents.size());
  if (rank < 0 || rank >= ranks) throw error(errc::bad_rank, "tree: rank=" + std::to_string(rank));
  for (int i = 0; i < ranks; ++i) {
    const int parent = parents[static_cast<std::size_t>(i)];
    if (i == 0 ? parent != -1 : parent < 0 || parent >= i) {
      throw error(errc::invalid_argument, "tree: the parent of rank " + std::to_string(i) + " is " +
                                              std::to_string(parent));
    }
  }
  // Which child of `rank` a rank is below: that of its parent, which is a lower rank.
  std::vector<int> below(parents.size(), -1);
  std::vector<int> heads;
  std::vector<rank_set> sets;
  for (int i = rank + 1; i < ranks; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (parents[at] == rank) {
      below[at] = static_cast<int>(heads.size());
      heads.push_back(i);
      sets.emplace_back();
    } else if (parents[at] > rank) {
      below[at] = below[static_cast<std::size_t>(parents[at])];
    }
    if (below[at] >= 0) sets[static_cast<std::size_t>(below[at])].insert(i);
  }
  tree result(rank, ranks, parents[static_cast<std::size_t>(rank)]);
  for (std::size_t i = 0; i < heads.size(); ++i) result.add_child(heads[i], std::move(sets[i]));
  return result;
}

template <class Any>
basic_tree<Any> basic_tree<Any>::node_aware(int rank, std::span<const int> node_of, int radix) {
  const int ranks = static_cast<int>(node_of.size());
  std::vector<std::vector<int>> nodes;  // in order of their first rank
  std::map<int, std::size_t> index;
  for (int i = 0; i < ranks; ++i) {
    const auto [at, is_new] = index.emplace(node_of[static_cast<std::size_t>(i)], nodes.size());
    if (is_new) nodes.emplace_back();
    nodes[at->second].push_back(i);
  }
  std::vector<int> parents(node_of.size(), -1);
  const auto connect = [&](const std::vector<int>& list) {
    for (int i = 1; i < static_cast<int>(list.size()); ++i) {
      const int parent = balanced(i, static_cast<int>(list.size()), radix).parent();
      parents[static_cast<std::size_t>(list[static_cast<std::size_t>(i)])] =
          list[static_cast<std::size_t>(parent)];
    }
  };
  std::vector<int> leaders;
  for (const auto& list : nodes) {
    leaders.push_back(list.front());
    connect(list);
  }
  connect(leaders);
  return from_parents(rank, parents);
}

template <class Any>
int basic_tree<Any>::source_of(int rank) const noexcept {
  for (int child = 0; child < child_count(); ++child) {
    if (children_[static_cast<std::size_t>(child)] == rank) return child;
  }
  return -1;
}

template <class Any>
set_in_tree basic_tree<Any>::set_of(rank_set members) const {
  set_in_tree set;
  set.members = std::move(members);
  set.size = set.members.size();
  set.contains_me = set.members.contains(rank_);
  for (const rank_set& subtree : subtrees_) set.from.push_back(subtree.common_with(set.members));
  set.from.push_back(set.contains_me ? rank_set{rank_} : rank_set{});
  for (std::size_t source = 0; source < set.from.size(); ++source) {
    if (!set.from[source].empty()) set.sources |= std::uint64_t{1} << source;
    set.below += set.from[source].size();
  }
  return set;
}

}  // namespace cohort::protocol
