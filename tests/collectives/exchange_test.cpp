// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The _v verbs that are given no counts of what comes. Part of the executable collectives.movement.

#include <cohort/collectives/all_gather.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/all_to_all.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/collectives/gather.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/when_all.hpp>
#include <cohort/shm.hpp>

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/support.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using cohort::exchanged_counts;
using sizes = std::vector<std::size_t>;

/// Rank r gives r + 2 elements, rank 1 none.
std::size_t gives(int rank) { return rank == 1 ? 0 : static_cast<std::size_t>(rank) + 2; }

sizes all_give(const cohort::communicator& world) {
  sizes all;
  for (int rank = 0; rank < world.size(); ++rank) all.push_back(gives(rank));
  return all;
}

template <class T>
std::vector<T> of_rank(int rank, std::size_t count) {
  return std::vector<T>(count, T(static_cast<float>(rank + 1)));
}

/// What rank `rank` gives; `count(rank)` says how much.
template <class T, class Count>
std::vector<T> of_all(const cohort::communicator& world, Count count) {
  std::vector<T> all;
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto one = of_rank<T>(rank, count(rank));
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

/// What is behind the first elements of `out` is as it was.
template <class T>
bool is_followed_by(const std::vector<T>& out, std::size_t count, const T& value) {
  return std::all_of(out.begin() + static_cast<std::ptrdiff_t>(count), out.end(),
                     [&](const T& each) { return each == value; });
}

/// Rank r sends (r + s) % 3 elements to rank s.
std::size_t between(int from, int to) { return static_cast<std::size_t>((from + to) % 3); }

sizes counts_between(const cohort::communicator& world) {
  sizes all;
  for (int to = 0; to < world.size(); ++to) all.push_back(between(world.rank(), to));
  return all;
}

template <class T>
asio::awaitable<void> exchange_all(cohort::communicator world) {
  const int me = world.rank();
  const auto mine = of_rank<T>(me, gives(me));
  const auto expected = of_all<T>(world, gives);
  const sizes counts = all_give(world);
  const std::size_t total = expected.size();
  const T rest(static_cast<float>(77));

  const auto [all, from] = co_await cohort::all_gather_v(world, mine);
  CHECK(all == expected);
  CHECK(from == counts);
  std::vector<T> out(total + 3, rest);
  const sizes told = co_await cohort::all_gather_v(world, mine, out, exchanged_counts);
  CHECK(told == counts);
  CHECK(std::equal(expected.begin(), expected.end(), out.begin()));
  CHECK(is_followed_by(out, total, rest));

  const int root = world.size() - 1;
  const bool here = me == root;
  const auto [at_root, of_each] = co_await cohort::gather_v(world, mine, root);
  CHECK(at_root == (here ? expected : std::vector<T>()));
  CHECK(of_each == (here ? counts : sizes()));
  out.assign(here ? total : 0, rest);
  const sizes come = co_await cohort::gather_v(world, mine, out, exchanged_counts, root);
  CHECK(out == at_root);
  CHECK(come == of_each);

  const sizes sent = counts_between(world);
  std::vector<T> outgoing;
  for (const std::size_t count : sent) {
    const auto one = of_rank<T>(me, count);
    outgoing.insert(outgoing.end(), one.begin(), one.end());
  }
  const auto wanted = of_all<T>(world, [&](int rank) { return between(rank, me); });
  const auto [received, how_much] =
      co_await cohort::all_to_all_v(world, outgoing, sent, exchanged_counts);
  CHECK(received == wanted);
  CHECK(how_much == sent);  // the numbers are symmetric
  out.assign(wanted.size() + 1, rest);
  const sizes parts = co_await cohort::all_to_all_v(world, outgoing, sent, out, exchanged_counts);
  CHECK(std::equal(wanted.begin(), wanted.end(), out.begin()));
  CHECK(out.back() == rest);
  CHECK(parts == sent);
}

/// What the rank without room is told.
void tells_both_sizes(const cohort::communicator& world, std::size_t room, std::size_t come) {
  const std::string text = world.last_failure().text;
  INFO(text);
  CHECK(text.find("rank " + std::to_string(world.rank())) != std::string::npos);
  CHECK(text.find("out.count=" + std::to_string(room)) != std::string::npos);
  CHECK(text.find("out.blocks.total=" + std::to_string(come)) != std::string::npos);
  CHECK(text.find("no room for what comes") != std::string::npos);
}

asio::awaitable<void> lacks_room(cohort::communicator world) {
  const cohort::log::capture logged;
  const int me = world.rank();
  const int last = world.size() - 1;
  const bool lacks = me == last;
  const std::error_code expected =
      lacks ? make_error_code(cohort::errc::size_mismatch) : std::error_code();
  const std::vector<int> mine(gives(me) + 1, me);
  const auto count_of = [](int rank) { return gives(rank) + 1; };
  std::size_t total = 0;
  for (int rank = 0; rank <= last; ++rank) total += count_of(rank);

  std::vector<int> out(total - (lacks ? 1 : 0), -1);
  auto [first, counts] =
      co_await cohort::all_gather_v(world, mine, out, exchanged_counts, cohort::as_tuple);
  CHECK(first == expected);
  CHECK((out.front() == -1) == lacks);
  if (lacks) tells_both_sizes(world, total - 1, total);

  std::fill(out.begin(), out.end(), -1);
  auto [second, of_each] =
      co_await cohort::gather_v(world, mine, out, exchanged_counts, last, cohort::as_tuple);
  CHECK(second == expected);
  CHECK(is_followed_by(out, 0, -1));
  if (lacks) tells_both_sizes(world, total - 1, total);

  const sizes two(static_cast<std::size_t>(world.size()), 2);
  const std::vector<int> pairs(2 * two.size(), me);
  std::vector<int> parts(lacks ? 1 : pairs.size(), -1);
  auto [third, from] =
      co_await cohort::all_to_all_v(world, pairs, two, parts, exchanged_counts, cohort::as_tuple);
  CHECK(third == expected);
  CHECK((parts.front() == -1) == lacks);
  if (lacks) tells_both_sizes(world, 1, pairs.size());
  // The next ones work.
  const auto [all, again] = co_await cohort::all_gather_v(world, mine);
  CHECK(all.size() == total);
  int sum = 1;
  co_await cohort::all_reduce(world, sum, cohort::op::sum);
  CHECK(sum == world.size());
}

// Each has two stages, and MPI must be given the stages of all in one order on all ranks.
asio::awaitable<void> many_at_once(cohort::communicator world) {
  const int me = world.rank();
  const sizes sent = counts_between(world);
  std::size_t outgoing_size = 0;
  for (const std::size_t count : sent) outgoing_size += count;
  const std::vector<int> outgoing(outgoing_size, me);
  for (int round = 0; round < 20; ++round) {
    const std::vector<int> mine(gives(me), 100 * round + me);
    std::vector<int> gathered(of_all<int>(world, gives).size());
    std::vector<int> incoming(3 * sent.size(), -1);
    int sum = me + round;
    int highest = me;
    auto first = cohort::all_gather_v(world, mine, gathered, exchanged_counts, cohort::as_future);
    auto second = cohort::all_reduce(world, sum, cohort::op::sum, cohort::as_future);
    // Another rank is somewhere else by now.
    if (me == round % world.size()) co_await cohort_test::pause(std::chrono::microseconds(300));
    auto third = cohort::gather_v(world, mine, round % world.size(), cohort::as_future);
    auto fourth =
        cohort::all_to_all_v(world, outgoing, sent, incoming, exchanged_counts, cohort::as_future);
    auto fifth = cohort::all_reduce(world, highest, cohort::op::max, cohort::as_future);
    auto sixth = cohort::barrier(world, cohort::as_future);
    co_await std::move(sixth);
    co_await std::move(fifth);
    const sizes from = co_await std::move(fourth);
    const auto [at_root, of_each] = co_await std::move(third);
    co_await std::move(second);
    const sizes counts = co_await std::move(first);
    const int n = world.size();
    CHECK(sum == n * (n - 1) / 2 + n * round);
    CHECK(highest == n - 1);
    CHECK(counts == all_give(world));
    CHECK(from == sent);
    if (me == round % n) CHECK(at_root == gathered);
    std::size_t at = 0;
    for (int rank = 0; rank < n; ++rank) {
      for (std::size_t i = 0; i < gives(rank); ++i) CHECK(gathered[at++] == 100 * round + rank);
    }
    at = 0;
    for (int rank = 0; rank < n; ++rank) {
      for (std::size_t i = 0; i < between(rank, me); ++i) CHECK(incoming[at++] == rank);
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("ranks that are given no counts tell each other, whatever they move", "",
                   std::int8_t, std::uint16_t, int, std::int64_t, float, double,
                   std::complex<float>, cohort::f16, cohort::bf16) {
  cohort_test::on_world([](cohort::communicator world) { return exchange_all<TestType>(world); });
}

TEST_CASE("without counts: with cross_rank checks, and beside shared memory") {
  const cohort::communicator_options checked{.checks = cohort::checks::cross_rank};
  cohort_test::on_world([](cohort::communicator world) { return exchange_all<int>(world); },
                        checked);
  const cohort::communicator_options chosen{.backend = cohort::backend_choice::automatic};
  cohort_test::on_world([](cohort::communicator world) { return exchange_all<int>(world); },
                        chosen);
}

TEST_CASE("without counts: nobody gives anything") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    std::vector<float> none;
    const sizes zeros(static_cast<std::size_t>(world.size()), 0);
    const auto [all, counts] = co_await cohort::all_gather_v(world, none);
    CHECK(all.empty());
    CHECK(counts == zeros);
    const sizes told = co_await cohort::all_gather_v(world, none, none, exchanged_counts);
    CHECK(told == zeros);
    const auto [gathered, of_each] = co_await cohort::gather_v(world, none, 0);
    CHECK(gathered.empty());
    CHECK(of_each == (world.rank() == 0 ? zeros : sizes()));
    const auto [come, from] = co_await cohort::all_to_all_v(world, none, zeros, exchanged_counts);
    CHECK(come.empty());
    CHECK(from == zeros);
  });
}

TEST_CASE("without counts: a rank without room ends alone, with both sizes") {
  cohort_test::on_world(lacks_room);
  cohort_test::on_world(lacks_room, {.checks = cohort::checks::cross_rank});
}

TEST_CASE("without counts: containers come back, and strided buffers keep their gaps") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const auto expected = of_all<double>(world, gives);
    auto mine = of_rank<double>(world.rank(), gives(world.rank()));
    const auto copy = mine;
    auto [ec, all, counts, back] =
        co_await cohort::all_gather_v(world, std::move(mine), cohort::as_tuple);
    CHECK_FALSE(ec);
    CHECK(all == expected);
    CHECK(counts == all_give(world));
    CHECK(back == copy);
    std::vector<double> room(expected.size() + 1, -1);
    auto [again, in, out] =
        co_await cohort::all_gather_v(world, std::move(back), std::move(room), exchanged_counts);
    CHECK(again == counts);
    CHECK(in == copy);
    CHECK(out.back() == -1);
    out.pop_back();
    CHECK(out == expected);

    std::vector<double> matrix(3 * expected.size(), -7);
    const cohort::strided_view<double> column(matrix.data(), expected.size(), 1, 3);
    co_await cohort::all_gather_v(world, in, column, exchanged_counts);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK(matrix[3 * i] == expected[i]);
      CHECK(matrix[3 * i + 1] == -7);
    }
    std::vector<double> exact(expected.size());
    co_await cohort::all_gather_v(world, in, std::span(exact), exchanged_counts);
    CHECK(exact == expected);

    std::array<bool, 2> flags{true, world.rank() == 0};
    std::array<bool, 8> raised{};
    const sizes twos = co_await cohort::all_gather_v(world, flags, raised, exchanged_counts);
    CHECK(twos == sizes(static_cast<std::size_t>(world.size()), 2));
    CHECK((raised[0] && raised[1]));
    for (std::size_t rank = 1; rank < twos.size(); ++rank) {
      CHECK((raised[2 * rank] && !raised[2 * rank + 1]));
    }

    std::vector<collectives_test::particle> particles;
    for (std::size_t i = 0; i < gives(world.rank()); ++i) {
      particles.push_back(collectives_test::particle_of(world.rank(), static_cast<int>(i)));
    }
    const auto [swarm, of_each] = co_await cohort::gather_v(world, particles, 0);
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < of_each.size(); ++rank) {
      for (std::size_t i = 0; i < of_each[rank]; ++i) {
        const auto wanted =
            collectives_test::particle_of(static_cast<int>(rank), static_cast<int>(i));
        CHECK(swarm[at++] == wanted);
      }
    }
    CHECK(at == swarm.size());
  });
}

TEST_CASE("without counts: many are under way at once, among other collectives") {
  cohort_test::on_world(many_at_once);
  cohort_test::on_world(many_at_once, {.backend = cohort::backend_choice::automatic});
  cohort_test::on_world(many_at_once, {.checks = cohort::checks::cross_rank});
}

TEST_CASE("without counts: wrong arguments are found, on all ranks with cross_rank checks") {
  const cohort::communicator_options options{.checks = cohort::checks::cross_rank};
  cohort_test::on_world(
      [](cohort::communicator world) -> asio::awaitable<void> {
        const cohort::log::capture logged;
        const bool alone = world.size() == 1;
        const bool last = world.rank() == world.size() - 1;
        const std::error_code others = make_error_code(cohort::errc::cross_rank_mismatch);
        // Counts that do not fit the buffer, on one rank.
        const sizes twos(static_cast<std::size_t>(world.size()), 2);
        const std::vector<int> data(2 * twos.size() - (last ? 1 : 0));
        auto [counts_wrong, come, from] =
            co_await cohort::all_to_all_v(world, data, twos, exchanged_counts, cohort::as_tuple);
        CHECK(counts_wrong == (last ? make_error_code(cohort::errc::size_mismatch) : others));
        // No such root.
        auto [no_root, all, counts] =
            co_await cohort::gather_v(world, data, world.size(), cohort::as_tuple);
        CHECK(no_root == cohort::errc::bad_root);
        // A rank that gives counts would post another operation.
        const std::vector<int> mine(2, world.rank());
        std::vector<int> out(2 * twos.size());
        std::error_code mixed;
        if (last) {
          auto [ec] = co_await cohort::all_gather_v(world, mine, out, twos, cohort::as_tuple);
          mixed = ec;
        } else {
          auto [ec, told] =
              co_await cohort::all_gather_v(world, mine, out, exchanged_counts, cohort::as_tuple);
          mixed = ec;
        }
        CHECK(mixed == (alone ? std::error_code() : others));
        // Another type.
        std::error_code typed;
        if (last) {
          const std::vector<std::int16_t> narrow(2);
          auto [ec, told, sizes_told] =
              co_await cohort::all_gather_v(world, narrow, cohort::as_tuple);
          typed = ec;
        } else {
          auto [ec, told, sizes_told] =
              co_await cohort::all_gather_v(world, mine, cohort::as_tuple);
          typed = ec;
        }
        CHECK(typed == (alone ? std::error_code() : others));
        const auto [gathered, told] = co_await cohort::all_gather_v(world, mine);
        CHECK(gathered.size() == 2 * twos.size());
      },
      options);
}

TEST_CASE("without counts: no communicator, and a root that is none") {
  const cohort::log::capture logged;
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    const std::vector<int> data(2);
    auto [none, all, counts] =
        co_await cohort::all_gather_v(cohort::communicator(), data, cohort::as_tuple);
    CHECK(none == cohort::errc::invalid_communicator);
    auto [no_root, gathered, told] = co_await cohort::gather_v(world, data, -1, cohort::as_tuple);
    CHECK(no_root == cohort::errc::bad_root);
    const sizes wrong(static_cast<std::size_t>(world.size()) + 1, 1);
    auto [bad, come, from] =
        co_await cohort::all_to_all_v(world, data, wrong, exchanged_counts, cohort::as_tuple);
    CHECK(bad == cohort::errc::size_mismatch);
    co_await cohort::barrier(world);  // none of these is in the way
  });
}

TEST_CASE("without counts: who gives up what it owns leaves the rest in order") {
  cohort_test::on_world([](cohort::communicator world) -> asio::awaitable<void> {
    std::vector<int> mine(gives(world.rank()), 1);
    asio::cancellation_signal stop;
    bool ended = false;
    std::error_code why;
    cohort::all_gather_v(
        world, std::move(mine),
        asio::bind_cancellation_slot(stop.slot(), [&](std::error_code ec, auto&&...) {
          ended = true;
          why = ec;
        }));
    stop.emit(asio::cancellation_type::terminal);
    int sum = 1;
    co_await cohort::all_reduce(world, sum, cohort::op::sum);  // posted when that is
    CHECK(sum == world.size());
    CHECK(ended);
    CHECK((!why || why == asio::error::operation_aborted));
  });
}
