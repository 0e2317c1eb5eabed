// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Nodes that talk to each other: who sees what, and what it costs.

#include "support/catch.hpp"

#include "protocol/fake_job.hpp"

#include <cohort/protocol.hpp>
#include <cohort/protocol/group_table.hpp>
#include <cohort/protocol/message.hpp>
#include <cohort/protocol/node.hpp>
#include <cohort/protocol/outbox.hpp>
#include <cohort/protocol/stall_inspector.hpp>

#include <cstdint>
#include <string>
#include <vector>

using namespace protocol_test;

TEST_CASE("an operation starts once every rank has submitted it, in the same order everywhere") {
  fake_job job(5, 2);
  for (int rank = 0; rank < 5; ++rank) {
    const std::vector<std::string> names{"a", "b", "c"};
    for (int i = 0; i < 3; ++i) {
      job.submit(rank, names[static_cast<std::size_t>((i + rank) % 3)]);
      job.settle();
    }
    if (rank < 4) CHECK(job.log(0).empty());
  }
  for (int rank = 0; rank < 5; ++rank) {
    CHECK(job.log(rank).size() == 3);
    CHECK(job.log(rank) == job.log(0));
  }
}

TEST_CASE("a root that decides when asked makes one pack of what has come since") {
  const auto packs = [](bool asked) {
    node_options options;
    options.decides_when_asked = asked;
    fake_job job(3, 2, options);
    for (const char* name : {"a", "b", "c"}) {
      job.submit_all(name);
      while (job.exchange()) {
      }
    }
    node& root = job.node_of(0);
    CHECK(root.actions().size() == (asked ? 0 : 3));
    if (asked) CHECK(!root.has_message(1));
    root.decide();
    std::size_t count = 0;
    for (const action& one : root.actions()) count += one.last ? 1 : 0;
    root.decide();  // nothing is left
    CHECK(root.actions().size() == 3);
    job.settle();
    CHECK(job.log(2) == std::vector<std::string>{"a#0", "b#0", "c#0"});
    return count;
  };
  CHECK(packs(true) == 1);
  CHECK(packs(false) == 3);
}

TEST_CASE("other numbers hold from one place of the log on") {
  node_options options;
  options.fusion.fuse_below = 0;
  options.decides_when_asked = true;
  fake_job job(4, 2, options);
  const auto packs = [&](const char* first, const char* second) {
    job.submit_all(first);
    job.submit_all(second);
    while (job.exchange()) {
    }
    node& root = job.node_of(0);
    root.decide();
    std::size_t count = 0;
    for (const action& one : root.actions()) count += one.kind == action_kind::start && one.last;
    return count;
  };
  CHECK(packs("a", "b") == 2);
  options.fusion.fuse_below = 1000;
  job.node_of(0).adjust({7, 8}, options.fusion);
  CHECK(packs("c", "d") == 2 + 1);
  job.settle();
  // What is ready by then is packed by the new numbers, and known names as well.
  job.submit_all("a");
  job.submit_all("b");
  while (job.exchange()) {
  }
  options.fusion.fuse_below = 0;
  job.node_of(0).adjust({}, options.fusion);
  CHECK(packs("c", "d") == 4);
  job.settle();
  job.node_of(1).adjust({9}, options.fusion);  // the root alone may
  job.settle();
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(job.log(rank) == std::vector<std::string>{"a#0", "b#0", "adjusted 7 8", "c#0", "d#0",
                                                    "adjusted", "a#1", "b#1", "c#1", "d#1"});
  }
}

TEST_CASE("a contradiction about a new name is found before the last rank has submitted") {
  fake_job job(6, 2);
  signature other = sum_of(4);
  other.dimensions = {7};
  other.root = 3;
  job.submit(3, "w", other);
  job.settle();
  job.submit(5, "w");
  job.settle();
  for (const int rank : {3, 5}) {
    REQUIRE(job.log(rank).size() == 1);
    CHECK(job.log(rank)[0] ==
          "'w': shape differs: 7 on rank 3 (rank3.cpp:1), 4 on rank 5 (rank5.cpp:1); root differs: "
          "3 on rank 3, -1 on rank 5");
  }
  const submission late = job.submit(0, "w");  // poison
  CHECK(late.status == submission_status::failed);
  CHECK(late.why->kind == failure_kind::mismatch);
  for (const int rank : {1, 2, 4}) job.submit(rank, "w");
  for (int rank = 0; rank < 6; ++rank) job.submit(rank, "w");  // the next epoch works
  job.settle();
  for (int rank = 0; rank < 6; ++rank) CHECK(job.log(rank).back() == "w#1");
}

TEST_CASE("a contradiction that the cache hides is found by the stall query") {
  fake_job job(4, 1);  // a chain: 0 - 1 - 2 - 3
  job.submit_all("w");
  job.settle();
  signature other = sum_of(9);
  job.submit(3, "w");
  job.submit(1, "w", other);
  job.settle();
  CHECK(job.log(1).size() == 1);  // rank 2 waits for its own announcement, and says nothing
  CHECK(job.node_of(0).request_report());
  job.settle();
  // The call site of a cached signature is where one rank has submitted it before.
  CHECK(job.log(1).back() ==
        "'w': shape differs: 4 on rank 3 (rank2.cpp:1), 9 on rank 1 (rank1.cpp:1)");
  CHECK(job.log(3).back() == job.log(1).back());
  CHECK(job.submit(0, "w").status == submission_status::failed);
  CHECK(job.submit(2, "w").status == submission_status::failed);
  job.submit_all("w");
  job.settle();
  for (int rank = 0; rank < 4; ++rank) CHECK(job.log(rank).back() == "w#2");
}

TEST_CASE("a withdrawal fails the operation everywhere and names the rank and its reason") {
  fake_job job(3, 1);
  const submission mine = job.submit(2, "a");
  job.submit(1, "a");
  job.settle();
  CHECK(job.node_of(2).withdraw(mine.operation, withdrawal_reason::invalid));
  job.settle();
  CHECK(job.log(1).back() == "'a': withdrawn by rank 2 (invalid arguments)");
  CHECK(job.log(2).back() ==
        "'a': withdrawn by rank 2 (invalid arguments), own: invalid arguments");
  CHECK(job.submit(0, "a").status == submission_status::failed);
  CHECK(!job.node_of(2).withdraw(mine.operation, withdrawal_reason::cancelled));
  for (int rank = 0; rank < 3; ++rank) job.submit(rank, "a");
  job.settle();
  CHECK(job.log(0).back() == "a#1");
}

TEST_CASE("a deadline names the ranks that were ready, those that are missing, and the silent") {
  fake_job job(7, 2);  // 0: 1 4; 1: 2 3; 4: 5 6
  std::vector<submission> ops(7);
  for (const int rank : {0, 1, 2, 5}) ops[static_cast<std::size_t>(rank)] = job.submit(rank, "a");
  job.settle();
  CHECK(job.node_of(2).withdraw(ops[2].operation, withdrawal_reason::deadline, 100));
  job.settle();
  CHECK(job.log(1).back() ==
        "'a': withdrawn by rank 2 (deadline), ready: ranks 0-2, 5, missing: ranks 3-4, 6");

  // Rank 4 does not answer any more.
  for (const int rank : {3, 4, 6}) job.submit(rank, "a");
  for (const int rank : {0, 1, 2, 5}) ops[static_cast<std::size_t>(rank)] = job.submit(rank, "b");
  job.settle();
  job.stop(4);
  CHECK(job.node_of(2).withdraw(ops[2].operation, withdrawal_reason::deadline, 200));
  job.settle();
  CHECK(job.log(2).size() == 1);
  REQUIRE(job.node_of(0).deadline().has_value());
  job.node_of(0).expire(*job.node_of(0).deadline() - 1);
  job.settle();
  CHECK(job.log(2).size() == 1);
  job.node_of(0).expire(*job.node_of(0).deadline());
  job.settle();
  // What rank 5 has announced on first sight is known above rank 4.
  CHECK(job.log(2).back() ==
        "'b': withdrawn by rank 2 (deadline), ready: ranks 0-2, 5, missing: rank 3, silent: rank "
        "4, unknown: rank 6, own: deadline");
}

TEST_CASE("each level of a query keeps a share of its time") {
  fake_job job(4, 1);
  const submission mine = job.submit(0, "a");
  job.settle();
  job.stop(3);
  job.stop(2);
  CHECK(job.node_of(0).withdraw(mine.operation, withdrawal_reason::deadline, 0));
  job.settle();
  const auto top = job.node_of(0).deadline();
  const auto below = job.node_of(1).deadline();
  REQUIRE(top.has_value());
  REQUIRE(below.has_value());
  CHECK(*below < *top);
  job.node_of(1).expire(*below);
  job.settle();
  CHECK(job.log(0).back() ==
        "'a': withdrawn by rank 0 (deadline), ready: rank 0, missing: rank 1, silent: rank 2, "
        "unknown: rank 3, own: deadline");
}

TEST_CASE("joined ranks contribute neutral elements, and join tells who has the newest state") {
  fake_job job(4, 2);
  job.node_of(1).join(0, 900);
  job.node_of(3).join(0, 900);
  job.submit(0, "a");
  job.submit(2, "a");
  job.settle();
  CHECK(job.log(1).back() == "a#0 neutral of 2");
  CHECK(job.log(2).back() == "a#0 of 2");
  CHECK(job.submit(1, "a").status == submission_status::refused);
  job.node_of(0).join(0, 900);
  job.node_of(2).join(0, 900);
  job.settle();
  CHECK(job.log(0).back() == "joined, took 1");
  CHECK(job.log(1).back() == "joined, took 0");
  for (int rank = 0; rank < 4; ++rank) CHECK(job.submit(rank, "a").number == 1);
  job.settle();
  CHECK(job.log(3).back() == "a#1");
}

TEST_CASE("what needs a rank that has joined fails and names it") {
  fake_job job(3, 2);
  signature rooted = sum_of(4);
  rooted.kind = op_kind::broadcast;
  rooted.root = 1;
  signature exchange = sum_of(4);
  exchange.kind = op_kind::all_to_all;
  signature own = sum_of(4);
  own.flags = signature_flag::needs_all;
  job.node_of(1).join(0, 900);
  int number = 0;
  for (const signature& sig : {rooted, exchange, own}) {
    const std::string name = "n" + std::to_string(number++);
    job.submit(0, name, sig);
    job.submit(2, name, sig);
    job.settle();
    CHECK(job.log(2).back() == "'" + name + "': needs data of rank 1, joined");
  }
  signature other_root = rooted;
  other_root.root = 2;
  job.submit(0, "works", other_root);
  job.submit(2, "works", other_root);
  job.settle();
  CHECK(job.log(2).back() == "works#0 of 2");
}

TEST_CASE("sizes that have not changed on any rank are not exchanged") {
  fake_job job(3, 2);
  signature gather = sum_of(4);
  gather.kind = op_kind::all_gather;
  const auto round = [&](const std::vector<std::int64_t>& sizes) {
    for (int rank = 0; rank < 3; ++rank) {
      job.submit(rank, "g", gather, sizes[static_cast<std::size_t>(rank)]);
    }
    job.settle();
    return job.log(2).back();
  };
  CHECK(round({1, 2, 3}) == "g#0 exchanges");
  CHECK(round({1, 2, 3}) == "g#1 knows 1");
  CHECK(round({1, 2, 3}) == "g#2 knows 1");
  CHECK(round({1, 9, 3}) == "g#3 exchanges");
  CHECK(round({1, 9, 3}) == "g#4 knows 4");
}

TEST_CASE("a persistent group is created by all, and removed with equal numbers of starts") {
  fake_job job(3, 2);
  signature create = sum_of(4);
  create.kind = op_kind::group_create;
  for (int rank = 0; rank < 3; ++rank) job.submit(rank, "p", create);
  CHECK(job.node_of(0).join(0, 900).status == submission_status::refused);  // [protocol H2]
  job.settle();
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(job.node_of(rank).start_group(0, "p") == 0);
    CHECK(job.node_of(rank).join(0, 900).status == submission_status::refused);
  }
  const name_index group = job.node_of(0).log().names.find(0, "p");
  CHECK(job.node_of(0).start_group(group) == 1);  // by its number, which saves the look-up
  const auto remove = [&] {
    signature sig = sum_of(4);
    sig.kind = op_kind::group_remove;
    for (int rank = 0; rank < 3; ++rank) {
      sig.detail = job.node_of(rank).group_starts(0, "p");
      job.submit(rank, "p", sig);
    }
    job.settle();
    return job.log(1).back();
  };
  CHECK(remove().find("starts differs: 2 on rank 0") != std::string::npos);  // [protocol H5]
  CHECK(job.node_of(1).start_group(0, "p") == 1);
  CHECK(job.node_of(2).start_group(0, "p") == 1);
  CHECK(remove() == "p#2");
  CHECK(!job.node_of(1).start_group(0, "p").has_value());
  CHECK(!job.node_of(0).start_group(group).has_value());
  CHECK(job.node_of(1).join(0, 900).status == submission_status::pending);
}

TEST_CASE("a stall report tells each asker who waits for whom") {
  fake_job job(6, 2);
  job.submit(2, "a");
  job.submit(4, "a");
  job.node_of(5).join(0, 900);
  job.settle();
  CHECK(job.node_of(1).request_report());
  CHECK(job.node_of(3).request_report());
  job.settle();
  CHECK(job.log(1).back() == "report: a#0 ready 2, 4 missing 0-1, 3");
  CHECK(job.log(3).back() == job.log(1).back());
  CHECK(job.log(2).empty());
}

TEST_CASE("ranks that leave at the same time cost the tree a few messages an edge") {
  fake_job job(30, 3);
  job.submit_all("a");
  job.settle();
  job.sent = 0;
  for (int rank = 0; rank < 30; ++rank) job.node_of(rank).leave(departure::drained);
  job.settle();
  CHECK(job.sent <= 29 * 5);  // leave, at most once for each level below, end; left, close
  for (int rank = 0; rank < 30; ++rank) CHECK(job.node_of(rank).released());
}

TEST_CASE("an operation of listed members needs these alone, whoever else has joined or left") {
  fake_job job(6, 2);
  signature make = sum_of(1);
  make.kind = op_kind::barrier;
  const std::string name = listed_name({1, 2, 5}, "make a process set");
  job.node_of(0).join(0, 900);
  job.node_of(3).leave(departure::drained);
  job.settle();
  for (const int rank : {5, 1}) job.submit(rank, name, make);
  CHECK(job.submit(4, name, make).status == submission_status::refused);
  job.settle();
  CHECK(job.log(1).empty());
  job.submit(2, name, make);
  job.settle();
  for (const int rank : {1, 2, 5})
    CHECK(job.log(rank) == std::vector<std::string>{name + "#0 of 3"});
  CHECK(job.log(4).empty());
  for (int rank = 0; rank < 6; ++rank) {
    CHECK(job.node_of(rank).log().log_count == 1);
    CHECK(job.node_of(rank).log().digest() == job.node_of(0).log().digest());
  }

  job.submit(1, name, make);
  job.settle();
  job.node_of(5).leave(departure::drained);
  job.settle();
  CHECK(job.log(1).back() == "'" + name + "': needs a rank that has left: rank 5");
  CHECK(job.submit(2, name, make).status == submission_status::failed);
}

TEST_CASE("what a leaver has submitted of listed members still completes") {
  fake_job job(4, 1);
  const std::string name = listed_name({0, 2, 3}, "make");
  job.submit(2, name);
  job.node_of(2).leave(departure::drained);
  job.settle();
  job.submit(3, name);
  job.settle();
  job.submit(0, name);
  job.settle();
  for (const int rank : {0, 2, 3}) CHECK(job.log(rank).back() == name + "#0 of 3");
  for (const int rank : {0, 1, 3}) job.node_of(rank).leave(departure::drained);
  job.settle();
  for (int rank = 0; rank < 4; ++rank) CHECK(job.node_of(rank).released());
}

TEST_CASE("a listed member that has joined is found by the stall query") {
  fake_job job(5, 1);
  const std::string name = listed_name({1, 2}, "make");
  job.submit(1, name);
  job.node_of(2).join(0, 900);
  job.settle();
  CHECK(job.log(1).empty());
  job.node_of(0).request_report();
  job.settle();
  CHECK(job.log(1).back() == "'" + name + "': needs data of rank 2, joined");
}

namespace {

/// Makes a set of some ranks, and returns its number as one of them is told it.
std::uint32_t make_set(fake_job& job, const rank_set& members) {
  signature make = sum_of(1);
  make.kind = op_kind::set_add;
  for (const int rank : members.list()) job.submit(rank, listed_name(members, "make"), make);
  const auto number = static_cast<std::uint32_t>(job.node_of(0).set_count());
  job.settle();
  const std::string text = " makes set " + std::to_string(number);
  CHECK(job.log(members.front()).back().find(text) != std::string::npos);
  return number;
}

signature message_of(int source, int destination, std::int64_t count = 4) {
  signature sig = sum_of(count);
  sig.kind = op_kind::message;
  sig.root = source;
  sig.detail = static_cast<std::uint64_t>(destination);
  return sig;
}

}  // namespace

TEST_CASE("a set that is made while the node runs has the same number on all ranks") {
  fake_job job(6, 2);
  job.submit(0, "a");  // pending meanwhile
  CHECK(make_set(job, {1, 2, 5}) == 1);
  CHECK(make_set(job, {2, 4, 5}) == 2);
  CHECK(make_set(job, {1, 2, 5}) == 3);  // the same ranks again: another set
  for (int rank = 0; rank < 6; ++rank) {
    CHECK(job.node_of(rank).set_count() == 4);
    CHECK(job.node_of(rank).set(2).members == rank_set{2, 4, 5});
    CHECK(job.node_of(rank).log().digest() == job.node_of(0).log().digest());
  }
  CHECK(job.submit_in(3, 1, "w").status == submission_status::refused);
  // Overlapping sets, submitted in different orders: one log orders them.
  for (const int rank : {2, 4, 5}) job.submit_in(rank, 2, "w");
  for (const int rank : {5, 2, 1}) job.submit_in(rank, 1, "w");
  for (const int rank : {1, 2, 5}) job.submit_in(rank, 3, "v");
  job.settle();
  const auto tail = [&](int rank) {
    const auto& log = job.log(rank);
    return std::vector<std::string>(log.end() - 3, log.end());
  };
  CHECK(tail(2) == tail(5));
  for (const int rank : {1, 2, 3, 4, 5}) job.submit(rank, "a");
  job.settle();
  for (int rank = 0; rank < 6; ++rank) CHECK(job.log(rank).back() == "a#0");
}

TEST_CASE("operations of different sets never share a pack") {
  node_options options;
  options.decides_when_asked = true;
  fake_job job(2, 2, options);
  signature make = sum_of(1);
  make.kind = op_kind::set_add;
  const rank_set both{0, 1};
  for (const int rank : {0, 1}) job.submit(rank, listed_name(both, "make"), make);
  while (job.exchange()) {
  }
  job.node_of(0).decide();
  job.settle();
  for (const int rank : {0, 1}) {
    job.submit(rank, "a");
    job.submit_in(rank, 1, "a");
    job.submit(rank, "b");
    job.submit_in(rank, 1, "b");
  }
  while (job.exchange()) {
  }
  job.node_of(0).decide();
  std::size_t packs = 0;
  std::uint32_t set = none;
  for (const action& one : job.node_of(0).actions()) {
    CHECK((set == none || set == one.set));
    set = one.last ? none : one.set;
    packs += one.last ? 1 : 0;
  }
  CHECK(job.node_of(0).actions().size() == 4);
  CHECK(packs == 2);
}

TEST_CASE("a set is made among the members of another one") {
  fake_job job(6, 1);
  const std::uint32_t outer = make_set(job, {1, 3, 4, 5});
  signature make = sum_of(1);
  make.kind = op_kind::set_add;
  const std::string name = listed_name({3, 5}, "make");
  job.submit_in(3, outer, name, make);
  job.settle();
  job.submit_in(5, outer, name, make);
  job.settle();
  CHECK(job.log(5).back() == name + "#0 makes set 2 of 2");
  for (int rank = 0; rank < 6; ++rank) {
    CHECK(job.node_of(rank).set(2).members == rank_set{3, 5});
  }
  // Who leaves the outer set can make none in it, and is still in the inner one.
  job.submit_in(5, outer, name, make);
  job.node_of(3).leave_set(outer, departure::drained);
  job.settle();
  CHECK(job.log(5).back() == "'" + name + "': needs a rank that has left: rank 3");
  for (const int rank : {3, 5}) job.submit_in(rank, 2, "w");
  job.settle();
  CHECK(job.log(3).back() == "w#0");
}

TEST_CASE("removing a set ends what others wait for in it, and nothing else") {
  fake_job job(5, 2);
  const std::uint32_t set = make_set(job, {1, 2, 4});
  job.submit_in(1, set, "lost");
  job.submit_in(4, set, "wanted");
  job.submit_in(2, set, "wanted");
  job.submit(1, "a");
  job.node_of(4).leave_set(set, departure::drained);
  job.settle();
  CHECK(job.log(1).back() == "'lost': needs a rank that has left: rank 4");
  CHECK(job.submit_in(4, set, "w").status == submission_status::refused);
  const submission late = job.submit_in(2, set, "lost");
  CHECK(late.status == submission_status::failed);
  CHECK(late.why->ranks == rank_set{4});
  CHECK(job.node_of(2).join(set, 900).status == submission_status::failed);
  job.submit_in(1, set, "wanted");  // which rank 4 has submitted before it left
  job.settle();
  for (const int rank : {1, 2, 4}) CHECK(job.log(rank).back() == "wanted#0");
  for (const int rank : {1, 2}) job.node_of(rank).leave_set(set, departure::drained);
  job.settle();
  for (const int rank : {1, 2, 4}) CHECK(job.log(rank).back() == "set 1 has ended");
  for (const int rank : {0, 2, 3, 4}) job.submit(rank, "a");
  job.settle();
  for (int rank = 0; rank < 5; ++rank) {
    CHECK(job.log(rank).back() == "a#0");
    CHECK(job.node_of(rank).log().digest() == job.node_of(0).log().digest());
  }
  CHECK(make_set(job, {1, 2, 4}) == 2);  // numbers are not used again
}

TEST_CASE("joins are per set") {
  fake_job job(4, 2);
  const std::uint32_t set = make_set(job, {1, 3});
  job.node_of(1).join(set, 900);
  job.submit_in(3, set, "w");
  job.submit_all("a");
  job.settle();
  CHECK(job.log(3)[1] == "w#0 of 1");
  CHECK(job.log(1)[1] == "w#0 neutral of 1");
  for (int rank = 0; rank < 4; ++rank) CHECK(job.log(rank).back() == "a#0");
  job.node_of(3).join(set, 900);
  job.settle();
  CHECK(job.log(1).back() == "joined, took 0");
  CHECK(job.log(3).back().substr(0, 8) == "joined, ");
  CHECK(job.log(0).back() == "a#0");
}

TEST_CASE("a set whose member has left since it asked for it is of no use to the others") {
  fake_job job(4, 2);
  signature make = sum_of(1);
  make.kind = op_kind::set_add;
  const std::string name = listed_name({1, 2, 3}, "make");
  job.submit(3, name, make);
  job.node_of(3).leave(departure::drained);
  for (const int rank : {1, 2}) job.submit(rank, name, make);
  job.settle();
  CHECK(job.log(1).back() == name + "#0 makes set 1 of 3");
  const submission late = job.submit_in(1, 1, "w");
  CHECK(late.status == submission_status::failed);
  CHECK(late.why->ranks == rank_set{3});
  for (const int rank : {0, 1, 2}) job.node_of(rank).leave(departure::drained);
  job.settle();
  for (int rank = 0; rank < 4; ++rank) CHECK(job.node_of(rank).released());
}

TEST_CASE("a set may be made while a stall query runs") {
  fake_job job(4, 1);
  const submission mine = job.submit(0, "a");
  job.settle();
  job.stop(2);
  CHECK(job.node_of(0).withdraw(mine.operation, withdrawal_reason::deadline, 0));
  job.settle();
  REQUIRE(job.node_of(1).deadline().has_value());
  const std::uint32_t set = make_set(job, {0, 1});
  job.submit_in(0, set, "w");
  job.node_of(1).join(set, 900);  // which the answer of rank 1 tells
  job.settle();
  job.node_of(1).expire(*job.node_of(1).deadline());
  job.settle();
  CHECK(job.log(0)[1] == "w#0 of 1");
  CHECK(job.log(0).back() ==
        "'a': withdrawn by rank 0 (deadline), ready: rank 0, missing: rank 1, silent: rank 2, "
        "unknown: rank 3, own: deadline");
}

TEST_CASE("a name of a set that has ended is forgotten with the next generation") {
  node_options small;
  small.cache_capacity = 2;
  small.cache_keep = 0;
  small.name_capacity = 4;
  fake_job job(3, 2, small);
  signature create = sum_of(4);
  create.kind = op_kind::group_create;
  for (int round = 0; round < 40; ++round) {
    const std::uint32_t set = make_set(job, {0, 2});
    for (const int rank : {0, 2}) job.submit_in(rank, set, "group", create);  // not removed
    job.submit_in(0, set, "dead");
    job.submit_in(0, set, "dead");
    job.submit_in(2, set, "w");
    job.submit_in(0, set, "w");
    job.settle();
    job.node_of(2).leave_set(set, departure::drained);
    job.node_of(0).leave_set(set, departure::abandoned);
    job.settle();
    CHECK(job.log(0).back() == "set " + std::to_string(set) + " has ended");
  }
  for (int i = 0; i < 10; ++i) {
    job.submit_all("n" + std::to_string(i));
    job.settle();
  }
  for (int rank = 0; rank < 3; ++rank) CHECK(job.node_of(rank).log().names.name_count() < 10);
}

TEST_CASE("a persistent group of some ranks is agreed on, and not started by number") {
  fake_job job(3, 2);
  const std::uint32_t set = make_set(job, {0, 1});
  signature create = sum_of(4);
  create.kind = op_kind::group_create;
  for (const int rank : {0, 1}) {
    CHECK(job.submit_in(rank, set, "p", create).status == submission_status::pending);
    CHECK(job.node_of(rank).join(set, 900).status == submission_status::refused);  // [protocol H2]
  }
  job.settle();
  CHECK(job.node_of(0).start_group(set, "p") == std::nullopt);
  CHECK(job.node_of(0).join(set, 900).status == submission_status::refused);
  for (const int rank : {0, 2}) {
    CHECK(job.submit(rank, "p", create).status == submission_status::pending);
    CHECK(job.node_of(rank).join(0, 900).status == submission_status::refused);
  }
  CHECK(job.node_of(1).join(0, 900).status == submission_status::pending);  // it has none there
  job.settle();
  CHECK(job.log(0).back() == "'p': needs data of rank 1, joined");  // [protocol J6]
  CHECK(job.node_of(0).join(0, 901).status == submission_status::pending);
}

TEST_CASE("a persistent group of a set is removed where its starts are as many on all members") {
  fake_job job(4, 1);
  const std::uint32_t set = make_set(job, {1, 2, 3});
  signature create = sum_of(4);
  create.kind = op_kind::group_create;
  for (const int rank : {1, 2, 3}) job.submit_in(rank, set, "p", create);
  job.settle();
  const auto remove = [&](std::uint64_t on_first) {
    signature sig = sum_of(4);
    sig.kind = op_kind::group_remove;
    for (const int rank : {1, 2, 3}) {
      sig.detail = rank == 1 ? on_first : 2;
      job.submit_in(rank, set, "p", sig);
    }
    job.settle();
    return job.log(2).back();
  };
  CHECK(remove(3).find("starts differs: 3 on rank 1") != std::string::npos);  // [protocol H5]
  CHECK(job.node_of(2).join(set, 900).status == submission_status::refused);
  CHECK(remove(2) == "p#2");
  CHECK(job.node_of(2).join(set, 900).status == submission_status::pending);
  for (int rank = 0; rank < 4; ++rank) CHECK(job.node_of(rank).log().groups.empty());
}

TEST_CASE("a set that ends takes its persistent groups along, be it one of all ranks") {
  fake_job job(3, 2);
  const bool of_all = GENERATE(true, false);
  const rank_set members = of_all ? rank_set{0, 1, 2} : rank_set{0, 2};
  const std::uint32_t set = make_set(job, members);
  signature create = sum_of(4);
  create.kind = op_kind::group_create;
  for (const int rank : members.list()) job.submit_in(rank, set, "p", create);
  for (int rank = 0; rank < 3; ++rank) job.submit(rank, "of all", create);
  job.settle();
  for (int rank = 0; rank < 3; ++rank) CHECK(job.node_of(rank).log().groups.size() == 2);
  CHECK(job.node_of(0).start_group(set, "p") == std::nullopt);
  CHECK(job.node_of(0).start_group(0, "of all") == 0);
  for (const int rank : members.list()) job.node_of(rank).leave_set(set, departure::drained);
  job.settle();
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(job.node_of(rank).log().groups.size() == 1);
    CHECK(job.node_of(rank).log().digest() == job.node_of(0).log().digest());
  }
  signature remove = sum_of(4);
  remove.kind = op_kind::group_remove;
  for (int rank = 0; rank < 3; ++rank) {
    if (rank != 0) CHECK(job.node_of(rank).start_group(0, "of all") == 0);
    remove.detail = job.node_of(rank).group_starts(0, "of all");
    job.submit(rank, "of all", remove);
  }
  job.settle();
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(job.node_of(rank).log().groups.empty());
    CHECK(job.node_of(rank).join(0, 900).status == submission_status::pending);
  }
}

// Their starts are operations, which end like others; so there is nothing to count. [protocol H3]
TEST_CASE("a rank that leaves drains the persistent groups of all ranks, and no others") {
  fake_job job(3, 1);
  const std::uint32_t set = make_set(job, {1, 2});
  signature create = sum_of(4);
  create.kind = op_kind::group_create;
  for (const int rank : {1, 2}) job.submit_in(rank, set, "p", create);
  const bool both = GENERATE(false, true);
  for (int rank = 0; both && rank < 3; ++rank) job.submit(rank, "of all", create);
  job.settle();
  job.node_of(0).leave(departure::drained);
  job.settle();
  CHECK(!job.node_of(2).holds_group_completions());
  const std::string& last = job.log(2).back();
  CHECK((last == "drain of all: 0 made, 0 to 0") == both);
  CHECK(last.find("drain p") == std::string::npos);
  for (const int rank : {1, 2}) {  // who has not left goes on in the set
    CHECK(job.submit_in(rank, set, "p: start").status == submission_status::pending);
  }
  job.settle();
  CHECK(job.log(1).back() == "p: start#0");
}

TEST_CASE("a leave of a set by ranks that are not in it is no message") {
  fake_job job(3, 2);
  const std::uint32_t set = make_set(job, {0, 1});
  const auto give = [&](std::uint32_t which, int rank) {
    bytes message;
    cohort::wire::writer out(message);
    put_header(out, {true, 0});
    put_part(out, part::leave, leaving{{rank}, departure::drained, {}, {}, which});
    node victim = job.node_of(0);
    victim.receive(1, message);
  };
  CHECK_THROWS_AS(give(set, 2), protocol_error);
  CHECK_THROWS_AS(give(set + 1, 1), protocol_error);
  CHECK_NOTHROW(give(set, 1));
}

TEST_CASE("messages of one name to one rank do not collide and the other ranks just apply them") {
  fake_job job(7, 2);
  const auto send = [&](int at, int from, int to, std::int64_t count = 4) {
    return job.submit(at, message_name(from, to, "x"), message_of(from, to, count));
  };
  for (const int from : {5, 2, 6}) send(from, from, 3);
  send(3, 3, 2);  // the other way
  job.settle();
  for (const int rank : {2, 3, 5, 6}) CHECK(job.log(rank).empty());
  send(3, 2, 3);
  send(3, 6, 3);
  job.settle();
  const std::string of_two = message_name(2, 3, "x") + "#0 of 2";
  const std::string of_six = message_name(6, 3, "x") + "#0 of 2";
  CHECK(job.log(2) == std::vector<std::string>{of_two});
  CHECK(job.log(6) == std::vector<std::string>{of_six});
  CHECK(job.log(3).size() == 2);
  CHECK(job.log(5).empty());
  CHECK(job.log(0).empty());
  CHECK(send(0, 2, 3).status == submission_status::refused);
  for (int rank = 0; rank < 7; ++rank) {
    CHECK(job.node_of(rank).log().log_count == 2);
    CHECK(job.node_of(rank).log().cache.size() == 0);
    CHECK(job.node_of(rank).log().digest() == job.node_of(0).log().digest());
  }
}

TEST_CASE("a name says which ranks it lists, and which part of it is the user's") {
  CHECK(own_name("gradient") == "gradient");
  CHECK(own_name("") == "");
  CHECK(own_name("a\x01z") == "a\x01z");
  CHECK(own_name(listed_name({0, 4, 5}, "add")) == "add");
  CHECK(own_name(message_name(11, 2, "x")) == "x");
  CHECK(own_name(message_name(0, 1, "")) == "");
  CHECK(own_name(message_name(0, 1, "a\x01z")) == "a\x01z");
  CHECK(message_name(0, 1, "x") != message_name(1, 0, "x"));
}

TEST_CASE("two ends of a message that differ fail it on both, with the field and the ranks") {
  fake_job job(4, 1);
  const std::string name = message_name(1, 3, "x");
  signature other = message_of(1, 3);
  std::string field;
  SECTION("size") {
    other = message_of(1, 3, 5);
    field = "shape differs: 4 on rank 1 (rank1.cpp:1), 5 on rank 3 (rank3.cpp:1)";
  }
  SECTION("element") {
    other.element = 2;
    field = "type differs: float32 on rank 1 (rank1.cpp:1), int32 on rank 3 (rank3.cpp:1)";
  }
  SECTION("element size") {
    other.element_size = 8;
    field = "element size differs: 4 on rank 1 (rank1.cpp:1), 8 on rank 3 (rank3.cpp:1)";
  }
  SECTION("memory") {
    other.space = cohort::memory_space::device;
    field = "memory differs: host on rank 1 (rank1.cpp:1), device on rank 3 (rank3.cpp:1)";
  }
  SECTION("priority") {
    other.priority = 7;
    field = "priority differs: 0 on rank 1 (rank1.cpp:1), 7 on rank 3 (rank3.cpp:1)";
  }
  SECTION("source") {
    other.root = 2;
    field = "source differs: 1 on rank 1 (rank1.cpp:1), 2 on rank 3 (rank3.cpp:1)";
  }
  SECTION("destination") {
    other.detail = 0;
    field = "destination differs: 3 on rank 1 (rank1.cpp:1), 0 on rank 3 (rank3.cpp:1)";
  }
  job.submit(1, name, message_of(1, 3));
  job.submit(3, name, other);
  job.settle();
  for (const int rank : {1, 3}) {
    REQUIRE(job.log(rank).size() == 1);
    CHECK(job.log(rank).front().find(field) != std::string::npos);
  }
  for (const int rank : {0, 2}) CHECK(job.log(rank).empty());
  job.submit(3, name, message_of(1, 3));  // the next of that name is not concerned
  job.submit(1, name, message_of(1, 3));
  job.settle();
  for (const int rank : {1, 3}) CHECK(job.log(rank).back() == name + "#1 of 2");
}

TEST_CASE("a message ends with the rank at its other end: withdrawn, joined or gone") {
  fake_job job(5, 8);
  const std::string name = message_name(4, 2, "x");
  const auto submit = [&](int rank) { return job.submit(rank, name, message_of(4, 2)); };
  const auto sent = submit(4);
  job.settle();
  job.node_of(4).withdraw(sent.operation, withdrawal_reason::cancelled);
  job.settle();
  CHECK(job.log(4).back() == "'" + name + "': withdrawn by rank 4 (cancelled), own: cancelled");
  CHECK(submit(2).status == submission_status::failed);  // at once, for it is the same one

  const auto late = submit(4);
  job.node_of(4).withdraw(late.operation, withdrawal_reason::deadline);
  job.settle();
  CHECK(job.log(4).back().find("ready: rank 4, missing: rank 2") != std::string::npos);
  CHECK(submit(2).status == submission_status::failed);

  submit(4);
  job.node_of(2).join(0, 900);
  job.settle();
  CHECK(job.log(4).back() == "'" + name + "': needs data of rank 2, joined");
  job.node_of(2).leave(departure::drained);
  submit(4);
  job.settle();
  CHECK(job.log(4).back() == "'" + name + "': needs a rank that has left: rank 2");
  for (const int rank : {0, 1, 3}) CHECK(job.log(rank).empty());
}

TEST_CASE("a message that is not between two ranks is refused as malformed") {
  const auto refuses = [](const std::string& name, const signature& sig) {
    fake_job job(3, 1);
    bytes message;
    job.node_of(1).submit(0, name, sig, 1);
    REQUIRE(job.node_of(1).take_message(0, message));
    try {
      job.node_of(0).receive(1, message);
      return false;
    } catch (const protocol_error&) {
      return true;
    }
  };
  CHECK_FALSE(refuses(message_name(1, 2, "x"), message_of(1, 2)));
  CHECK(refuses("x", message_of(1, 2)));
  CHECK(refuses(listed_name({0, 1, 2}, "x"), message_of(1, 2)));
  CHECK(refuses(message_name(1, 2, "x"), message_of(1, 1)));
  CHECK(refuses(message_name(1, 2, "x"), message_of(-1, 2)));
  signature far = message_of(1, 2);
  far.detail = std::uint64_t{1} << 31U;
  CHECK(refuses(message_name(1, 2, "x"), far));
}

TEST_CASE("epochs that are far ahead of the others are matched all the same") {
  fake_job job(3, 2);
  for (int i = 0; i < 5000; ++i) job.submit(2, "a");
  job.settle();
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < 5000; ++i) job.submit(rank, "a");
    job.settle();
  }
  REQUIRE(job.log(0).size() == 5000);
  CHECK(job.log(0).back() == "a#4999");
  CHECK(job.log(2) == job.log(0));
}

TEST_CASE("new generations keep ranks together that are ahead and behind") {
  node_options small;
  small.cache_capacity = 2;
  small.cache_keep = 1;
  small.name_capacity = 3;
  fake_job job(4, 1, small);
  rng random(3);
  std::vector<std::vector<std::string>> todo(4);
  for (int i = 0; i < 400; ++i) {
    for (auto& each : todo) each.push_back("n" + std::to_string(i % 7));
  }
  bool left = true;
  while (left) {
    left = false;
    const std::size_t rank = random.below(4);
    if (!todo[rank].empty()) {
      job.submit(static_cast<int>(rank), todo[rank].back());
      todo[rank].pop_back();
    }
    if (random.below(3) == 0) job.settle();
    for (const auto& each : todo) left = left || !each.empty();
  }
  job.settle();
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(job.log(rank).size() == 400);
    CHECK(job.node_of(rank).pending() == 0);
    CHECK(job.node_of(rank).log().names.name_count() < 12);
    CHECK(job.node_of(rank).log().digest() == job.node_of(0).log().digest());
  }
}
