// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file The order between what is elected and the streams of the program: after failures, with
/// captures, and for memory that nothing orders.

#include "support.hpp"
#include "support/patience.hpp"

#include <chrono>
#include <cmath>
#include <thread>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::coordinator;
using cohort::errc;

/// Closes the coordinator on all ranks while the first of what they start is being launched and
/// what is behind it is not.
class launch_that_fails {
 public:
  explicit launch_that_fails(const communicator& world)
      : world_(world), comm_(fake_nccl::communicators_of(world.size()).front()) {
    before_ = fake_nccl::calls("ncclAllReduce");
    fake_nccl::stall_next("ncclAllReduce");
  }
  [[nodiscard]] bool is_at_hand() const { return fake_nccl::calls("ncclAllReduce") != before_; }
  void fail() const {
    if (world_.rank() == world_.size() - 1) fake_nccl::set_async_error(comm_, ncclSystemError);
  }

 private:
  communicator world_;
  ncclComm_t comm_;
  std::uint64_t before_;
};

inline void check_device() {
  static_cast<void>(cudaDeviceSynchronize());
  CHECK(device::state_of(0).lost() == cudaSuccess);
  CHECK(cudaGetLastError() == cudaSuccess);
}

}  // namespace

DOUBLE_TEST_CASE("packs that were not filled when all failed are not filled later") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;  // everything is launched at once
    const cohort::log::capture log;
    std::deque<ending> ends;
    const device::stream late;
    auto coord = co_await opened(world);
    const device::stream on;
    std::vector<device::vector<float>> values;
    for (int i = 0; i < 16; ++i) values.push_back(co_await filled(on, 100, 1.0F));
    co_await meet(world);
    const launch_that_fails first(world);
    co_await meet(world);
    held_stream held(late);
    // One is launched, two more have a buffer for packs, the others wait for one.
    for (std::size_t i = 0; i < 16; i += 2) {
      cohort::bundle all("b" + std::to_string(i));
      all.add("0", values[i]).add("1", values[i + 1]);
      coord.grouped_all_reduce(std::move(all), op::sum, {.on = late},
                               ends.emplace_back().handler());
    }
    CHECK(co_await soon([&] { return first.is_at_hand(); }));
    CHECK(co_await soon([&] { return all_started(coord); }));
    co_await meet(world);
    values.clear();  // each operation has a lease, as long as it has not failed
    co_await meet(world);
    first.fail();
    CHECK(co_await soon([&] { return all_over(ends); }));
    for (const ending& one : ends) CHECK(one.is_data_error());
    co_await coord.shutdown();
    held.let_go();
    auto over = device::done(late);
    co_await std::move(over);
    co_await pause(20ms);
    check_device();
    co_await meet(world);
    co_await works_anew(world);
  });
}

DOUBLE_TEST_CASE("borrowed memory may go in the order of its stream after a failure") {
  // Of the operation that was being launched, or of one behind it.
  const bool behind = GENERATE(false, true);
  on_gpus([behind](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    std::deque<ending> ends;
    const device::stream late;
    auto coord = co_await opened(world);
    const device::stream on;
    auto a = co_await filled(on, 100, 1.0F);
    auto b = co_await filled(on, 100, 1.0F);
    auto other = co_await filled(on, 100, 1.0F);
    co_await meet(world);
    const launch_that_fails first(world);
    co_await meet(world);
    held_stream held(late);
    if (behind) coord.all_reduce("first", other, op::sum, ends.emplace_back().handler());
    if (behind) CHECK(co_await soon([&] { return first.is_at_hand(); }));
    cohort::bundle all("b");
    const device::span<float> of_a(a.data(), a.size(), on);
    const device::span<float> of_b(b.data(), b.size(), on);
    all.add("0", of_a).add("1", of_b);
    coord.grouped_all_reduce(std::move(all), op::sum, {.on = late}, ends.emplace_back().handler());
    CHECK(co_await soon([&] { return first.is_at_hand(); }));
    CHECK(co_await soon([&] { return all_started(coord); }));
    co_await meet(world);
    first.fail();
    CHECK(co_await soon([&] { return all_over(ends); }));
    for (const ending& one : ends) CHECK(one.is_data_error());
    // Its operation has ended, and what fills the pack waits for `late` still.
    a = device::vector<float>();
    b = device::vector<float>();
    co_await pause(50ms);
    held.let_go();
    auto over = device::done(late);
    co_await std::move(over);
    co_await pause(20ms);
    check_device();
    co_await coord.shutdown();
  });
}

TEST_CASE("a stream that is captured between submission and launch is left alone") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;  // it is launched at once
    auto coord = co_await opened(world);
    const device::stream on;
    auto values = co_await filled(on, 5, 1.0F);
    co_await meet(world);
    ending end;
    cohort::call_options queued;
    queued.on = on;
    queued.ends = cohort::until::enqueued;
    if (world.rank() != 0) co_await pause(50ms);
    coord.all_reduce("x", values, op::sum, queued, end.handler());
    if (world.rank() == 0) {
      CHECK(cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    }
    CHECK(co_await soon([&] { return end.over; }));
    INFO(end.text());
    CHECK(end.well());
    if (world.rank() == 0) {
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamEndCapture(on.get(), &graph) == cudaSuccess);
      if (graph != nullptr) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    }
    // No stream waits where it has ended so late: the data are there.
    CHECK(co_await now_in(values) == std::vector<float>(5, static_cast<float>(world.size())));
    co_await sums(coord, "after");
    co_await coord.shutdown();
  });
}

TEST_CASE("a direct verb ends later where its stream is captured before it is launched") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream on;
    auto values = co_await filled(on, 5, 1.0F);
    co_await nccl::all_reduce(gpus, on, values, op::sum);
    co_await meet(world);
    outcome end;
    if (world.rank() != 0) co_await pause(50ms);
    nccl::all_reduce(gpus, on, values, op::sum, cohort::until::enqueued, end.handler());
    if (world.rank() == 0) {
      CHECK(cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    }
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(!end.code);
    if (world.rank() == 0) {
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamEndCapture(on.get(), &graph) == cudaSuccess);
      if (graph != nullptr) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    }
    const auto ranks = static_cast<float>(world.size());
    CHECK(co_await now_in(values) == std::vector<float>(5, ranks * ranks));
    co_await meet(world);
  });
}

TEST_CASE("a gather does not wait for what its stream is given after the submission") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;  // its size is known at once
    auto coord = co_await opened(world);
    const device::stream on;
    auto values = co_await filled(on, 5, static_cast<float>(world.rank()));
    const std::vector<std::size_t> parts(static_cast<std::size_t>(world.size()), 1);
    auto sent = co_await filled(on, parts.size(), static_cast<float>(world.rank()));
    co_await meet(world);
    ending gathered;
    ending exchanged;
    device::vector<float> all;
    device::vector<float> come;
    if (world.rank() != 0) co_await pause(50ms);
    coord.all_gather("g", values, [&](std::exception_ptr why, device::vector<float> made) {
      all = std::move(made);
      gathered.handler()(why);
    });
    coord.all_to_all("x", sent, parts,
                     [&](std::exception_ptr why, device::vector<float> made, auto&&) {
                       come = std::move(made);
                       exchanged.handler()(why);
                     });
    // Rank 0 submits first, so no result is made yet.
    std::optional<held_stream> held;
    if (world.rank() == 0) {
      CHECK(cudaStreamSynchronize(on.get()) == cudaSuccess);  // the marks of the submissions
      held.emplace(on);
    }
    CHECK(co_await soon([&] { return gathered.over && exchanged.over; }));
    if (held) held->let_go();
    CHECK(co_await soon([&] { return gathered.over && exchanged.over; }));
    INFO(gathered.text());
    CHECK(gathered.well());
    CHECK(exchanged.well());
    if (!gathered.well() || !exchanged.well()) co_return;
    CHECK(all.producer() == on);  // as before, for whoever frees it or goes on with it
    std::vector<float> wanted;
    std::vector<float> one_of_each;
    for (int rank = 0; rank < world.size(); ++rank) {
      wanted.insert(wanted.end(), 5, static_cast<float>(rank));
      one_of_each.push_back(static_cast<float>(rank));
    }
    CHECK(co_await now_in(all) == wanted);
    CHECK(co_await now_in(come) == one_of_each);
    co_await coord.shutdown();
  });
}

TEST_CASE("what follows an enqueued gather on its stream sees the result") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    const device::stream on;
    cohort::call_options queued;
    queued.ends = cohort::until::enqueued;
    for (int round = 0; round < 20; ++round) {
      auto values = co_await filled(on, 1000, round + world.rank());
      auto all = co_await coord.all_gather("g", values, queued);
      std::vector<int> wanted;
      for (int rank = 0; rank < world.size(); ++rank) {
        wanted.insert(wanted.end(), 1000, round + rank);
      }
      CHECK(co_await now_in(all) == wanted);
    }
    co_await coord.shutdown();
  });
}

TEST_CASE("a factor before a sum keeps it in range whatever factor comes after it") {
  const bool packed = GENERATE(false, true);
  on_gpus([packed](communicator world) -> asio::awaitable<void> {
    nccl::backend_options options;
    options.pack_below = packed ? 1 << 20 : 1;
    coordinator coord(world, nccl::backend(options));
    const device::stream on;
    const int ranks = world.size();
    const int above = (ranks + 1) / 2;  // of them bring 40000, the others -40000
    const float mine = world.rank() < above ? 40000.0F : -40000.0F;
    auto a = co_await filled(on, 100, cohort::f16(mine));
    auto b = co_await filled(on, 10, cohort::f16(mine));
    cohort::bundle both("sum");
    both.add("a", a).add("b", b);
    co_await coord.grouped_all_reduce(std::move(both), op::sum,
                                      {.prescale = 0.25, .postscale = 4.0});
    const float sum = 40000.0F * static_cast<float>(above - (ranks - above));
    for (const auto* each : {&a, &b}) {
      const auto seen = co_await now_in(*each);
      CHECK(static_cast<float>(seen.front()) == sum);
      CHECK(static_cast<float>(seen.back()) == sum);
    }
    auto c = co_await filled(on, 100, cohort::f16(mine));
    co_await coord.all_reduce("average", c, op::average, {.prescale = 0.25, .postscale = 4.0});
    const auto seen = co_await now_in(c);
    CHECK(std::abs(static_cast<float>(seen.back()) - sum / static_cast<float>(ranks)) <= 16);
    co_await coord.shutdown();
  });
}

TEST_CASE("borrowed memory that nothing orders or keeps is refused by name") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto coord = co_await opened(world);
    const device::stream on;
    auto values = co_await filled(on, 5, 1.0F);
    const device::span<float> bare(values.data(), values.size(), 0);
    const device::span<float> known(values.data(), values.size(), on);
    cohort::call_options queued;
    queued.ends = cohort::until::enqueued;
    ending end;
    coord.all_reduce("bare", bare, op::sum, queued, end.handler());
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(end.code() == errc::invalid_argument);
    CHECK(has(end.text(), "until::enqueued"));
    co_await meet(world);
    co_await coord.all_reduce("with its stream", known, op::sum, queued);
    queued.on = on;
    co_await coord.all_reduce("with a stream named", bare, op::sum, queued);
    co_await coord.all_reduce("complete", bare, op::sum);
    const auto ranks = static_cast<float>(world.size());
    CHECK(co_await now_in(values) == std::vector<float>(5, ranks * ranks * ranks));

    coord.all_reduce("for nobody", known, op::sum, asio::detached);
    coord.all_reduce("for nobody either", known, op::sum,
                     asio::bind_executor(world.get_executor(), asio::detached));
    CHECK(co_await soon([&] { return coord.pending().empty(); }));
    CHECK(log.contains("for nobody: "));
    CHECK(log.contains("for nobody either: "));
    co_await meet(world);
    // A lease is as good as an owner.
    coord.all_reduce("kept", values, op::sum, asio::detached);
    CHECK(co_await soon([&] { return coord.pending().empty(); }));
    CHECK(co_await now_in(values) == std::vector<float>(5, ranks * ranks * ranks * ranks));
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE(
    "memory of a replay that fails just when it is launched is kept until it is over") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    const device::stream on;
    auto a = co_await filled(on, 1000, 1.0F);
    auto b = co_await filled(on, 1000, 1.0F);
    coordinator coord(world, nccl::backend());
    cohort::bundle both("step");
    both.add("a", a).add("b", b);
    auto group = co_await coord.make_persistent(std::move(both), op::sum);
    auto captured = co_await group.capture();
    co_await group.replay(captured);
    const ncclComm_t comm = fake_nccl::communicators_of(world.size()).front();
    const auto aborts = fake_nccl::calls("ncclCommAbort");
    co_await meet(world);
    const bool last = world.rank() == world.size() - 1;
    auto& source = asio::use_service<nccl::issue_source>(world.get_executor().context());
    const device::stream domain = source.domain_of(0);
    std::optional<held_stream> held;
    if (last) {
      held.emplace(domain);
      // Nobody asks for it before there is an operation: its launch is what meets it.
      fake_nccl::set_async_error(comm, ncclSystemError);
    }
    ending end;
    group.replay(captured, end.handler());
    CHECK(co_await soon([&] { return fake_nccl::calls("ncclCommAbort") != aborts; }));
    co_await pause(20ms);  // what was freed is free now
    if (held) held->let_go();
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(end.is_data_error());
    auto over = device::done(domain);
    co_await std::move(over);
    check_device();
    captured = {};
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("an operation whose event has come ends with the error that NCCL has by then") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream on;
    auto values = co_await filled(on, 5, 1.0F);
    auto& source = asio::use_service<nccl::issue_source>(world.get_executor().context());
    const device::stream domain = source.domain_of(0);
    co_await nccl::all_reduce(gpus, on, values, op::sum);
    co_await meet(world);
    const ncclComm_t native = gpus.native();
    held_stream held(on);
    outcome end;
    nccl::all_reduce(gpus, on, values, op::sum, end.handler());
    CHECK(co_await soon([&] { return on_the_device(gpus); }));  // its event is recorded
    CHECK(!end.over);
    // Nobody laps from here on until both are so: the event is there, and the error.
    held.let_go();
    const auto bound = std::chrono::steady_clock::now() + cohort_test::patient(10s);
    const auto runs = [&] {
      const device::detail::relaxed_capture may_ask;
      return fake_nccl::pending_kernels(native) != 0 ||
             cudaStreamQuery(domain.get()) == cudaErrorNotReady;
    };
    while (runs() && std::chrono::steady_clock::now() < bound) std::this_thread::yield();
    static_cast<void>(cudaGetLastError());
    CHECK(!runs());
    fake_nccl::set_async_error(native, ncclSystemError);
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(end.code);
    CHECK(co_await soon([] { return fake_nccl::live_communicators() == 0; }));
  });
}

TEST_CASE("what NCCL does is polled while somebody captures in the strictest mode") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;  // it is over at once
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream on;
    const device::stream captured;
    const device::stream late;
    auto values = co_await filled(on, 5, 1.0F);
    co_await nccl::all_reduce(gpus, on, values, op::sum);
    co_await meet(world);
    held_stream held(late);
    on.wait(late);
    outcome end;
    nccl::all_reduce(gpus, on, values, op::sum, end.handler());
    CHECK(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
    co_await pause(50ms);  // it is launched, and its event is asked for
    CHECK(!end.over);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(captured.get(), &graph) == cudaSuccess);
    if (graph != nullptr) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    held.let_go();
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(!end.code);
    co_await meet(world);
  });
}
