// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The recordings of all ranks as one graph: its nodes in an order that depends on nothing but the
/// graph, and which depends on which.

#include <cohort/graph/recording.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace cohort::graph::detail {

/// A task or source of one of the recordings.
class executed_node {
 public:
  executed_node(const recording& from, std::size_t at)
      : from_(&from), at_(at), key_(from[at].key), window_(from[at].window) {}

  [[nodiscard]] recorded_task task() const noexcept { return (*from_)[at_]; }
  [[nodiscard]] int rank() const noexcept { return from_->rank(); }
  [[nodiscard]] const machine::key& key() const noexcept { return key_; }
  [[nodiscard]] std::uint32_t window() const noexcept { return window_; }
  /// Of two in the recordings of one span.
  [[nodiscard]] bool is_before(const executed_node& other) const noexcept {
    return from_ != other.from_ ? from_ < other.from_ : at_ < other.at_;
  }

  std::size_t depth = 0;  ///< tasks on the longest way to it from the beginning of its window

 private:
  const recording* from_;
  std::size_t at_;
  machine::key key_;
  std::uint32_t window_;
};

struct executed_counts {
  std::uint64_t tasks = 0;
  std::uint64_t sources = 0;
  std::uint64_t failed = 0;  ///< of the tasks
  std::uint64_t windows = 0;
  std::uint64_t left_out = 0;       ///< not recorded
  std::uint64_t uses_left_out = 0;  ///< dependencies not recorded
  std::uint64_t unknown = 0;        ///< dependencies on what is not recorded
  std::uint64_t repeated = 0;       ///< recorded a second time in a window, and not a node
};

/// Nodes are ordered by window, depth, name and key, so that each stands behind all on which it
/// depends. Needs the recordings as long as it lives.
template <class Any>
class executed_graph {
 public:
  static constexpr std::size_t unknown = std::numeric_limits<std::size_t>::max();

  explicit executed_graph(std::span<const recording> ranks) {
    collect(ranks);
    const std::vector<std::size_t> found = resolve();
    find_depths(found);
    put_in_order(found);
  }

  [[nodiscard]] std::span<const executed_node> nodes() const noexcept { return nodes_; }
  /// The node that is the dependency `use` of the node `at`, or `unknown`.
  [[nodiscard]] std::size_t dependency(std::size_t at, std::size_t use) const noexcept {
    return dependencies_[first_[at] + use];
  }
  /// Ranks that have a recording, in order.
  [[nodiscard]] std::span<const int> ranks() const noexcept { return ranks_; }
  [[nodiscard]] const executed_counts& counts() const noexcept { return counts_; }

 private:
  static auto identity(const executed_node& one) noexcept {
    return std::tuple(one.window(), one.key());
  }

  void collect(std::span<const recording> ranks) {
    for (const recording& one : ranks) {
      if (one.active()) ranks_.push_back(one.rank());
      counts_.left_out += one.left_out();
      counts_.uses_left_out += one.uses_left_out();
      for (std::size_t at = 0; at < one.size(); ++at) nodes_.emplace_back(one, at);
    }
    std::sort(ranks_.begin(), ranks_.end());
    const auto same = [](const auto& a, const auto& b) { return identity(a) == identity(b); };
    std::sort(nodes_.begin(), nodes_.end(), [&](const auto& a, const auto& b) {
      return same(a, b) ? a.is_before(b) : identity(a) < identity(b);
    });
    const auto end = std::unique(nodes_.begin(), nodes_.end(), same);
    counts_.repeated = static_cast<std::uint64_t>(nodes_.end() - end);
    nodes_.erase(end, nodes_.end());
    for (std::size_t at = 0; at < nodes_.size(); ++at) {
      const recorded_kind kind = nodes_[at].task().kind;
      ++(kind == recorded_kind::source ? counts_.sources : counts_.tasks);
      if (kind == recorded_kind::failed) ++counts_.failed;
      if (at == 0 || nodes_[at].window() != nodes_[at - 1].window()) ++counts_.windows;
    }
  }

  /// While nodes are in the order of their identities: where the dependencies of each are, one node
  /// after another.
  [[nodiscard]] std::vector<std::size_t> resolve() {
    std::vector<std::size_t> found;
    for (const executed_node& one : nodes_) {
      first_.push_back(found.size());
      for (const recorded_use& use : one.task().uses) {
        const auto wanted = std::tuple(one.window(), use.task);
        const auto at = std::lower_bound(
            nodes_.begin(), nodes_.end(), wanted,
            [](const executed_node& node, const auto& value) { return identity(node) < value; });
        const bool there = at != nodes_.end() && identity(*at) == wanted;
        found.push_back(there ? static_cast<std::size_t>(at - nodes_.begin()) : unknown);
        if (!there) ++counts_.unknown;
      }
    }
    first_.push_back(found.size());
    return found;
  }

  /// By a walk without recursion, since chains are long. Recordings that were damaged may have
  /// cycles: an edge that closes one is ignored.
  void find_depths(const std::vector<std::size_t>& found) {
    enum class state : std::uint8_t { untouched, open, known };
    std::vector<state> states(nodes_.size(), state::untouched);
    std::vector<std::pair<std::size_t, std::size_t>> open;  // node, its next dependency
    for (std::size_t root = 0; root < nodes_.size(); ++root) {
      if (states[root] != state::untouched) continue;
      open.emplace_back(root, first_[root]);
      states[root] = state::open;
      while (!open.empty()) {
        auto& [at, next] = open.back();
        if (next == first_[at + 1]) {
          states[at] = state::known;
          open.pop_back();
          continue;
        }
        const std::size_t before = found[next];
        if (before != unknown && states[before] == state::untouched) {
          states[before] = state::open;
          open.emplace_back(before, first_[before]);  // comes back to the same dependency
          continue;
        }
        ++next;
        if (before != unknown && states[before] == state::known) {
          nodes_[at].depth = std::max(nodes_[at].depth, nodes_[before].depth + 1);
        }
      }
    }
  }

  void put_in_order(const std::vector<std::size_t>& found) {
    std::vector<std::size_t> order(nodes_.size());
    for (std::size_t at = 0; at < order.size(); ++at) order[at] = at;
    std::sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      const auto place = [this](std::size_t at) {
        const executed_node& one = nodes_[at];
        return std::tuple(one.window(), one.depth, one.task().name, one.key());
      };
      return place(a) < place(b);
    });
    std::vector<std::size_t> place(nodes_.size());
    for (std::size_t at = 0; at < order.size(); ++at) place[order[at]] = at;
    std::vector<executed_node> nodes;
    std::vector<std::size_t> first;
    nodes.reserve(nodes_.size());
    for (const std::size_t old : order) {
      first.push_back(dependencies_.size());
      for (std::size_t i = first_[old]; i < first_[old + 1]; ++i) {
        dependencies_.push_back(found[i] == unknown ? unknown : place[found[i]]);
      }
      nodes.push_back(nodes_[old]);
    }
    first.push_back(dependencies_.size());
    nodes_ = std::move(nodes);
    first_ = std::move(first);
  }

  std::vector<executed_node> nodes_;
  std::vector<std::size_t> first_;  // for each node, and one more: where its dependencies begin
  std::vector<std::size_t> dependencies_;  // of all nodes
  std::vector<int> ranks_;
  executed_counts counts_;
};

}  // namespace cohort::graph::detail
