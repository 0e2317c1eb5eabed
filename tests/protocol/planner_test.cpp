// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// What runs next, and what runs together.

#include "support/catch.hpp"

#include "protocol/support.hpp"

#include <cohort/protocol.hpp>
#include <cohort/protocol/fusion_planner.hpp>
#include <cohort/protocol/queues.hpp>
#include <cohort/protocol/readiness_table.hpp>
#include <cohort/protocol/signature.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

using namespace cohort::protocol;

namespace {

/// A planner with the tables around it.
struct planning {
  explicit planning(const fusion_options& options, fusion_planner::plan frozen = nullptr)
      : planner(options, std::move(frozen)) {}

  record_index ready(const std::string& name, const signature& sig) {
    const name_index number = names.intern(0, name);
    const record_index index = table.get(names, number, 0);
    record& one = table[index];
    one.entry = names.intern(number, sig);
    names.acquire(one.entry);
    one.full = true;
    one.arrival = ++arrivals;
    planner.add(names, table, index);
    return index;
  }

  /// The names of the next pack, in order.
  std::string next(bool members_lost = false) {
    std::vector<record_index> pack;
    planner.choose(names, table, [=](std::uint32_t) { return members_lost; }, pack);
    std::string text;
    for (const record_index index : pack) {
      text += (text.empty() ? "" : " ") + names[table[index].name].text;
      table.erase(names, index);
    }
    return text;
  }
  void withdraw(record_index index) {
    planner.remove(names, table, index);
    table.erase(names, index);
  }

  name_table names;
  readiness_table table{1};
  fusion_planner planner;
  std::uint64_t arrivals = 0;
};

signature floats(std::int64_t count, int priority = 0) {
  signature sig;
  sig.element = 10;
  sig.element_size = 4;
  sig.dimensions = {count};
  sig.priority = priority;
  return sig;
}

fusion_options options() {
  fusion_options result;
  result.fuse_below = 1000;
  result.pack_limit = 4096;
  return result;
}

}  // namespace

TEST_CASE("a queue of ready operations gives them by priority, then by arrival") {
  ready_queue queue;
  protocol_test::rng random(3);
  std::map<std::pair<int, std::uint64_t>, std::uint32_t> left;  // in the order in which they leave
  std::set<std::uint32_t> standing;
  const auto stands = [&](const ready_queue::item& one) { return standing.contains(one.index); };
  std::uint32_t number = 0;
  for (int round = 0; round < 5000; ++round) {
    if (random.below(5) < 3) {
      const int priority = random.below(3) == 0 ? random.between(0, 2) : 1;  // mostly in order
      queue.push({number, priority, number + 1});
      left[{-priority, number + 1}] = number;
      standing.insert(number++);
    } else if (random.below(2) == 0 && !left.empty()) {
      auto gone = left.begin();
      std::advance(gone, random.below(left.size()));
      standing.erase(gone->second);
      left.erase(gone);
      queue.note_stale(stands);
    } else {
      const ready_queue::item* first = queue.front(stands);
      REQUIRE((first == nullptr) == left.empty());
      if (first == nullptr) continue;
      REQUIRE(first->index == left.begin()->second);
      queue.pop();
      standing.erase(left.begin()->second);
      left.erase(left.begin());
    }
  }
  CHECK(number > 2000);
  queue.clear();
  CHECK(queue.front(stands) == nullptr);
}

TEST_CASE("records of a set stay in the order of their creation") {
  name_table names;
  readiness_table table(2);
  const name_index a = names.intern(0, "a");
  const name_index b = names.intern(1, "b");
  std::vector<record_index> made;
  for (epoch number = 0; number < 3; ++number) made.push_back(table.get(names, a, number));
  static_cast<void>(table.get(names, b, 0));
  CHECK(table.get(names, a, 1) == made[1]);
  CHECK(table.size() == 4);
  table[made[1]].some.insert(5);
  table[made[1]].withdrawn = true;
  table.erase(names, made[1]);
  CHECK(table.find(names, a, 1) == none);
  CHECK(table.get(names, a, 7) == made[1]);  // the slot, which knows nothing of its past
  CHECK(!table[made[1]].withdrawn);
  CHECK(table[made[1]].some.empty());
  std::vector<epoch> order;
  for (auto i = table.first(0); i != none; i = table[i].next) order.push_back(table[i].number);
  CHECK(order == std::vector<epoch>{0, 2, 7});
  table.set_joined(0, 1);
  CHECK(table.joined(0) == 2);
  CHECK(table.joined(1) == 0);
  table.clear_joined(0);
  CHECK(table.joined(0) == 0);
}

TEST_CASE("a pack takes what is alike, in order, up to its limit") {
  planning plan(options());
  plan.ready("a", floats(200));
  signature ints = floats(4);
  ints.element = 2;
  plan.ready("i", ints);
  plan.ready("big", floats(5000));
  for (const char* name : {"b", "c", "d", "e", "f"}) plan.ready(name, floats(200));
  plan.ready("j", ints);
  CHECK(plan.next() == "a b c d");  // 832 bytes each, aligned
  CHECK(plan.next() == "i j");
  CHECK(plan.next() == "big");
  CHECK(plan.next() == "e f");
  CHECK(plan.next().empty());
}

TEST_CASE("operations that differ in what matters for a pack are not in one") {
  std::vector<signature> others(5, floats(1));
  others[0].kind = op_kind::reduce_scatter;
  others[1].element = 2;
  others[2].reduction = 3;
  others[3].space = cohort::memory_space::device;
  others[4].flags = signature_flag::alone;
  planning plan(options());
  plan.ready("a", floats(1));
  for (std::size_t i = 0; i < others.size(); ++i) plan.ready(std::to_string(i), others[i]);
  CHECK(plan.next() == "a");
  for (std::size_t i = 0; i < others.size(); ++i) CHECK(plan.next() == std::to_string(i));
}

TEST_CASE("what is compressed is packed with what has that type anyway") {
  signature compressed = floats(1);
  compressed.flags = signature_flag::half_on_wire;
  planning plan(options());
  plan.ready("a", floats(1));
  plan.ready("b", compressed);
  CHECK(plan.next() == "a b");
}

TEST_CASE("priority comes first, then arrival") {
  planning plan(options());
  plan.ready("low", floats(100, -1));
  plan.ready("a", floats(100));
  plan.ready("b", floats(100));
  plan.ready("high", floats(100, 5));
  plan.ready("late", floats(100, 5));
  CHECK(plan.next() == "high late a b low");
  fusion_options alone = options();
  alone.pack_most = 1;
  planning single(alone);
  single.ready("low", floats(1, -1));
  single.ready("a", floats(1));
  single.ready("high", floats(1, 5));
  CHECK(single.next() == "high");
  CHECK(single.next() == "a");
  CHECK(single.next() == "low");
}

TEST_CASE("nobody is passed more often than patience allows") {
  fusion_options impatient = options();
  impatient.patience = 3;
  impatient.pack_most = 1;
  planning plan(impatient);
  plan.ready("low", floats(1, -1));
  int passed = 0;
  for (;; ++passed) {
    plan.ready("n" + std::to_string(passed), floats(1, 5));
    if (plan.next() == "low") break;
    REQUIRE(passed < 10);
  }
  CHECK(passed == 3);
}

TEST_CASE("what has failed is not chosen, however much of it there is") {
  planning plan(options());
  protocol_test::rng random(5);
  std::vector<std::pair<std::string, record_index>> waiting;
  int number = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string name = "n" + std::to_string(number++);
    waiting.emplace_back(name, plan.ready(name, floats(200, random.between(0, 3))));
    if (random.below(10) < 8) {
      const std::size_t gone = random.below(waiting.size());
      plan.withdraw(waiting[gone].second);
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(gone));
    }
    if (random.below(20) == 0 && !waiting.empty()) {
      std::istringstream pack(plan.next());
      std::size_t count = 0;
      for (std::string one; pack >> one; ++count) {
        const auto found = std::find_if(waiting.begin(), waiting.end(),
                                        [&](const auto& each) { return each.first == one; });
        REQUIRE(found != waiting.end());
        waiting.erase(found);
      }
      REQUIRE(count > 0);
    }
  }
  std::size_t rest = 0;
  for (std::string pack = plan.next(); !pack.empty(); pack = plan.next()) {
    rest += 1 + static_cast<std::size_t>(std::count(pack.begin(), pack.end(), ' '));
  }
  CHECK(rest == waiting.size());
}

TEST_CASE("a pack of a frozen plan waits for its members and is the same in any order") {
  const auto plan = std::make_shared<const std::vector<frozen_pack>>(
      std::vector<frozen_pack>{{0, {"a", "b", "i"}}, {0, {"c", "d"}}});
  signature ints = floats(4);
  ints.element = 2;
  planning one(options(), plan);
  one.ready("i", ints);
  one.ready("d", floats(4));
  one.ready("b", floats(4));
  CHECK(one.next().empty());
  one.ready("other", floats(4));
  CHECK(one.next() == "other");
  one.ready("c", floats(4));
  CHECK(one.next() == "c d");
  const record_index a = one.ready("a", floats(4));
  one.withdraw(a);  // the pack was complete for a moment
  CHECK(one.next().empty());
  one.ready("a", floats(4));
  CHECK(one.next() == "a b");  // what cannot share a pack is cut off, always in the same place
  CHECK(one.next() == "i");
}

TEST_CASE("a frozen plan is given up, and its packs are released where members cannot come") {
  const auto plan = std::make_shared<const std::vector<frozen_pack>>(
      std::vector<frozen_pack>{{0, {"a", "b", "c"}}});
  planning one(options(), plan);
  one.ready("a", floats(4));
  one.ready("b", floats(4));
  CHECK(one.next(true) == "a");
  CHECK(one.next(true) == "b");
  CHECK(!one.planner.give_up_plan(one.names, one.table));
  one.ready("c", floats(4));
  one.ready("a", floats(4));
  CHECK(one.planner.awaited() == std::vector<std::string>{"b"});
  CHECK(one.planner.give_up_plan(one.names, one.table));
  CHECK(!one.planner.has_plan());
  CHECK(one.next() == "c a");
  const auto twice =
      std::make_shared<const std::vector<frozen_pack>>(std::vector<frozen_pack>{{0, {"a", "a"}}});
  CHECK_THROWS_AS(fusion_planner(options(), twice), cohort::error);
}
