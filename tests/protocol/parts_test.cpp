// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The parts that the protocol is made of, each against what it stands for.

#include "support/catch.hpp"

#include "protocol/support.hpp"

#include <cohort/core/ranks.hpp>
#include <cohort/protocol.hpp>
#include <cohort/protocol/name_table.hpp>
#include <cohort/protocol/queues.hpp>
#include <cohort/protocol/replica.hpp>
#include <cohort/protocol/signature.hpp>
#include <cohort/protocol/tree.hpp>
#include <cohort/protocol/validation.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

using cohort::rank_set;
using namespace cohort::protocol;
using protocol_test::rng;

TEST_CASE("a set of ranks does what a std::set does") {
  rng random(7);
  for (int round = 0; round < 300; ++round) {
    std::set<int> plain[2];
    rank_set ranks[2];
    for (int i = 0; i < 2; ++i) {
      for (int n = random.between(0, 6); n > 0; --n) {
        const int first = random.between(0, 40);
        const int last = first + random.between(-1, 5);
        ranks[i].insert(first, last);
        for (int rank = first; rank <= last; ++rank) plain[i].insert(rank);
      }
      CHECK(ranks[i].list() == std::vector<int>(plain[i].begin(), plain[i].end()));
      CHECK(ranks[i].size() == plain[i].size());
      for (int rank = -1; rank < 50; ++rank) {
        CHECK(ranks[i].contains(rank) == plain[i].contains(rank));
      }
    }
    std::set<int> both;
    std::set<int> common;
    std::set<int> rest;
    for (const int rank : plain[0]) (plain[1].contains(rank) ? common : rest).insert(rank);
    both = plain[0];
    both.insert(plain[1].begin(), plain[1].end());
    const auto same = [](const rank_set& a, const std::set<int>& b) {
      return a.list() == std::vector<int>(b.begin(), b.end());
    };
    rank_set united = ranks[0];
    united.unite(ranks[1]);
    CHECK(same(united, both));
    CHECK(same(ranks[0].common_with(ranks[1]), common));
    CHECK(same(ranks[0].without(ranks[1]), rest));
    CHECK(ranks[0].intersects(ranks[1]) == !common.empty());
    CHECK(ranks[0].includes(ranks[1]) == (common.size() == plain[1].size()));
    CHECK(united.includes(ranks[1]));
  }
  CHECK(rank_set{0, 1, 2, 5, 7, 8}.str() == "0-2, 5, 7-8");
  for (const rank_set& ranks : {rank_set{}, rank_set{3}, rank_set{0, 1, 2, 5, 7, 8}}) {
    CHECK(rank_set::parse(ranks.str()) == ranks);
  }
  for (const char* text : {"a", "1-", "2-1", "1,2", "1, 2", "3, 1", ", 1", "1,", "01", "-1"}) {
    CHECK(!rank_set::parse(text));
  }
}

TEST_CASE("a map of epochs does what a std::map does, also far from its middle") {
  rng random(8);
  for (int round = 0; round < 200; ++round) {
    std::map<epoch, std::uint32_t> plain;
    epoch_map epochs;
    epoch middle = 0;
    for (int move = 0; move < 200; ++move) {
      const bool far = random.below(10) == 0;
      const epoch at = middle + random.between(-4, 8) + (far ? random.between(-4000, 4000) : 0);
      switch (random.below(4)) {
        case 0:
        case 1:
          if (plain.emplace(at, static_cast<std::uint32_t>(move)).second) {
            epochs.insert(at, static_cast<std::uint32_t>(move));
          }
          break;
        case 2: {
          const auto found = plain.find(at);
          CHECK(epochs.erase(at) == (found == plain.end() ? none : found->second));
          if (found != plain.end()) plain.erase(found);
          break;
        }
        default:
          if (random.below(20) == 0) {
            epochs.renumber(3);
            std::map<epoch, std::uint32_t> moved;
            for (const auto& [number, index] : plain) moved.emplace(number - 3, index);
            plain = moved;
            middle -= 3;
          } else {
            middle += random.between(0, 2);
          }
      }
      CHECK(epochs.size() == plain.size());
      CHECK(epochs.empty() == plain.empty());
    }
    std::map<epoch, std::uint32_t> copy;
    epoch before = INT64_MIN;
    epochs.for_each([&](epoch number, std::uint32_t index) {
      CHECK(number > before);
      before = number;
      copy.emplace(number, index);
    });
    CHECK(copy == plain);
    for (const auto& [number, index] : plain) CHECK(epochs.find(number) == index);
  }
}

namespace {

/// Whether the views of all ranks are one tree with rank 0 on top; returns its depth.
template <class Make>
int depth_of(int ranks, int most_children, Make make) {
  std::vector<tree> views;
  for (int rank = 0; rank < ranks; ++rank) views.push_back(make(rank));
  std::vector<int> depth(static_cast<std::size_t>(ranks));
  int deepest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const tree& view = views[static_cast<std::size_t>(rank)];
    CHECK(view.is_root() == (rank == 0));
    CHECK(view.child_count() <= most_children);
    rank_set below{rank};
    for (int child = 0; child < view.child_count(); ++child) {
      const int head = view.children()[static_cast<std::size_t>(child)];
      CHECK(views[static_cast<std::size_t>(head)].parent() == rank);
      CHECK(view.subtree(child).contains(head));
      CHECK(!below.intersects(view.subtree(child)));
      below.unite(view.subtree(child));
      CHECK(view.source_of(head) == child);
    }
    if (rank == 0) CHECK(below == rank_set::span(0, ranks - 1));
    if (rank != 0) {
      depth[static_cast<std::size_t>(rank)] = depth[static_cast<std::size_t>(view.parent())] + 1;
      const tree& above = views[static_cast<std::size_t>(view.parent())];
      CHECK(above.subtree(above.source_of(rank)) == below);
    }
    deepest = std::max(deepest, depth[static_cast<std::size_t>(rank)]);
  }
  return deepest;
}

}  // namespace

TEST_CASE("a balanced tree spans the ranks in blocks and is as shallow as it can be") {
  for (const int radix : {1, 2, 3, 8}) {
    for (const int ranks : {1, 2, 3, 9, 10, 64, 73, 200}) {
      const int depth =
          depth_of(ranks, radix, [=](int rank) { return tree::balanced(rank, ranks, radix); });
      int reach = 1;
      int level = 1;
      int least = 0;
      while (reach < ranks) {
        level *= radix;
        reach += level;
        ++least;
      }
      CHECK(depth <= least + (radix == 1 ? 0 : 1));
    }
  }
  const tree root = tree::balanced(0, 16'384, 8);
  for (int child = 0; child < 8; ++child) CHECK(root.subtree(child).ranges().size() == 1);
}

TEST_CASE("a node-aware tree enters each node once") {
  const std::vector<int> nodes{0, 1, 0, 1, 2, 2, 0, 3, 3, 1, 0, 2};
  depth_of(12, 4, [&](int rank) { return tree::node_aware(rank, nodes, 2); });
  for (int rank = 0; rank < 12; ++rank) {
    const int parent = tree::node_aware(rank, nodes, 2).parent();
    const bool first = rank == 0 || rank == 1 || rank == 4 || rank == 7;
    if (rank != 0) {
      CHECK((nodes[static_cast<std::size_t>(rank)] != nodes[static_cast<std::size_t>(parent)]) ==
            first);
    }
  }
}

TEST_CASE("any tree of lower parents will do, and nothing else") {
  const std::vector<int> parents{-1, 0, 1, 0, 2, 2};
  depth_of(6, 3, [&](int rank) { return tree::from_parents(rank, parents); });
  CHECK_THROWS_AS(tree::from_parents(0, std::vector<int>{-1, 1}), cohort::error);
  CHECK_THROWS_AS(tree::from_parents(2, std::vector<int>{-1, 0}), cohort::error);
  CHECK_THROWS_AS(tree::balanced(3, 3, 2), cohort::error);
  CHECK_THROWS_AS(tree::from_parents(0, std::vector<int>(80, 0)), cohort::error);
}

TEST_CASE("a process set is seen through the sources that have members") {
  const tree view = tree::from_parents(1, std::vector<int>{-1, 0, 1, 1, 2});
  const set_in_tree set = view.set_of({1, 4});
  CHECK(set.sources == 0b101);  // the child 2, which is above 4, and the rank itself
  CHECK(set.below == 2);
  CHECK(set.contains_me);
  CHECK(view.set_of({0, 3}).sources == 0b010);
}

TEST_CASE("a queue that keeps its memory does what a std::deque does") {
  steady_fifo<int> queue;
  std::deque<int> model;
  protocol_test::rng random(11);
  int number = 0;
  for (int round = 0; round < 20000; ++round) {
    // Mostly short, at times long, and empty now and then.
    const bool grows = random.below(100) < (round / 2000 % 2 == 0 ? 55U : 45U);
    if (grows) {
      queue.push_back(number);
      model.push_back(number++);
    } else if (!model.empty()) {
      queue.pop_front();
      model.pop_front();
    }
    REQUIRE(queue.size() == model.size());
    REQUIRE(queue.empty() == model.empty());
    if (!model.empty()) REQUIRE(queue.front() == model.front());
  }
}

TEST_CASE("parts of operations go where they cannot cross") {
  start_queue queue(2);
  const auto push = [&](std::uint64_t log_count, bool exchanges, std::uint64_t reference = 0) {
    queue.push({0, log_count, exchanges, exchanges, reference});
  };
  for (const std::uint64_t log_count : {1U, 2U, 3U}) push(log_count, true);
  push(4, false, 2);
  CHECK(queue.next().slot == 0);
  CHECK(queue.next().slot == 1);
  CHECK(!queue.ready());  // [protocol X2] its slot is taken
  queue.posted_last(0, 1);
  CHECK(!queue.ready());
  queue.posted_last(0, 0);
  CHECK(queue.next().slot == 0);
  CHECK(!queue.ready());  // [protocol Z4] the sizes of 2 are not known
  queue.exchanged(2);
  CHECK(queue.ready());
  CHECK(queue.next().what.log_count == 4);
  CHECK(queue.empty());

  start_queue stream(7, true);  // [protocol D1]
  stream.push({0, 1, true, true, 0});
  stream.push({1, 2, false, false, 0});
  CHECK(stream.next().what.log_count == 1);
  CHECK(!stream.ready());
  stream.posted_last(0, 0);
  CHECK(stream.ready());
}

TEST_CASE("a failure names all fields that differ, the ranks of each side and call sites") {
  verdict why;
  why.kind = failure_kind::mismatch;
  signature one;
  one.element = 10;
  one.element_size = 4;
  one.dimensions = {3, 4};
  one.root = 1;
  signature two = one;
  two.dimensions = {3, 5};
  two.root = 2;
  two.space = cohort::memory_space::device;
  why.sides = {{one, {0, 1, 2}, {"train.cpp", 7}}, {two, {3}, {"train.cpp", 9}}};
  const auto all = differences(why.sides);
  REQUIRE(all.size() == 3);
  CHECK(all[0].field == "shape");
  CHECK(all[1].field == "root");
  CHECK(all[2].field == "memory");
  CHECK(describe("w", why) ==
        "'w': shape differs: 3x4 on ranks 0-2 (train.cpp:7), 3x5 on rank 3 (train.cpp:9); root "
        "differs: 1 on ranks 0-2, 2 on rank 3; memory differs: host on ranks 0-2, device on rank "
        "3");
}

TEST_CASE("every field of a signature is compared and has a name") {
  std::vector<signature> others(15);
  others[0].kind = op_kind::reduce;
  others[1].element = 3;
  others[2].space = cohort::memory_space::pinned;
  others[3].flags = signature_flag::divide_by_all;
  others[4].element_size = 2;
  others[5].reduction = 4;
  others[6].root = 0;
  others[7].priority = 1;
  others[8].prescale = 2;
  others[9].postscale = 2;
  others[10].dimensions = {1};
  others[11].detail = 1;
  others[12].members = "a";
  others[13].flags = signature_flag::half_on_wire;
  others[14].places = "7+64";
  std::set<std::string> fields;
  for (const signature& other : others) {
    CHECK(!(other == signature{}));
    const auto all = differences({{signature{}, {0}, {}}, {other, {1}, {}}});
    REQUIRE(all.size() == 1);
    fields.insert(all[0].field);
    CHECK(hash_of(other) != hash_of(signature{}));
  }
  CHECK(fields.size() == others.size());
}

TEST_CASE("the other failures say who and why") {
  verdict why;
  why.kind = failure_kind::withdrawn;
  why.rank = 2;
  why.reason = withdrawal_reason::deadline;
  why.asked = true;
  why.ready = {0, 2};
  why.missing = {1};
  why.silent = {4};
  why.unknown = {5, 6};
  CHECK(describe("x", why) ==
        "'x': withdrawn by rank 2 (deadline), ready: ranks 0, 2, missing: rank 1, silent: rank 4, "
        "unknown: ranks 5-6");
  why = {};
  why.kind = failure_kind::joined;
  why.ranks = {3};
  CHECK(describe("x", why) == "'x': needs data of rank 3, joined");
  why.kind = failure_kind::peer_lost;
  CHECK(describe("x", why) == "'x': needs a rank that has left: rank 3");
  why.kind = failure_kind::data;
  why.rank = 1;
  why.text = "no memory";
  CHECK(describe("x", why) == "'x': a data operation failed on rank 1: no memory");
}

TEST_CASE("a new generation keeps what was used last, in the order of ids") {
  name_table names;
  response_cache cache;
  std::vector<entry_index> entries;
  for (int i = 0; i < 5; ++i) {
    const name_index name = names.intern(0, std::string(1, static_cast<char>('a' + i)));
    entries.push_back(names.intern(name, signature{}));
    cache.define(names, entries.back());
  }
  const std::vector<std::uint64_t> uses{9, 2, 8, 1, 7};
  for (std::size_t i = 0; i < 5; ++i) names.entry(entries[i]).last_use = uses[i];
  cache.new_generation(names, 3);
  REQUIRE(cache.size() == 3);
  CHECK(cache[0] == entries[0]);
  CHECK(cache[1] == entries[2]);
  CHECK(cache[2] == entries[4]);
  CHECK(names.entry(entries[4]).id == 2);
  CHECK(names.entry_count() == 3);
  names.purge();
  CHECK(names.name_count() == 3);
  cache.new_generation(names, 0);
  names.purge();
  CHECK(names.name_count() == 0);
}

TEST_CASE("an epoch ends once, in any order") {
  replica log(1);
  const name_index name = log.names.intern(0, "a");
  log.resolve(name, 2);
  CHECK(log.resolved(name, 2));
  CHECK(!log.resolved(name, 0));
  CHECK_THROWS_AS(log.resolve(name, 2), protocol_error);
  log.resolve(name, 0);
  log.resolve(name, 1);
  CHECK(log.names[name].base == 3);
  CHECK(log.names[name].above.empty());
  log.restrict(0, {{name, 3}, {name, 4}});
  CHECK(!log.dead(name, 3));
  CHECK(log.dead(name, 5));
  log.restrict(0, {{name, 4}, {name, 5}});  // [protocol L3] the intersection
  CHECK(log.dead(name, 3));
  CHECK(!log.dead(name, 4));
  CHECK(log.dead(name, 5));
}
