// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The protocol between ranks on an in-process network: every order of messages, abort, cleanup,
// close, lost peers, and bytes that are no messages.
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "rendezvous/support.hpp"
#include "support/catch.hpp"
#include "support/patience.hpp"

namespace {

using namespace rendezvous_test;
using numbers = std::vector<int>;

meeting::node_options pulled() {
  meeting::node_options options;
  options.push_limit = 0;
  return options;
}

std::exception_ptr failure(errc code, const char* text = "by the test") {
  return std::make_exception_ptr(cohort::error(code, text));
}

template <class Call>
std::error_code code_of(Call call) {
  try {
    call();
  } catch (const std::system_error& problem) {
    return problem.code();
  }
  return {};
}

}  // namespace

TEST_CASE("a value is pushed, pulled or moved, whichever comes first", "[rendezvous][node]") {
  for (const bool pushes : {true, false}) {
    for (const bool receive_first : {true, false}) {
      for (const int size : {1, 1000, 100000}) {
        INFO(pushes << receive_first << size);
        fake_job job(2, pushes ? meeting::node_options() : pulled());
        const auto key = key_of(0, 1, "value");
        probe<numbers> one;
        if (receive_first) {
          job.receive(1, key, one);
          job.settle();
          CHECK(one.waits());
        }
        job.send(1, key, numbers(static_cast<std::size_t>(size), 3));
        job.settle();
        if (!receive_first) {
          job.receive(1, key, one);
          job.settle();
        }
        CHECK(one.ends == 1);
        CHECK(one.take() == numbers(static_cast<std::size_t>(size), 3));
        CHECK(job.moved == (size == 100000 ? 1 : 0));
        const bool small = size != 100000;
        const bool pushed = small && pushes && !receive_first;
        CHECK(job[0].statistics().pushed == (pushed ? 1 : 0));
        CHECK(job[0].statistics().pulled == (small && !pushed ? 1 : 0));
        CHECK(job[0].statistics().granted == (small ? 0 : 1));
        CHECK(job.step(0, 1).unreceived == 0);
        CHECK_FALSE(job[1].busy());
      }
    }
  }
}

TEST_CASE("a pushed third value does not overtake a pulled second one", "[rendezvous][node]") {
  meeting::node_options options;
  options.push_limit = 16;
  fake_job job(2, options);
  const auto key = key_of(0, 1, "order");
  job.send(1, key, numbers(1, 0));
  job.send(1, key, numbers(100, 1));    // pulled
  job.send(1, key, numbers(1, 2));      // pushed
  job.send(1, key, numbers(10000, 3));  // moved
  job.send(1, key, numbers(1, 4));
  job.settle();
  std::vector<std::unique_ptr<probe<numbers>>> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back(std::make_unique<probe<numbers>>());
    job.receive(1, key, *all.back());
  }
  job.settle();
  for (int i = 0; i < 5; ++i) {
    const auto got = all[static_cast<std::size_t>(i)]->take();
    REQUIRE(got);
    CHECK(got->front() == i);
  }
}

TEST_CASE("pushes stop where the credit ends and go on when it is back", "[rendezvous][node]") {
  meeting::node_options options;
  options.credit = 3 * (sizeof(int) + meeting::overhead_of_value);
  fake_job job(2, options);
  const auto key = key_of(0, 1, "credit");
  for (int i = 0; i < 10; ++i) job.send(1, key, i);
  job.settle();
  CHECK(job.step(0, 1).out.begin()->second.values.size() == 7);
  for (int i = 0; i < 10; ++i) {
    probe<int> one;
    job.receive(1, key, one);
    job.settle();
    CHECK(one.take() == i);
  }
  CHECK(job.step(0, 1).unreceived == 0);
  for (int i = 0; i < 3; ++i) job.send(1, key, i);
  CHECK(job.step(0, 1).out.begin()->second.values.empty());  // pushed again
}

TEST_CASE("10000 values of one key arrive in order from another rank", "[rendezvous][node]") {
  fake_job job(2);
  const auto key = key_of(0, 1, "many");
  std::vector<std::unique_ptr<probe<int>>> all;
  for (int i = 0; i < 10000; ++i) {
    all.push_back(std::make_unique<probe<int>>());
    job.receive(1, key, *all.back());
  }
  for (int i = 0; i < 10000; ++i) job.send(1, key, i);
  job.settle();
  for (int i = 0; i < 10000; ++i) {
    if (all[static_cast<std::size_t>(i)]->take() != i) FAIL(i);
  }
}

TEST_CASE("a cancelled receive leaves its value to the next", "[rendezvous][node]") {
  for (const bool late : {false, true}) {  // the request has arrived before it is withdrawn
    fake_job job(2, pulled());
    const auto key = key_of(0, 1, "cancelled");
    probe<int> r[4];
    for (auto& one : r) job.receive(1, key, one);
    if (late) job.settle();
    for (const int i : {1, 2}) {
      CHECK(job[1].cancel(job.step(1, 1), r[i], failure(errc::closed)));
    }
    job.send(1, key, 10);
    job.send(1, key, 11);
    job.send(1, key, 12);
    job.settle();
    CHECK(r[0].take() == 10);
    CHECK(r[3].take() == 11);
    CHECK(r[1].code() == errc::closed);
    probe<int> next;
    job.receive(1, key, next);
    job.settle();
    CHECK(next.take() == 12);
    CHECK(job.step(0, 1).unreceived == 0);
    CHECK_FALSE(job[1].busy());
  }
}

TEST_CASE("a transfer that was granted is waited for", "[rendezvous][node]") {
  fake_job job(2);
  const auto key = key_of(0, 1, "large");
  probe<numbers> one;
  job.receive(1, key, one);
  job.send(1, key, numbers(100000, 1));
  job.settle();
  CHECK(one.take() == numbers(100000, 1));

  probe<numbers> aborted;
  job.receive(1, key, aborted);
  job.settle();
  job.send(1, key, numbers(100000, 2));
  job.flush();
  auto offer = job.net.deliver();
  job[1].receive(0, offer->message);
  CHECK_FALSE(job[1].cancel(job.step(1, 1), aborted, failure(errc::closed)));
  job[1].abort(job.step(1, 1), failure(errc::stalled));
  CHECK(aborted.waits());
  job.settle();
  CHECK(aborted.code() == errc::stalled);
  CHECK_FALSE(job[1].busy());
  CHECK_FALSE(job[0].busy());
}

TEST_CASE("an offer that nobody takes stays with the source", "[rendezvous][node]") {
  fake_job job(2);
  const auto key = key_of(0, 1, "large");
  probe<numbers> gone;
  job.receive(1, key, gone);
  job.send(1, key, numbers(100000, 1));
  job.net.hold(0, 1);
  job.settle();
  CHECK(job[1].cancel(job.step(1, 1), gone, failure(errc::closed)));
  job.net.release(0, 1);
  job.settle();
  CHECK(job.moved == 0);
  probe<std::string> wrong;
  job.receive(1, key, wrong);
  job.settle();
  CHECK(wrong.code() == errc::type_mismatch);
  probe<numbers> small;
  small.room = 100;
  job.receive(1, key, small);
  job.settle();
  CHECK(small.code() == errc::message_too_long);
  probe<numbers> next;
  job.receive(1, key, next);
  job.settle();
  CHECK(next.take() == numbers(100000, 1));
}

TEST_CASE("few tags are enough for many transfers", "[rendezvous][node]") {
  meeting::node_options options;
  options.tags = 2;
  fake_job job(3, options);
  std::vector<std::unique_ptr<probe<numbers>>> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(std::make_unique<probe<numbers>>());
    job.receive(1, key_of(i % 2 * 2, 1, "t", static_cast<unsigned>(i)), *all.back());
  }
  for (int i = 0; i < 20; ++i) {
    job.send(1, key_of(i % 2 * 2, 1, "t", static_cast<unsigned>(i)), numbers(5000, i));
  }
  job.settle();
  for (int i = 0; i < 20; ++i) {
    CHECK(all[static_cast<std::size_t>(i)]->take() == numbers(5000, i));
  }
  CHECK(job.moved == 20);
}

TEST_CASE("an abort is the answer to remote requests, and its cause with it",
          "[rendezvous][node]") {
  fake_job job(3);
  probe<int> early, other, local;
  job.receive(1, key_of(0, 1, "x"), early);
  job.receive(1, key_of(2, 1, "x"), other);
  job.receive(1, key_of(0, 0, "x"), local);
  job.settle();
  job[0].abort(job.step(0, 1), failure(errc::stalled, "the disk is full"));
  CHECK(local.code() == errc::stalled);
  job.settle();
  CHECK(early.code() == errc::aborted);
  CHECK_THAT(early.what(), Catch::Matchers::ContainsSubstring("the disk is full"));
  try {
    std::rethrow_exception(early.error);
  } catch (const cohort::step_aborted_error& problem) {
    CHECK(problem.cause() == errc::stalled);
    CHECK(problem.ranks() == std::vector<int>{0});
  }
  CHECK(other.waits());  // local to the rank
  probe<int> late;
  job.receive(1, key_of(0, 1, "y"), late);
  job.settle();
  CHECK(late.code() == errc::aborted);
  CHECK(code_of([&] { job.send(1, key_of(0, 1, "z"), 1); }) == errc::stalled);
  // The receive that waits for the third rank is ended here: its request is withdrawn.
  CHECK(job[1].busy());
  job[1].abort(job.step(1, 1), early.error);
  CHECK(other.code() == errc::aborted);
  job.settle();
  CHECK_FALSE(job[1].busy());
  // A root cause comes later and wins.
  job[1].abort(job.step(1, 1), failure(errc::bad_rank));
  probe<int> last;
  job.receive(1, key_of(2, 1, "q"), last);
  CHECK(last.code() == errc::bad_rank);
}

TEST_CASE("values pushed to a step that has ended give their credit back", "[rendezvous][node]") {
  meeting::node_options options;
  options.credit = 2 * (sizeof(int) + meeting::overhead_of_value);
  fake_job job(2, options);
  job[1].abort(job.step(1, 1), failure(errc::stalled));
  for (int i = 0; i < 20; ++i) {
    job.send(1, key_of(0, 1, "k"), i);
    job.settle();
    CHECK(job.step(0, 1).unreceived == 0);
  }
}

TEST_CASE("drained says when all has been received", "[rendezvous][node]") {
  for (const std::size_t limit : {std::size_t{0}, std::size_t{4096}}) {
    meeting::node_options options;
    options.push_limit = limit;
    fake_job job(2, options);
    const auto key = key_of(0, 1, "d");
    probe<int> drained;
    job.send(1, key, 1);
    job.send(1, key, 2);
    job[0].drain(job.step(0, 1), drained);
    job.settle();
    CHECK(drained.waits());
    probe<int> a, b;
    job.receive(1, key, a);
    job.settle();
    CHECK(drained.waits());
    job.receive(1, key, b);
    job.settle();
    CHECK(drained.ends == 1);
    CHECK_FALSE(drained.error);
    probe<int> at_once;
    job[0].drain(job.step(0, 1), at_once);
    CHECK(at_once.ends == 1);
  }
}

TEST_CASE("a step that was cleaned up is refused for ever", "[rendezvous][node]") {
  fake_job job(2, pulled());
  probe<int> waits, late;
  job.receive(7, key_of(0, 1, "x"), waits);
  job.settle();
  CHECK(job[0].cleanup(7));
  job.settle();
  CHECK(waits.code() == errc::step_cleaned);
  job.receive(7, key_of(0, 1, "y"), late);
  job.settle();
  CHECK(late.code() == errc::step_cleaned);
  CHECK(code_of([&] { job[0].step(7); }) == errc::step_cleaned);
  CHECK_FALSE(job[0].cleanup(8));  // never seen: the number is used up
  CHECK(code_of([&] { job[0].step(8); }) == errc::step_cleaned);
}

TEST_CASE("who drains before it cleans up loses nothing", "[rendezvous][node]") {
  fake_job job(2, pulled());
  for (cohort::step_id step = 0; step < 50; ++step) {
    const auto key = key_of(0, 1, "x");
    probe<int> drained, got;
    job.send(step, key, static_cast<int>(step));
    job[0].drain(job.step(0, step), drained);
    drained.then = [] {};
    job.settle();
    CHECK(drained.waits());
    job.receive(step, key, got);
    job.settle();
    CHECK(drained.ends == 1);
    job[0].cleanup(step);
    CHECK(got.take() == static_cast<int>(step));
    job[1].cleanup(step);
  }
  CHECK(job[0].steps().empty());
  CHECK(job[1].steps().empty());
}

TEST_CASE("after close requests are refused, values are served, leaks are named",
          "[rendezvous][node]") {
  fake_job job(2, pulled());
  probe<int> never, served;
  job.send(1, key_of(0, 1, "served"), 5);
  job.send(1, key_of(0, 1, "leaked"), 6);
  job.receive(1, key_of(0, 1, "never"), never);
  job.settle();
  probe<int> mine;
  job.receive(1, key_of(1, 0, "mine"), mine);
  job[0].close();
  CHECK(mine.code() == errc::closed);
  CHECK(code_of([&] { job[0].step(2); }) == errc::closed);
  job.settle();
  CHECK(never.code() == errc::closed);
  job.receive(1, key_of(0, 1, "served"), served);
  job.settle();
  CHECK(served.take() == 5);
  job[1].close();
  job.settle();
  CHECK_FALSE(job[0].busy());
  CHECK_FALSE(job[1].busy());
  const auto leaks = job[0].finish();
  REQUIRE(leaks.size() == 1);
  CHECK(leaks[0].key.view().name == "leaked");
  CHECK(leaks[0].values == 1);
  CHECK(leaks[0].bytes == sizeof(int));
}

TEST_CASE("who needs a value of a rank that has left is told why", "[rendezvous][node]") {
  fake_job job(3, pulled());
  probe<int> waiting, served, later, other, drained;
  job.send(1, key_of(0, 1, "served"), 5);
  job.receive(1, key_of(0, 1, "waiting"), waiting);
  job.receive(1, key_of(2, 1, "other"), other);
  job.send(1, key_of(1, 0, "unwanted"), 6);
  job[1].drain(job.step(1, 1), drained);
  job.settle();
  job[0].close("no weights (train.cpp:41)");
  job[0].close("said too late");
  job.settle();
  CHECK(waiting.code() == errc::peer_lost);
  CHECK(waiting.what().starts_with("rank 1, step 1, '"));
  const std::string why = "': needs rank 0, which has left: no weights (train.cpp:41)";
  CHECK_THAT(waiting.what(), Catch::Matchers::ContainsSubstring(why));
  for (const cohort::step_id step : {1, 2}) {  // one that it knows, and one that it does not
    probe<int> asking;
    job.receive(step, key_of(0, 1, "later"), asking);
    job.settle();
    REQUIRE(asking.code() == errc::peer_lost);
    CHECK_THAT(asking.what(), Catch::Matchers::ContainsSubstring(why));
    try {
      std::rethrow_exception(asking.error);
    } catch (const cohort::peer_lost_error& problem) {
      CHECK(problem.ranks() == std::vector<int>{0});
    }
  }
  // Else it is as after a close.
  CHECK(drained.ends == 1);
  CHECK_FALSE(drained.error);
  job.receive(1, key_of(0, 1, "served"), served);
  job.send(1, key_of(2, 1, "other"), 7);
  job.settle();
  CHECK(served.take() == 5);
  CHECK(other.take() == 7);
  for (int rank = 0; rank < 3; ++rank) {
    job[rank].close();
    job.settle();
    CHECK_FALSE(job[rank].busy());
  }
  for (int rank = 0; rank < 3; ++rank) CHECK(job[rank].finish().size() == (rank == 1 ? 1 : 0));
}

TEST_CASE("of a long reason for leaving its beginning is told", "[rendezvous][node]") {
  fake_job job(2);
  probe<int> waiting;
  job.receive(1, key_of(0, 1, "x"), waiting);
  job.settle();
  job[0].close(std::string(100'000, 'x'));
  job.settle();
  CHECK(waiting.what().find(std::string(cohort::longest_reason, 'x')) != std::string::npos);
  CHECK(waiting.what().size() < cohort::longest_reason + 200);
}

TEST_CASE("values that arrived and were not received are leaks of the receiver",
          "[rendezvous][node]") {
  fake_job job(2);
  job.send(1, key_of(0, 1, "pushed"), 6);
  job.settle();
  job[1].close();
  job.send(1, key_of(0, 1, "later"), 7);
  job.settle();
  const auto leaks = job[1].finish();
  CHECK(leaks.size() == 2);
}

TEST_CASE("a lost rank ends the receives from it and no others", "[rendezvous][node]") {
  fake_job job(3);
  probe<int> from_lost, from_other, later;
  job.receive(1, key_of(0, 1, "a"), from_lost);
  job.receive(1, key_of(2, 1, "a"), from_other);
  job.settle();
  probe<int> drained;
  job.send(1, key_of(1, 0, "to lost"), numbers(10000, 1));
  job[1].drain(job.step(1, 1), drained);
  job.net.isolate(0);
  job[1].lose(0);
  job[2].lose(0);
  CHECK(from_lost.code() == errc::peer_lost);
  CHECK(drained.code() == errc::peer_lost);
  CHECK(from_other.waits());
  job.receive(1, key_of(0, 1, "b"), later);
  CHECK(later.code() == errc::peer_lost);
  CHECK(code_of([&] { job.send(1, key_of(1, 0, "x"), 1); }) == errc::peer_lost);
  job.send(1, key_of(2, 1, "a"), 4);
  job.settle();
  CHECK(from_other.take() == 4);
}

TEST_CASE("a key of an earlier process is refused", "[rendezvous][node]") {
  fake_job job(2);
  auto key = key_of(0, 1, "x");
  key.source_incarnation = 5;
  job[1].open_with({100, 101});
  probe<int> old;
  job.receive(1, key, old);
  CHECK(old.code() == errc::stale_incarnation);
  key.source_incarnation = 100;
  probe<int> now;
  job.receive(1, key, now);
  job.send(1, key, 3);
  job.settle();
  CHECK(now.take() == 3);
  // The process behind the rank is another one than the receiver knows.
  job[1].open_with({99, 101});
  probe<int> restarted;
  job.receive(1, key_of(0, 1, "y"), restarted);
  job.settle();
  CHECK(restarted.code() == errc::stale_incarnation);
  // Before they are known, keys wait to be compared.
  fake_job early(2);
  key.source_incarnation = 5;
  probe<int> waits;
  early.receive(1, key, waits);
  CHECK(waits.waits());
  early[1].open_with({100, 101});
  CHECK(waits.code() == errc::stale_incarnation);
}

TEST_CASE("what is called before the initialisation is done at it", "[rendezvous][node]") {
  meeting::node_options options;
  meeting::node one(options);
  probe<int> local, strange, remote;
  auto step = one.step(1);
  one.receive(*step, key_of(0, 0, "local"), local);
  one.receive(*step, key_of(0, 1, "strange"), strange);
  one.receive(*step, key_of(1, 0, "remote"), remote);
  step->deferred.emplace_back(cohort::owned_key(key_of(0, 0, "local")), packet_of(4));
  step->deferred.emplace_back(cohort::owned_key(key_of(0, 1, "out")), packet_of(5));
  CHECK(local.waits());
  one.open(0, 2, 1);
  CHECK(local.take() == 4);
  CHECK(strange.code() == errc::not_local);
  CHECK(remote.waits());
  std::vector<std::byte> message;
  CHECK(one.outbox().take_message(1, message));
  CHECK(step->unreceived == 1);

  meeting::node never(options);
  probe<int> waiting;
  auto other = never.step(1);
  never.receive(*other, key_of(0, 0, "x"), waiting);
  never.close();
  CHECK(waiting.code() == errc::not_initialised);

  meeting::node wrong(options);
  auto third = wrong.step(1);
  third->deferred.emplace_back(cohort::owned_key(key_of(1, 0, "not mine")), packet_of(4));
  wrong.open(0, 2, 1);
  CHECK(code_of([&] { std::rethrow_exception(third->local.ended()); }) == errc::not_local);
}

TEST_CASE("single use reports duplicates on the sending side", "[rendezvous][node]") {
  meeting::node_options options;
  options.single_use = true;
  fake_job job(2, options);
  job.send(1, key_of(0, 1, "x"), 1);
  CHECK(code_of([&] { job.send(1, key_of(0, 1, "x"), 2); }) == errc::duplicate_key);
  probe<int> one, two;
  job.receive(1, key_of(0, 1, "x"), one);
  job.settle();
  CHECK(one.take() == 1);
  job.receive(1, key_of(0, 1, "x"), two);
  CHECK(two.code() == errc::duplicate_key);
}

TEST_CASE("requests that arrive twice are answered once", "[rendezvous][node]") {
  cohort::testing::network_options network;
  network.duplicate = 0.3;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    network.seed = seed;
    fake_job job(2, pulled(), network);
    std::vector<std::unique_ptr<probe<int>>> all;
    for (int i = 0; i < 10; ++i) {
      all.push_back(std::make_unique<probe<int>>());
      job.receive(1, key_of(0, 1, "x"), *all.back());
      job.send(1, key_of(0, 1, "x"), i);
      if (i % 3 == 0) job.one();
    }
    job.settle();
    for (int i = 0; i < 10; ++i) {
      REQUIRE(all[static_cast<std::size_t>(i)]->ends == 1);
      REQUIRE(all[static_cast<std::size_t>(i)]->take() == i);
    }
  }
}

// A model beside the job: every key is a queue, and every receive gets the values in order.
TEST_CASE("random programs on random schedules lose nothing", "[rendezvous][node]") {
  for (unsigned seed = 1; seed <= cohort_test::some_of(1500); ++seed) {
    std::mt19937 random(seed);
    meeting::node_options options;
    options.push_limit = std::vector<std::size_t>{0, 8, 4096}[random() % 3];
    options.credit = std::vector<std::uint64_t>{0, 200, 1U << 20U}[random() % 3];
    options.inline_limit = std::vector<std::size_t>{16, 8192}[random() % 2];
    options.tags = 1 + static_cast<int>(random() % 3);
    cohort::testing::network_options network;
    network.seed = seed;
    network.max_delay = random() % 5;
    const int ranks = 2 + static_cast<int>(random() % 3);
    fake_job job(ranks, options, network);
    struct traffic {
      int sent = 0;
      std::vector<std::unique_ptr<probe<numbers>>> receives;
      std::vector<bool> cancelled;
    };
    std::map<std::pair<int, int>, traffic> all;  // (source, destination) → one key each
    const auto act = [&] {
      const int from = static_cast<int>(random()) & 0x7fff;
      const int source = from % ranks;
      const int destination = static_cast<int>(random() % static_cast<unsigned>(ranks));
      traffic& one = all[{source, destination}];
      const auto key = key_of(source, destination, "k");
      switch (random() % 5) {
        case 0:
        case 1:
          job.send(1, key, numbers(1 + random() % 12, one.sent++));
          break;
        case 2:
        case 3:
          one.receives.push_back(std::make_unique<probe<numbers>>());
          one.cancelled.push_back(false);
          job.receive(1, key, *one.receives.back());
          break;
        default:
          if (!one.receives.empty()) {
            const std::size_t which = random() % one.receives.size();
            if (one.receives[which]->waits() &&
                job[destination].cancel(job.step(destination, 1), *one.receives[which],
                                        failure(errc::closed))) {
              one.cancelled[which] = true;
            }
          }
      }
    };
    for (int i = 0; i < 60; ++i) {
      act();
      for (unsigned n = random() % 4; n != 0; --n) job.one();
    }
    // Whatever is missing on either side comes now.
    for (auto& [ends, one] : all) {
      const auto key = key_of(ends.first, ends.second, "k");
      int live = 0;
      for (const bool cancelled : one.cancelled) live += cancelled ? 0 : 1;
      for (; one.sent < live; ++one.sent) job.send(1, key, numbers(3, one.sent));
      for (; live < one.sent; ++live) {
        one.receives.push_back(std::make_unique<probe<numbers>>());
        one.cancelled.push_back(false);
        job.receive(1, key, *one.receives.back());
      }
    }
    job.settle();
    INFO("seed " << seed);
    for (auto& [ends, one] : all) {
      int next = 0;
      for (std::size_t i = 0; i < one.receives.size(); ++i) {
        REQUIRE(one.receives[i]->ends == 1);
        if (one.cancelled[i]) continue;
        const auto got = one.receives[i]->take();
        REQUIRE(got);
        REQUIRE(got->front() == next++);
      }
      REQUIRE(next == one.sent);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      REQUIRE(job.step(rank, 1).unreceived == 0);
      REQUIRE_FALSE(job[rank].busy());
      REQUIRE(meeting::node::leaks_of(job.step(rank, 1)).empty());
    }
  }
}

TEST_CASE("random ends leave nobody waiting", "[rendezvous][node]") {
  for (unsigned seed = 1; seed <= cohort_test::some_of(1500); ++seed) {
    std::mt19937 random(seed);
    meeting::node_options options;
    options.push_limit = random() % 2 == 0 ? 0 : 4096;
    options.inline_limit = random() % 2 == 0 ? 16 : 8192;
    cohort::testing::network_options network;
    network.seed = seed;
    constexpr int ranks = 3;
    fake_job job(ranks, options, network);
    std::vector<std::unique_ptr<probe<numbers>>> all;
    std::vector<std::unique_ptr<probe<numbers>>> drains;
    std::vector<bool> closed(ranks);
    for (int i = 0; i < 80; ++i) {
      const int here = static_cast<int>(random() % ranks);
      const int there = static_cast<int>(random() % ranks);
      const cohort::step_id step = static_cast<int>(random() % 3);
      const auto unless_over = [](auto call) {
        try {
          call();
        } catch (const std::system_error&) {
        }
      };
      switch (random() % 13) {
        case 12:
          unless_over([&] {
            auto& at = job.step(here, step);
            drains.push_back(std::make_unique<probe<numbers>>());
            job[here].drain(at, *drains.back());
          });
          break;
        case 0:
          unless_over([&] { job[here].abort(job.step(here, step), failure(errc::stalled)); });
          break;
        case 1:
          if (random() % 3 == 0) job[here].cleanup(step);
          break;
        case 2:
          if (i > 60) {
            job[here].close();
            closed[static_cast<std::size_t>(here)] = true;
          }
          break;
        case 3:
        case 4:
        case 5:
        case 6:
          unless_over(
              [&] { job.send(step, key_of(here, there, "k"), numbers(1 + random() % 9, i)); });
          break;
        default:
          unless_over([&] {
            auto& at = job.step(there, step);
            all.push_back(std::make_unique<probe<numbers>>());
            job[there].receive(at, key_of(here, there, "k"), *all.back());
          });
      }
      for (unsigned n = random() % 3; n != 0; --n) job.one();
    }
    for (int rank = 0; rank < ranks; ++rank) job[rank].close();
    job.settle();
    INFO("seed " << seed);
    for (const auto& one : all) REQUIRE(one->ends == 1);
    for (const auto& one : drains) REQUIRE(one->ends == 1);
    for (int rank = 0; rank < ranks; ++rank) {
      REQUIRE_FALSE(job[rank].busy());
      REQUIRE_FALSE(job[rank].waits());
      static_cast<void>(job[rank].finish());
    }
  }
}

TEST_CASE("a rank that dies at any moment leaves nobody waiting", "[rendezvous][node]") {
  for (unsigned seed = 1; seed <= cohort_test::some_of(1500); ++seed) {
    std::mt19937 random(seed);
    meeting::node_options options;
    options.push_limit = random() % 2 == 0 ? 0 : 4096;
    options.inline_limit = random() % 2 == 0 ? 16 : 8192;
    options.tags = 1 + static_cast<int>(random() % 3);
    cohort::testing::network_options network;
    network.seed = seed;
    constexpr int ranks = 4;
    constexpr int dies = 3;
    fake_job job(ranks, options, network);
    struct one_receive {
      int source;
      int destination;
      std::unique_ptr<probe<numbers>> what = std::make_unique<probe<numbers>>();
    };
    std::vector<one_receive> all;
    std::vector<std::pair<int, std::unique_ptr<probe<numbers>>>> drains;
    std::map<std::pair<int, int>, int> missing;  // receives without a value
    const int when = static_cast<int>(random() % 80);
    for (int i = 0; i < 80; ++i) {
      if (i == when) job.kill(dies);
      const bool dead = i >= when;
      const int here = static_cast<int>(random() % (dead ? ranks - 1 : ranks));
      const int there = static_cast<int>(random() % ranks);
      switch (random() % 7) {
        case 0:
        case 1:
        case 2:
          if (dead && there == dies) {
            CHECK(code_of([&] { job.send(1, key_of(here, there, "k"), 1); }) == errc::peer_lost);
          } else {
            job.send(1, key_of(here, there, "k"), numbers(1 + random() % 9, i));
            --missing[{here, there}];
          }
          break;
        case 3:
          drains.emplace_back(here, std::make_unique<probe<numbers>>());
          job[here].drain(job.step(here, 1), *drains.back().second);
          break;
        default:
          all.push_back({there, here});
          job.receive(1, key_of(there, here, "k"), *all.back().what);
          ++missing[{there, here}];
      }
      for (unsigned n = random() % 3; n != 0; --n) job.one();
    }
    for (auto& [ends, count] : missing) {  // the living get what they wait for, and take all
      if (ends.first == dies || ends.second == dies) continue;
      for (; count > 0; --count) job.send(1, key_of(ends.first, ends.second, "k"), numbers(2, 1));
      for (; count < 0; ++count) {
        all.push_back({ends.first, ends.second});
        job.receive(1, key_of(ends.first, ends.second, "k"), *all.back().what);
      }
    }
    job.settle();
    INFO("seed " << seed);
    for (const one_receive& one : all) {
      if (one.destination == dies) continue;
      REQUIRE(one.what->ends == 1);
      if (one.source == dies) {
        const bool allowed = !one.what->error || one.what->code() == errc::peer_lost;
        REQUIRE(allowed);
      } else {
        REQUIRE_FALSE(one.what->error);
      }
    }
    for (const auto& [rank, one] : drains) {
      if (rank == dies) continue;
      REQUIRE(one->ends == 1);
      const bool allowed = !one->error || one->code() == errc::peer_lost;
      REQUIRE(allowed);
    }
    for (int rank = 0; rank < dies; ++rank) REQUIRE_FALSE(job[rank].busy());
  }
}

TEST_CASE("drained ends when a destination ends its step", "[rendezvous][node]") {
  for (const bool cleans : {false, true}) {
    for (const bool watched : {false, true}) {  // the end comes after the question
      INFO(cleans << watched);
      meeting::node_options options;
      options.push_limit = 16;
      fake_job job(3, options);
      job.send(1, key_of(0, 1, "held"), numbers(100, 1));
      job.send(1, key_of(0, 1, "large"), numbers(100000, 1));
      job.send(1, key_of(0, 1, "pushed"), 1);
      job.send(1, key_of(0, 2, "other"), numbers(100, 2));
      probe<int> drained;
      const auto end = [&] {
        if (cleans) {
          job.step(1, 1);
          job[1].cleanup(1);
        } else {
          job[1].abort(job.step(1, 1), failure(errc::stalled));
        }
      };
      if (!watched) end();
      job[0].drain(job.step(0, 1), drained);
      job.settle();
      if (watched) end();
      job.settle();
      CHECK(drained.waits());  // for rank 2
      probe<numbers> got;
      job.receive(1, key_of(0, 2, "other"), got);
      job.settle();
      CHECK(got.take() == numbers(100, 2));
      CHECK(drained.ends == 1);
      CHECK_FALSE(drained.error);
      // What is sent to it later is dropped.
      job.send(1, key_of(0, 1, "held"), numbers(100, 3));
      CHECK(job.step(0, 1).unreceived == 0);
      CHECK(meeting::node::leaks_of(job.step(0, 1)).empty());
      probe<int> again;
      job[0].drain(job.step(0, 1), again);
      CHECK(again.ends == 1);
    }
  }
}

TEST_CASE("drained waits for what is sent after it was called", "[rendezvous][node]") {
  fake_job job(2, pulled());
  probe<int> first, drained;
  job.send(1, key_of(0, 1, "x"), 1);
  job[0].drain(job.step(0, 1), drained);
  job.send(1, key_of(0, 1, "x"), 2);
  job.receive(1, key_of(0, 1, "x"), first);
  job.settle();
  CHECK(first.take() == 1);
  CHECK(drained.waits());
  job[1].cleanup(1);
  job.settle();
  CHECK(drained.ends == 1);
  CHECK_FALSE(drained.error);
}

TEST_CASE("drained does not wait for a rank that has closed, whose values are leaks",
          "[rendezvous][node]") {
  for (const bool watched : {false, true}) {
    fake_job job(2, pulled());
    probe<int> drained;
    job.send(1, key_of(0, 1, "x"), 1);
    job.send(1, key_of(0, 0, "own"), 2);
    if (watched) job[0].drain(job.step(0, 1), drained);
    job.settle();
    job[1].close();
    if (!watched) job[0].drain(job.step(0, 1), drained);
    job.settle();
    CHECK(drained.waits());
    job[0].close();
    CHECK(drained.ends == 1);
    CHECK_FALSE(drained.error);
    CHECK(job[0].finish().size() == 2);
  }
}

TEST_CASE("a step whose values have all come needs no message when it ends", "[rendezvous][node]") {
  fake_job job(2, pulled());
  for (cohort::step_id step = 0; step < 10; ++step) {
    probe<int> drained, got;
    job.send(step, key_of(0, 1, "x"), 1);
    job[0].drain(job.step(0, step), drained);
    job.receive(step, key_of(0, 1, "x"), got);
    job.settle();
    CHECK(drained.ends == 1);
    const auto before = job.messages;
    job[1].cleanup(step);
    job[0].cleanup(step);
    job.settle();
    CHECK(job.messages == before);
  }
}

TEST_CASE("drained after a rank was lost says so", "[rendezvous][node]") {
  fake_job job(3, pulled());
  job.send(1, key_of(0, 1, "x"), 1);
  job.settle();
  job.net.isolate(1);
  job[0].lose(1);
  probe<int> late;
  job[0].drain(job.step(0, 1), late);
  CHECK(late.code() == errc::peer_lost);
}

TEST_CASE("who sends bytes that are no message is told, and both sides end", "[rendezvous][node]") {
  fake_job job(3);
  probe<numbers> from_it, from_other, at_it;
  job.receive(1, key_of(0, 1, "x"), from_it);
  job.receive(1, key_of(2, 1, "x"), from_other);
  job.receive(1, key_of(1, 0, "y"), at_it);
  probe<int> drained;
  job.send(1, key_of(0, 1, "z"), numbers(10000, 1));
  job[0].drain(job.step(0, 1), drained);
  job.settle();
  // A push whose name is longer than the message.
  job[1].receive(0, std::vector<std::byte>{std::byte{1}, std::byte{2}, std::byte{99}});
  const std::string why = "field 'name' of a record 'push'";
  CHECK(job[1].outbox().is_lost(0));
  CHECK(from_it.code() == errc::peer_lost);
  CHECK_THAT(from_it.what(), Catch::Matchers::ContainsSubstring("rank 0 is lost") &&
                                 Catch::Matchers::ContainsSubstring(why));
  CHECK(from_other.waits());
  CHECK_FALSE(job[0].outbox().is_lost(1));
  job.settle();
  CHECK(job[0].outbox().is_lost(1));
  CHECK(at_it.code() == errc::peer_lost);
  CHECK_THAT(at_it.what(), Catch::Matchers::ContainsSubstring("rank 1 is lost") &&
                               Catch::Matchers::ContainsSubstring("from rank 0") &&
                               Catch::Matchers::ContainsSubstring(why));
  CHECK(drained.code() == errc::peer_lost);
  // Both go on with the third.
  job.send(1, key_of(2, 1, "x"), numbers(3, 2));
  probe<numbers> later;
  job.send(1, key_of(2, 0, "x"), numbers(3, 4));
  job.receive(1, key_of(2, 0, "x"), later);
  job.settle();
  CHECK(from_other.take() == numbers(3, 2));
  CHECK(later.take() == numbers(3, 4));
  CHECK_FALSE(job[0].busy());
  CHECK_FALSE(job[1].busy());
}

TEST_CASE("a transfer that nobody will send is named, one that is on its way is not",
          "[rendezvous][node]") {
  const bool breaks_down = GENERATE(false, true);
  for (const bool granted : {false, true}) {  // the grant arrives before the bytes that are none
    fake_job job(2);
    probe<numbers> one;
    job.receive(1, key_of(0, 1, "large"), one);
    job.settle();
    job.send(1, key_of(0, 1, "large"), numbers(100000, 1));
    job.flush();
    job[1].receive(0, job.net.deliver(0, 1)->message);  // the offer
    std::vector<std::byte> grant;
    REQUIRE(job[1].outbox().take_message(0, grant));
    const auto in = job[1].take_transfers();
    REQUIRE(in.size() == 1);
    if (granted) job[0].receive(1, grant);
    if (breaks_down) {
      job[0].break_down(failure(errc::stalled));
    } else {
      job[0].refuse_message(1, "by the test");
    }
    std::vector<std::byte> said;
    REQUIRE(job[0].outbox().take_message(1, said));
    job[1].receive(0, said);
    CHECK(one.waits());  // MPI has its memory
    CHECK(job[1].take_given_up().size() == (granted ? 0 : 1));
    CHECK(job[0].take_transfers().size() == (granted ? 1 : 0));
    job[1].transferred(in[0], granted ? std::error_code() : make_error_code(errc::closed));
    CHECK(one.ends == 1);
    if (granted) {
      CHECK_FALSE(one.error);
    } else {
      CHECK(one.code() == errc::peer_lost);
      CHECK_THAT(one.what(), Catch::Matchers::ContainsSubstring("by the test"));
    }
    CHECK_FALSE(job[1].busy());
  }
}

TEST_CASE("a rank that breaks down tells the others why", "[rendezvous][node]") {
  fake_job job(3);
  probe<numbers> first, second, large, drained, later;
  job.receive(1, key_of(0, 1, "x"), first);
  job.receive(1, key_of(0, 2, "x"), second);
  job.receive(1, key_of(1, 0, "large"), large);
  job.settle();
  job.send(1, key_of(1, 0, "large"), numbers(100000, 1));
  job.flush();
  job[0].receive(1, job.net.deliver(1, 0)->message);  // the offer, which it grants
  job.send(1, key_of(1, 0, "x"), 1);
  job[1].drain(job.step(1, 1), drained);
  job[0].break_down(failure(errc::stalled, "the disk is full"));
  job.settle();
  for (const auto* each : {&first, &second, &drained}) {
    CHECK(each->code() == errc::peer_lost);
    CHECK_THAT(each->what(),
               Catch::Matchers::ContainsSubstring("rank 0 is lost: the disk is full"));
  }
  CHECK(job.moved == 1);  // what MPI had of it has ended
  CHECK(large.code() == errc::stalled);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK_FALSE(job[rank].busy());
    CHECK_FALSE(job[rank].waits());
  }
  // The others go on, and nobody tells it anything.
  CHECK(code_of([&] { job.send(1, key_of(1, 0, "y"), 1); }) == errc::peer_lost);
  job.send(1, key_of(2, 1, "y"), numbers(3, 2));
  job.receive(1, key_of(2, 1, "y"), later);
  job.settle();
  CHECK(later.take() == numbers(3, 2));
}

TEST_CASE("bytes that are no message are refused and break nothing", "[rendezvous][node]") {
  std::mt19937 random(17);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    fake_job job(2);
    probe<numbers> waits;
    job.receive(1, key_of(0, 1, "x"), waits);
    job.send(1, key_of(1, 0, "y"), numbers(10000, 1));
    std::vector<std::byte> message;
    job[1].outbox().take_message(0, message);
    for (unsigned n = 1 + random() % 4; n != 0; --n) {
      switch (random() % 3) {
        case 0:
          message[random() % message.size()] = static_cast<std::byte>(random());
          break;
        case 1:
          message.resize(1 + random() % message.size());
          break;
        default:
          message.push_back(static_cast<std::byte>(random()));
      }
    }
    for (const int to : {0, 1}) {
      job[to].receive(1 - to, message);
      refused += job[to].outbox().is_lost(1 - to) ? 1 : 0;
    }
    CHECK(waits.waits() != job[1].outbox().is_lost(0));
    job[1].break_down(failure(errc::peer_lost));
    CHECK(waits.ends == 1);
  }
  CHECK(refused > 1000);
}

TEST_CASE("a value whose destructor may call anything is not destroyed inside",
          "[rendezvous][node]") {
  fake_job job(2);
  int alive = 0;
  const auto counted = [&](std::size_t size) {
    ++alive;
    return std::shared_ptr<const numbers>(new numbers(size, 1), [&](const numbers* one) {
      delete one;
      --alive;
    });
  };
  const auto put = [&](const char* name, std::size_t size) {
    job.put(1, key_of(0, 1, name), packet_of(counted(size)));
  };
  put("pushed", 1);
  CHECK(alive == 0);  // destroyed by who has called
  put("held", 5000);
  put("offered", 100000);
  put("moved", 100000);
  probe<numbers> held, offered, moved;
  job.receive(1, key_of(0, 1, "held"), held);
  job.receive(1, key_of(0, 1, "moved"), moved);
  job.settle();
  CHECK(moved.ends == 1);
  CHECK(alive == 3);
  job[0].dropped().clear();
  CHECK(alive == 1);
  put("left", 100000);
  job.step(0, 1).local.send(key_of(0, 0, "own"), packet_of(counted(3)));
  const bool by_loss = GENERATE(false, true);
  if (by_loss) {
    job[0].lose(1);
    job[0].break_down(failure(errc::stalled));
  } else {
    job[0].abort(job.step(0, 1), failure(errc::stalled));
  }
  CHECK(alive == 3);
  job[0].dropped().clear();
  CHECK(alive == 0);
}
