// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Nodes that leave, break, or are told nonsense; and the cached path's allocations.

#include "support/catch.hpp"

#include "protocol/fake_job.hpp"

#include <cohort/protocol.hpp>
#include <cohort/protocol/group_table.hpp>
#include <cohort/protocol/message.hpp>
#include <cohort/protocol/node.hpp>
#include <cohort/protocol/validation.hpp>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

using namespace protocol_test;

namespace {
std::atomic<std::size_t> allocations{0};
std::atomic<std::size_t> allocated_bytes{0};
}  // namespace

// A sanitizer brings its own operator new; the counts are zero then, and bounds on them hold.
#if !defined(COHORT_TEST_SANITIZED)

// g++ takes the pair of malloc and free for a mismatch where it inlines only one of them.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

void* operator new(std::size_t size) {
  ++allocations;
  allocated_bytes += size;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

#endif

TEST_CASE("why a rank has left stands in the errors of all the others") {
  fake_job job(5, 2);
  for (const int rank : {0, 1, 3}) job.submit(rank, "pending");
  job.settle();
  job.node_of(4).leave(departure::abandoned, "no weights (train.cpp:41)");
  job.settle();
  const std::string text = "'pending': needs rank 4, which has left: no weights (train.cpp:41)";
  for (const int rank : {0, 1, 3}) CHECK(job.log(rank).back() == text);
  job.node_of(3).leave(departure::abandoned,
                       "as rank 4 has");  // nothing is pending: told all the same
  job.settle();
  const submission late = job.submit(2, "late");
  REQUIRE(late.status == submission_status::failed);
  CHECK(describe("late", *late.why) ==
        "'late': needs rank 4, which has left: no weights (train.cpp:41) (left: ranks 3-4)");
}

TEST_CASE("of a long reason for leaving its beginning is told") {
  fake_job job(2, 2);
  job.submit(0, "pending");
  job.settle();
  job.node_of(1).leave(departure::abandoned, std::string(100'000, 'x'));
  job.settle();
  CHECK(job.log(0).back().size() < longest_reason + 100);
  CHECK(job.log(0).back().find(std::string(longest_reason, 'x')) != std::string::npos);
}

TEST_CASE("operations that need a rank that has left fail, submitted before or after") {
  fake_job job(3, 2);
  job.submit(0, "pending");
  job.submit(1, "pending");
  job.submit(2, "kept");
  job.settle();
  job.node_of(2).leave(departure::drained);
  job.settle();
  CHECK(job.log(1).back() == "'pending': needs a rank that has left: rank 2");
  CHECK(job.submit(0, "later").status == submission_status::failed);
  CHECK(job.submit(2, "own").status == submission_status::refused);
  job.submit(0, "kept");
  job.submit(1, "kept");
  job.settle();
  CHECK(job.log(2).back() == "kept#0");
  job.node_of(0).leave(departure::drained);
  job.node_of(1).leave(departure::abandoned);
  job.settle();
  for (int rank = 0; rank < 3; ++rank) CHECK(job.node_of(rank).released());
}

TEST_CASE("a shutdown with pending operations ends on every subset of ranks") {
  for (int who = 0; who < 16; ++who) {
    fake_job job(4, 2);
    for (int rank = 0; rank < 4; ++rank) {
      job.submit(rank, "all");
      if ((who >> rank & 1) != 0) job.submit(rank, "some");
    }
    for (int rank = 3; rank >= 0; --rank) job.node_of(rank).leave(departure::drained);
    job.settle();
    for (int rank = 0; rank < 4; ++rank) {
      CHECK(job.node_of(rank).released());
      CHECK(job.node_of(rank).pending() == 0);
      // When the leave is known before all have been asked, the one that lacks ranks fails first.
      std::vector<std::string> log = job.log(rank);
      CHECK(std::erase(log, "all#0") == 1);
      const bool mine = (who >> rank & 1) != 0;
      REQUIRE(log.size() == (mine ? 2U : 1U));
      if (mine && who != 15) CHECK(log[0].find("has left") != std::string::npos);
      if (mine && who == 15) CHECK(log[0] == "some#0");
      CHECK(log.back() == "closed");
    }
  }
}

TEST_CASE("a join that a leaver makes impossible fails, and the rank stays joined") {
  fake_job job(3, 2);
  job.node_of(1).join(0, 900);
  job.settle();
  job.node_of(2).leave(departure::drained);
  job.settle();
  CHECK(job.log(1).back() == "join failed: needs a rank that has left: rank 2");
  CHECK(job.submit(1, "a").status == submission_status::refused);
  const submission late = job.node_of(0).join(0, 900);
  CHECK(late.status == submission_status::failed);
  CHECK(job.submit(0, "a").status == submission_status::failed);
  job.node_of(0).leave(departure::drained);
  job.node_of(1).leave(departure::drained);
  job.settle();
  for (int rank = 0; rank < 3; ++rank) CHECK(job.node_of(rank).released());
}

TEST_CASE("persistent starts that others lack are made up for when a rank leaves") {
  fake_job job(3, 1);
  signature create = sum_of(4);
  create.kind = op_kind::group_create;
  for (int rank = 0; rank < 3; ++rank) job.submit(rank, "p", create);
  job.settle();
  for (int rank = 0; rank < 3; ++rank) {
    for (int start = 0; start <= rank; ++start) job.node_of(rank).start_group(0, "p");
  }
  job.node_of(1).leave(departure::drained);
  job.settle();
  CHECK(job.log(0).back() == "drain p: 1 made, 1 to 3");
  CHECK(job.log(2).back() == "drain p: 3 made, 1 to 3");
  CHECK(!job.node_of(0).start_group(0, "p").has_value());  // [protocol H3]
  CHECK(!job.node_of(0).holds_group_completions());
  job.node_of(0).leave(departure::drained);
  job.node_of(2).leave(departure::drained);
  job.settle();
  CHECK(job.node_of(1).released());
}

TEST_CASE("a data operation that fails on one rank closes the negotiation everywhere") {
  fake_job job(4, 2);
  job.submit(1, "a");
  job.node_of(3).join(0, 900);
  job.settle();
  job.node_of(2).data_failed("MPI_ERR_TRUNCATE");
  job.settle();
  const std::string text = "a data operation failed on rank 2: MPI_ERR_TRUNCATE";
  CHECK(job.log(1)[0] == "'a': " + text);
  CHECK(job.log(3)[0] == "join failed: " + text);
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(job.log(rank).back() == "closed by fault");
    const submission late = job.submit(rank, "b");
    CHECK(late.status == submission_status::failed);
    CHECK(late.why->kind == failure_kind::data);
    CHECK(job.node_of(rank).released());
  }
}

TEST_CASE(
    "nothing follows the end by a fault, whatever the ranks have sent before they know of it") {
  fake_job job(4, 2);
  job.submit(1, "a");
  job.settle();
  job.node_of(2).data_failed("MPI_ERR_TRUNCATE");
  job.node_of(1).leave(departure::drained);
  job.node_of(3).leave(departure::abandoned);
  job.submit(0, "a");
  job.settle();
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(job.log(rank).back() == "closed by fault");
    CHECK(job.node_of(rank).released());
  }
}

TEST_CASE("a rank that gives up withdraws what is pending and abandons, and still takes part") {
  fake_job job(3, 2);
  job.submit(1, "a");
  job.submit(2, "a");
  job.submit(1, "b");
  job.submit(0, "b");
  job.settle();
  job.submit(0, "a");  // elected; rank 1 does not know yet
  job.node_of(1).give_up();
  CHECK(job.submit(1, "c").status == submission_status::refused);
  job.settle();
  CHECK(job.log(1)[0] == "a#0");
  CHECK(job.log(1)[1] ==
        "'b': withdrawn by rank 1 (no decision in time), own: no decision in time");
  CHECK(job.log(0)[1] == "'b': withdrawn by rank 1 (no decision in time)");
  const submission late = job.submit(2, "c");
  REQUIRE(late.status == submission_status::failed);
  CHECK(describe("c", *late.why) == "'c': needs a rank that has left: rank 1 (abandoned: rank 1)");
}

TEST_CASE("failures that a rank has not asked for are kept up to a capacity, then it is a fault") {
  node_options small;
  small.poison_capacity = 3;
  fake_job job(3, 2, small);
  for (int i = 0; i < 5; ++i) {
    const submission one = job.submit(1, "n" + std::to_string(i));
    job.node_of(1).withdraw(one.operation, withdrawal_reason::cancelled);
    job.settle();
  }
  CHECK(job.log(0).back() == "closed by fault");
}

TEST_CASE("bytes that no rank sends are named errors, and cost little memory") {
  fake_job job(4, 2);
  job.record = true;
  signature other = sum_of(3);
  other.members = "x:1";
  for (int round = 0; round < 3; ++round) {
    for (int rank = 0; rank < 4; ++rank) {
      job.submit(rank, "a");
      job.submit(rank, "b" + std::to_string(round), rank == 2 && round == 1 ? other : sum_of(4));
    }
    job.settle();
  }
  job.node_of(3).request_report();
  job.node_of(1).leave(departure::drained);
  job.settle();
  REQUIRE(job.recorded.size() > 10);
  rng random(11);
  std::size_t refused = 0;
  std::size_t most = 0;
  for (int round = 0; round < 3000; ++round) {
    fake_job::sent_message bad = job.recorded[random.below(job.recorded.size())];
    node victim = bad.before;  // as it was when the message came
    for (std::size_t flips = 1 + random.below(4); flips > 0; --flips) {
      const std::size_t bit = random.below(bad.message.size() * 8);
      bad.message[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
    if (random.below(5) == 0) bad.message.resize(random.below(bad.message.size() + 1));
    const std::size_t before = allocated_bytes;
    try {
      victim.receive(bad.from, bad.message);
      bytes out;
      for (int to = 0; to < 4; ++to) static_cast<void>(victim.take_message(to, out));
    } catch (const protocol_error& problem) {
      ++refused;
      CHECK(problem.code().category() == protocol_category());
    }
    most = std::max<std::size_t>(most, allocated_bytes - before);
  }
  CHECK(refused > 300);
  CHECK(most < 100'000);
}

TEST_CASE("ranks are checked to be those that a neighbour can speak for") {
  fake_job job(4, 2);  // 0: 1 3; 1: 2
  const auto refused = [&](int from, const auto& value, part tag) {
    bytes out;
    cohort::wire::writer to(out);
    put_header(to, {true, 0});
    put_part(to, tag, value);
    node victim = job.node_of(0);
    CHECK_THROWS_AS(victim.receive(from, out), protocol_error);
  };
  announcement a;
  a.entry = {none, 0, "a", sum_of(1), {}};
  a.whole = false;
  a.who = {3};
  refused(1, a, part::announce);
  a.entry.set = 7;
  refused(1, a, part::announce);
  refused(2, a, part::announce);  // not a child
  refused(1, withdrawal{{{none, 0, "a"}, 0}, 3, {}}, part::withdraw);
  refused(1, withdrawal{{{5, 0, {}}, 0}, 1, {}}, part::withdraw);
  refused(1, leaving{{77}, {}, {}, {}}, part::leave);
  refused(1, contradiction{{{none, 0, "a"}, 0}, {}}, part::contradiction);
}

TEST_CASE("the cached path allocates nothing") {
  node_options options;
  options.in_flight = 100'000;
  fake_job job(3, 2, options);
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back("layer" + std::to_string(i) + "/dense/kernel");
  const signature sig = sum_of(1000);
  std::size_t used = 0;
  for (int round = 0; round < 6; ++round) {
    const std::size_t before = allocations;
    for (int rank = 0; rank < 3; ++rank) {
      for (const std::string& name : names) job.submit_silently(rank, name, sig);
    }
    CHECK(job.settle_silently() == 3000);
    used = allocations - before;
  }
  CHECK(used < 50);  // of 3000 operations: the test's messages
}
