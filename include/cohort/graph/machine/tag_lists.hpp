// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Tags of large values that this rank receives: free ones, and who waits for one (graph L2).

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

/// Shared by all scopes of a rank. `Node` is only pointed to.
template <class Node>
class tag_lists {
 public:
  struct request {
    Node* node = nullptr;
    std::uint32_t value = 0;
    std::size_t size = 0;
  };

  tag_lists(int ranks, int tags) : count_(tags), senders_(static_cast<std::size_t>(ranks)) {
    for (sender& one : senders_) {
      for (int tag = tags; tag-- > 0;) one.free.push_back(tag);
    }
  }
  [[nodiscard]] bool is_tag(std::uint32_t tag) const noexcept {
    return tag < static_cast<std::uint32_t>(count_);
  }
  void ask(int from, const request& what) { at(from).waiting.push_back(what); }
  /// A request that gets a tag now, and the tag.
  [[nodiscard]] std::optional<std::pair<request, int>> next(int from) {
    sender& one = at(from);
    if (one.waiting.empty() || one.free.empty()) return std::nullopt;
    const request what = one.waiting.front();
    one.waiting.pop_front();
    const int tag = one.free.back();
    one.free.pop_back();
    one.used[tag] = what;
    return std::pair(what, tag);
  }
  /// The transfer is complete. Nothing if none was posted with that tag.
  [[nodiscard]] std::optional<request> complete(int from, int tag) {
    sender& one = at(from);
    const auto found = one.used.find(tag);
    if (found == one.used.end()) return std::nullopt;
    const request what = found->second;
    one.used.erase(found);
    one.free.push_back(tag);
    return what;
  }
  /// The scope is cancelled, or its node goes: it gets no tag any more. [graph C3]
  void forget_waiting(const Node* whose) {
    for (sender& one : senders_) {
      std::erase_if(one.waiting, [&](const request& each) { return each.node == whose; });
    }
  }
  /// What is under way belongs to nobody.
  void forget_node(const Node* whose) {
    forget_waiting(whose);
    for (sender& one : senders_) {
      for (auto& [tag, each] : one.used) {
        if (each.node == whose) each.node = nullptr;
      }
    }
  }
  /// That rank sends nothing any more.
  void lose(int from) {
    at(from).waiting.clear();
    at(from).used.clear();
  }

 private:
  friend struct inspector;
  struct sender {
    std::vector<int> free;
    std::deque<request> waiting;
    std::map<int, request> used;
  };
  [[nodiscard]] sender& at(int from) { return senders_[static_cast<std::size_t>(from)]; }
  int count_;  // for each pair of ranks, the same on all
  std::vector<sender> senders_;
};

}  // namespace cohort::graph::machine
