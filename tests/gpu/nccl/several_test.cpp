// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file Several devices in each process, which are ranks of one communicator.

#include "gpu/nccl/support.hpp"
#include "support/caught.hpp"

#include <cohort/nccl/faults/channel.hpp>
#include <cohort/progress/deadline.hpp>

#include <array>
#include <thread>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::errc;
using nccl::in_group;

/// As on_gpus, with two devices for each rank of MPI.
template <class Body>
void on_pairs(Body&& body, bool leaks = false) {
  on_gpus(std::forward<Body>(body), leaks, 2);
}

/// A stream of each of the two devices.
struct two_streams {
  std::array<device::stream, 2> of = {device::stream(0), device::stream(1)};
  const device::stream& operator[](std::size_t i) const { return of[i]; }
};

/// A vector for each of them, filled with a function of the rank.
template <class Value>
asio::awaitable<std::array<device::vector<int>, 2>> vectors(
    const std::vector<nccl::communicator>& gpus, const two_streams& s, std::size_t size,
    Value value) {
  auto first = co_await filled<int>(s[0], size, value(gpus[0].rank()));
  auto second = co_await filled<int>(s[1], size, value(gpus[1].rank()));
  co_return std::array<device::vector<int>, 2>{std::move(first), std::move(second)};
}

const std::vector<int> both = {0, 1};  // devices

const auto one_more = [](int rank) { return rank + 1; };
const auto as_it_is = [](int rank) { return rank; };

/// Sums over all devices.
nccl::set_group sums(const std::vector<nccl::communicator>& gpus, const two_streams& s,
                     std::array<device::vector<int>, 2>& v) {
  nccl::set_group made;
  for (std::size_t i = 0; i < 2; ++i) {
    made.add(nccl::all_reduce(gpus[i], s[i], v[i], op::sum, in_group));
  }
  return made;
}

}  // namespace

TEST_CASE("the devices of all processes are the ranks of one communicator") {
  on_pairs([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicators(world, both);
    REQUIRE(gpus.size() == 2);
    const int n = 2 * world.size();
    for (int i = 0; i < 2; ++i) {
      const auto& one = gpus[static_cast<std::size_t>(i)];
      CHECK(one.rank() == 2 * world.rank() + i);
      CHECK(one.size() == n);
      CHECK(one.device() == i);
    }
    const two_streams s;
    auto v = co_await vectors(gpus, s, 10, one_more);
    auto group = sums(gpus, s, v);
    co_await group.run();
    auto first = co_await read(s[0], v[0]);
    auto second = co_await read(s[1], v[1]);
    CHECK(first == std::vector<int>(10, n * (n + 1) / 2));
    CHECK(second == first);

    // An average divides by the number of devices.
    auto x = co_await filled<float>(s[0], 10, 2.0F);
    auto y = co_await filled<float>(s[1], 10, 4.0F);
    nccl::set_group averages;
    averages.add(nccl::all_reduce(gpus[0], s[0], x, op::average, in_group));
    averages.add(nccl::all_reduce(gpus[1], s[1], y, op::average, in_group));
    co_await averages.run(nccl::until::enqueued);
    auto mean = co_await read(s[1], y);
    CHECK(mean == std::vector<float>(10, 3.0F));

    // Each handle also takes operations of its own.
    outcome one;
    outcome other;
    nccl::all_reduce(gpus[0], s[0], v[0], op::max, one.handler());
    nccl::all_reduce(gpus[1], s[1], v[1], op::max, other.handler());
    CHECK(co_await soon([&] { return one.over && other.over; }));
    CHECK(!one.code);
    CHECK(!other.code);
  });
}

// The handles leave one after the other, and the goodbyes come when both have gone.
DOUBLE_TEST_CASE("the goodbyes of all ranks are heard with several devices, too") {
  on_pairs([](communicator world) -> asio::awaitable<void> {
    auto& source = asio::use_service<nccl::issue_source>(world.get_executor().context());
    nccl::communicator_options patient;
    patient.answer_bound = 60s;
    auto gpus = co_await nccl::make_communicators(world, both, patient);
    const auto channel = gpus[0].state()->channel;
    co_await meet(world);
    gpus.clear();
    CHECK(co_await soon([] { return fake_nccl::calls("ncclCommFinalize") == 2; }));
    std::this_thread::sleep_for(world.rank() * 150ms);
    CHECK(co_await soon([&] { return source.pending() == 0; }));
    const bool all = source.exclusively([&] { return channel->is_over(world.rank()); });
    CHECK(all == (world.size() > 1));
    co_await meet(world);
  });
}

TEST_CASE("every verb takes part in a group of several devices") {
  on_pairs([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicators(world, both);
    const std::size_t n = static_cast<std::size_t>(2 * world.size());
    const int last = static_cast<int>(n) - 1;
    const two_streams s;
    const auto ranks = [&](std::size_t i) { return static_cast<std::size_t>(gpus[i].rank()); };
    auto mine = co_await vectors(gpus, s, 2, as_it_is);
    std::array<device::vector<int>, 2> all = {device::vector<int>(2 * n, s[0]),
                                              device::vector<int>(2 * n, s[1])};
    std::array<device::vector<int>, 2> more = {device::vector<int>(2 * n, s[0]),
                                               device::vector<int>(2 * n, s[1])};
    std::array<device::vector<int>, 2> part = {device::vector<int>(2, s[0]),
                                               device::vector<int>(2, s[1])};
    // What each device must have afterwards.
    std::vector<int> got;
    const auto run = [&](auto verb) -> asio::awaitable<void> {
      nccl::set_group group;
      for (std::size_t i = 0; i < 2; ++i) group.add(verb(i));
      co_await group.run();
    };
    co_await run(
        [&](std::size_t i) { return nccl::all_gather(gpus[i], s[i], mine[i], all[i], in_group); });
    std::vector<int> in_order(2 * n);
    for (std::size_t i = 0; i < 2 * n; ++i) in_order[i] = static_cast<int>(i / 2);
    for (std::size_t i = 0; i < 2; ++i) {
      got = co_await read(s[i], all[i]);
      CHECK(got == in_order);
    }
    co_await run([&](std::size_t i) {
      return nccl::reduce_scatter(gpus[i], s[i], all[i], part[i], op::sum, in_group);
    });
    for (std::size_t i = 0; i < 2; ++i) {
      got = co_await read(s[i], part[i]);
      CHECK(got == std::vector<int>(2, static_cast<int>(n * ranks(i))));
    }
    co_await run(
        [&](std::size_t i) { return nccl::all_to_all(gpus[i], s[i], all[i], more[i], in_group); });
    for (std::size_t i = 0; i < 2; ++i) {
      got = co_await read(s[i], more[i]);
      CHECK(got == std::vector<int>(2 * n, static_cast<int>(ranks(i))));
    }
    co_await run([&](std::size_t i) {
      return nccl::gather(gpus[i], s[i], mine[i], more[i], last, in_group);
    });
    if (gpus[1].rank() == last) {
      got = co_await read(s[1], more[1]);
      CHECK(got == in_order);
    }
    co_await run([&](std::size_t i) {
      return nccl::scatter(gpus[i], s[i], all[i], part[i], last, in_group);
    });
    co_await run([&](std::size_t i) {
      return nccl::reduce(gpus[i], s[i], part[i], mine[i], op::max, 0, in_group);
    });
    got = co_await read(s[0], mine[0]);
    if (world.rank() == 0) CHECK(got == std::vector<int>(2, last));
    co_await run(
        [&](std::size_t i) { return nccl::broadcast(gpus[i], s[i], part[i], last, in_group); });
    for (std::size_t i = 0; i < 2; ++i) {
      got = co_await read(s[i], part[i]);
      CHECK(got == std::vector<int>(2, last));
    }
    co_await run([&](std::size_t i) { return nccl::barrier(gpus[i], s[i], in_group); });
    const std::vector<std::size_t> counts(n, 2);
    co_await run([&](std::size_t i) {
      return nccl::all_gather_v(gpus[i], s[i], part[i], more[i], counts, in_group);
    });
    co_await run([&](std::size_t i) {
      return nccl::all_to_all_v(gpus[i], s[i], more[i], counts, all[i], counts, in_group);
    });
    for (std::size_t i = 0; i < 2; ++i) {
      got = co_await read(s[i], all[i]);
      CHECK(got == std::vector<int>(2 * n, last));
    }
    co_await run([&](std::size_t i) {
      return nccl::reduce_scatter_v(gpus[i], s[i], all[i], part[i], counts, op::sum, in_group);
    });
    for (std::size_t i = 0; i < 2; ++i) {
      got = co_await read(s[i], part[i]);
      CHECK(got == std::vector<int>(2, static_cast<int>(n) * last));
    }
    // Messages around a ring of devices, and to the other device of the process.
    mine = co_await vectors(gpus, s, 2, as_it_is);
    co_await run([&](std::size_t i) {
      const int rank = gpus[i].rank();
      auto ring = nccl::group(gpus[i], s[i]);
      ring.send(mine[i], (rank + 1) % (last + 1)).recv(part[i], (rank + last) % (last + 1));
      return ring.run(in_group);
    });
    for (std::size_t i = 0; i < 2; ++i) {
      got = co_await read(s[i], part[i]);
      CHECK(got == std::vector<int>(2, (gpus[i].rank() + last) % (last + 1)));
    }
    nccl::set_group inside;
    inside.add(nccl::send(gpus[0], s[0], mine[0], gpus[1].rank(), in_group));
    inside.add(nccl::recv(gpus[1], s[1], part[1], gpus[0].rank(), in_group));
    co_await inside.run();
    got = co_await read(s[1], part[1]);
    CHECK(got == std::vector<int>(2, gpus[0].rank()));
  });
}

TEST_CASE("processes may bring different numbers of devices") {
  on_pairs([](communicator world) -> asio::awaitable<void> {
    std::vector<int> devices = {1};
    if (world.rank() != 0) devices = {1, 0};
    auto gpus = co_await nccl::make_communicators(world, devices);
    const int n = 2 * world.size() - 1;
    REQUIRE(gpus.size() == devices.size());
    CHECK(gpus.front().size() == n);
    CHECK(gpus.front().rank() == (world.rank() == 0 ? 0 : 2 * world.rank() - 1));
    CHECK(gpus.front().device() == 1);
    nccl::set_group group;
    std::vector<device::vector<int>> v;
    std::vector<device::stream> s;
    for (const int which : devices) s.emplace_back(which);
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      v.push_back(co_await filled<int>(s[i], 5, 1));
    }
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      group.add(nccl::all_reduce(gpus[i], s[i], v[i], op::sum, in_group));
    }
    co_await group.run();
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      auto got = co_await read(s[i], v[i]);
      CHECK(got == std::vector<int>(5, n));
    }
    auto code = co_await code_of(gpus.front().split(0));
    CHECK(code == errc::not_supported);
  });
}

TEST_CASE("what is wrong with the devices of one process is told to all") {
  on_pairs([](communicator world) -> asio::awaitable<void> {
    const bool is_last = world.rank() == world.size() - 1;
    const auto devices = [&](int second) { return is_last ? std::vector<int>{1, second} : both; };
    const int first = 2 * (world.size() - 1);
    auto twice = co_await caught<cohort::rank_error>(nccl::make_communicators(world, devices(1)));
    REQUIRE(twice);
    CHECK(twice->code() == errc::wrong_device);
    CHECK(twice->ranks() == std::vector<int>{first, first + 1});
    auto absent = co_await caught<cohort::rank_error>(
        nccl::make_communicators(world, devices(device::count())));
    REQUIRE(absent);
    CHECK(absent->code() == errc::no_device);
    CHECK(absent->ranks() == std::vector<int>{first + 1});
    std::vector<int> nothing;
    if (!is_last) nothing = both;
    auto none = co_await caught<cohort::rank_error>(nccl::make_communicators(world, nothing));
    REQUIRE(none);
    CHECK(none->code() == errc::invalid_argument);
    CHECK(none->ranks() == std::vector<int>{world.size() - 1});
    CHECK_DOUBLE(fake_nccl::calls("ncclCommInitRankConfig") == 0);
    if (world.size() < 2) co_return;
    nccl::communicator_options options;
    if (is_last) options.config.minCTAs = 4;
    auto differs =
        co_await caught<cohort::mismatch_error>(nccl::make_communicators(world, both, options));
    REQUIRE(differs);
    CHECK(differs->ranks() == std::vector<int>{0, first});
    auto gpus = co_await nccl::make_communicators(world, both);
    CHECK(gpus[1].size() == first + 2);
  });
}

DOUBLE_TEST_CASE("an init that fails for one device fails for all of them") {
  on_pairs([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    if (world.rank() == world.size() - 1) {
      fake_nccl::fail_next("ncclCommInitRankConfig", ncclSystemError);
    }
    auto code = co_await code_of(nccl::make_communicators(world, both));
    CHECK(code == nccl::make_error(ncclSystemError));
    CHECK(co_await soon([] { return fake_nccl::live_communicators() == 0; }));
    auto gpus = co_await nccl::make_communicators(world, both);
    CHECK(gpus[1].stands() == nccl::phase::ready);
    co_await meet(world);
  });
}

TEST_CASE("a group of several devices starts all of its parts or none") {
  on_pairs([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicators(world, both);
    const two_streams s;
    auto v = co_await vectors(gpus, s, 4, one_more);
    device::vector<int> three(3, s[1]);
    nccl::set_group sizes;
    sizes.add(nccl::all_reduce(gpus[0], s[0], v[0], op::sum, in_group));
    sizes.add(nccl::all_reduce(gpus[1], s[1], v[1], three, op::sum, in_group));
    auto code = co_await code_of(sizes.run());
    CHECK(code == errc::size_mismatch);
    nccl::set_group twice;
    twice.add(nccl::all_reduce(gpus[0], s[0], v[0], op::sum, in_group));
    twice.add(nccl::barrier(gpus[0], s[0], in_group));
    code = co_await code_of(twice.run());
    CHECK(code == errc::invalid_argument);
    CHECK(log.contains("nccl set_group: barrier: device 0 has two parts"));
    nccl::set_group empty_handle;
    empty_handle.add(nccl::all_reduce(gpus[0], s[0], v[0], op::sum, in_group));
    empty_handle.add(nccl::barrier(nccl::communicator(), s[1], in_group));
    code = co_await code_of(empty_handle.run());
    CHECK(code == errc::invalid_communicator);
    nccl::set_group nothing;
    code = co_await code_of(nothing.run());
    CHECK(code == errc::invalid_communicator);
    CHECK_DOUBLE(fake_nccl::launches().empty());
    // What launches nothing ends beside what does, and by itself.
    device::vector<int> no_elements(0, s[0]);
    device::vector<int> nor_here(0, s[1]);
    nccl::set_group of_nothing;
    of_nothing.add(nccl::all_reduce(gpus[0], s[0], no_elements, op::sum, in_group));
    of_nothing.add(nccl::all_reduce(gpus[1], s[1], nor_here, op::sum, in_group));
    co_await of_nothing.run();
    CHECK_DOUBLE(fake_nccl::launches().empty());
    auto group = sums(gpus, s, v);
    co_await group.run();
    CHECK_DOUBLE(fake_nccl::launches().size() == 2);
    gpus[1].finalize(asio::detached);
    CHECK(co_await soon([&] { return gpus[1].stands() != nccl::phase::ready; }));
    auto late = sums(gpus, s, v);
    code = co_await code_of(late.run());
    CHECK(code == errc::closed);
  });
}

DOUBLE_TEST_CASE("groups of several devices keep their place among operations of one device") {
  on_pairs([](communicator world) -> asio::awaitable<void> {
    nccl::communicator_options named;
    set_name(named.config, "both");
    auto gpus = co_await nccl::make_communicators(world, both, named);
    set_name(named.config, "one");
    named.device = 1;
    auto alone = co_await nccl::make_communicator(world, named);
    const two_streams s;
    auto v = co_await vectors(gpus, s, 4, one_more);
    auto w = co_await filled<int>(s[1], 4, 1);
    for (int round = 0; round < 10; ++round) {
      nccl::set_group maxima;
      for (const std::size_t i : {std::size_t{1}, std::size_t{0}}) {  // in either order
        maxima.add(nccl::all_reduce(gpus[i], s[i], v[i], op::max, in_group));
      }
      maxima.run(asio::detached);
      nccl::all_reduce(alone, s[1], w, op::max, asio::detached);
    }
    nccl::set_group end;
    end.add(nccl::barrier(gpus[0], s[0], in_group));
    end.add(nccl::barrier(gpus[1], s[1], in_group));
    co_await end.run();
    std::vector<std::string> expected;
    for (int round = 0; round < 10; ++round) {
      expected.insert(expected.end(), 2, "both");
      if (world.size() > 1) expected.push_back("one");  // alone it launches nothing
    }
    expected.insert(expected.end(), 2, "both");
    CHECK(fake_nccl::launches() == expected);
    auto got = co_await read(s[0], v[0]);
    CHECK(got == std::vector<int>(4, 2 * world.size()));
  });
}

DOUBLE_TEST_CASE("a device that is lost ends the operations on all devices of the communicator") {
  const bool launched = GENERATE(true, false);  // if not, NCCL itself comes upon it
  CAPTURE(launched);
  on_pairs(
      [launched](communicator world) -> asio::awaitable<void> {
        const cohort::log::capture log;
        auto gpus = co_await nccl::make_communicators(world, both);
        const two_streams s;
        auto v = co_await vectors(gpus, s, 4, one_more);
        auto first = sums(gpus, s, v);
        co_await first.run();
        for (const auto& one : gpus) fake_nccl::hang_next(one.native());
        if (!launched) fake_nccl::hold_launches(true);
        co_await meet(world);
        outcome end;
        auto second = sums(gpus, s, v);
        second.run(end.handler());
        outcome behind;
        nccl::all_reduce(gpus[0], s[0], v[0], op::max, behind.handler());
        if (launched) CHECK(co_await soon([&] { return on_the_device(gpus[0], 2); }));
        CHECK(!end.over);
        co_await meet(world);
        if (world.rank() == 0) fake_gpu::break_device(1, cudaErrorIllegalAddress);
        if (!launched) {
          const ncclComm_t native = gpus[0].native();
          fake_nccl::hold_launches(false);
          ncclResult_t state = world.rank() == 0 ? ncclInProgress : ncclSuccess;
          while (state == ncclInProgress) {  // nobody laps meanwhile
            if (ncclCommGetAsyncError(native, &state) != ncclSuccess) break;
          }
        }
        CHECK(co_await soon([&] { return end.over && behind.over; }));
        const auto remote = nccl::make_error(ncclRemoteError);
        if (world.rank() == 0) {
          // The whole ends with the error of whichever part ends first.
          CHECK((end.code == device::make_error(cudaErrorIllegalAddress) || end.code == remote));
          CHECK(log.contains("device 1 has gone"));
        } else {
          CHECK(end.code == remote);
        }
        CHECK(behind.code == remote);
        CHECK(co_await soon([&] { return gpus[0].stands() == nccl::phase::gone; }));
        CHECK(co_await soon([&] { return gpus[1].stands() == nccl::phase::gone; }));
        co_await meet(world);
      },
      true);
}

DOUBLE_TEST_CASE("an abort of one handle ends the others of its communicator") {
  on_pairs([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicators(world, both);
    nccl::communicator_options options;
    options.device = 1;
    auto another = co_await nccl::make_communicator(world, options);
    const two_streams s;
    auto v = co_await vectors(gpus, s, 4, one_more);
    for (const auto& one : gpus) fake_nccl::hang_next(one.native());
    co_await meet(world);
    outcome end;
    auto group = sums(gpus, s, v);
    group.run(end.handler());
    co_await pause(5ms);
    CHECK(!end.over);
    co_await meet(world);
    if (world.rank() == world.size() - 1) co_await gpus[1].abort();
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(end.code == (world.rank() == world.size() - 1 ? make_error_code(errc::aborted)
                                                        : nccl::make_error(ncclRemoteError)));
    CHECK(co_await soon([&] { return gpus[0].stands() == nccl::phase::gone; }));
    CHECK(another.stands() == nccl::phase::ready);
    co_await meet(world);
    co_await nccl::barrier(another, s[1]);
  });
}

TEST_CASE("a process that does not lap is named with all its devices") {
  on_pairs([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    nccl::communicator_options options;
    options.on_deadline = cohort::on_deadline::abort;
    options.answer_bound = 2s;
    auto gpus = co_await nccl::make_communicators(world, both, options);
    const two_streams s;
    auto v = co_await vectors(gpus, s, 4, one_more);
    co_await meet(world);
    const int last = world.size() - 1;
    if (world.rank() == last && last != 0) {
      hold_the_loop();
    } else {
      if (last != 0) co_await loop_is_held(last);
      auto group = sums(gpus, s, v);
      if (last == 0) {  // nobody else: the other device is behind
        nccl::all_reduce(gpus[0], s[0], v[0], op::sum, asio::detached);
        group = nccl::set_group();
        group.add(nccl::barrier(gpus[0], s[0], in_group));
      }
      auto running = group.run();
      auto bounded = cohort::with_deadline(std::move(running), world.rank() == 0 ? 20ms : 1h);
      const auto code = co_await code_of(std::move(bounded));
      if (world.rank() == 0) {
        CHECK(code == errc::deadline_exceeded);
        if (last != 0) let_loop_go(last);
        const std::string text = gpus[0].last_failure().text + gpus[1].last_failure().text;
        INFO(text);
        const std::string ranks =
            "rank " + std::to_string(2 * last) + ", rank " + std::to_string(2 * last + 1);
        const std::string named = last == 0 ? "has not started it: rank 1 (has started nothing)"
                                            : "silent for 2000 ms: " + ranks;
        CHECK(text.find(named) != std::string::npos);
      }
    }
    CHECK(co_await soon([&] { return gpus[0].stands() == nccl::phase::gone; }));
    CHECK(co_await soon([&] { return gpus[1].stands() == nccl::phase::gone; }));
    co_await meet(world);
  });
}
