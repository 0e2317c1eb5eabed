// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file What goes wrong on a device, in NCCL or on another rank, under a coordinator: every
/// awaiter of every rank hears of it, and the ranks can begin anew.

#include "faults/interposer.hpp"
#include "support.hpp"

#include <cohort/progress/deadline.hpp>

#include <chrono>
#include <thread>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::coordinator;
using cohort::errc;

nccl::backend_options aborting() {
  nccl::backend_options made;
  made.communicator.on_deadline = cohort::on_deadline::abort;
  made.communicator.answer_bound = 300ms;
  return made;
}

/// Operations that take every way through the backend. Buffers are made before, for pinned memory
/// waits for the device.
class traffic {
 public:
  static constexpr std::size_t small = 12;

  asio::awaitable<void> prepare(const coordinator& coord) {
    const auto n = static_cast<std::size_t>(coord.size());
    for (std::size_t i = 0; i < small; ++i) sums_.push_back(co_await filled(on_, 20 + i, 1.0F));
    large_ = co_await filled(on_, 1200000, 1.0F);
    parts_ = co_await filled(on_, 2 * n, 1);
    told_ = co_await filled(on_, 20, 1.0F);
    rooted_ = co_await filled(on_, 21, 1.0F);
  }
  /// `round` is a part of the names.
  void submit(const coordinator& coord, const std::string& round) {
    const auto name = [&](const std::string& what) { return what + " " + round; };
    submit_sums(coord, round);
    coord.all_reduce(name("large"), large_, op::sum, next());
    coord.all_gather(name("gather"), parts_, next());
    coord.reduce_scatter(name("scatter"), parts_, op::sum, next());
    coord.all_to_all(name("exchange"), parts_,
                     std::vector<int>(static_cast<std::size_t>(coord.size()), 2), next());
    coord.broadcast(name("broadcast"), told_, 0, next());
    coord.reduce(name("reduce"), rooted_, op::max, 0, next());
  }
  /// Those that need no memory but that of packs.
  void submit_sums(const coordinator& coord, const std::string& round) {
    for (std::size_t i = 0; i < small; ++i) {
      coord.all_reduce("sum" + std::to_string(i) + " " + round, sums_[i], op::sum, next());
    }
  }
  [[nodiscard]] std::deque<ending>& ends() { return ends_; }

 private:
  struct note {
    ending* to;
    template <class... Results>
    void operator()(std::exception_ptr why, Results&&...) const {
      to->why = std::move(why);
      to->over = true;
    }
  };
  note next() { return note{&ends_.emplace_back()}; }

  device::stream on_;
  std::vector<device::vector<float>> sums_;
  device::vector<float> large_;
  device::vector<int> parts_;
  device::vector<float> told_;
  device::vector<float> rooted_;
  std::deque<ending> ends_;
};

/// Everything has ended with the coordinator's error.
asio::awaitable<void> all_fail(std::deque<ending>& ends) {
  CHECK(co_await soon([&] { return all_over(ends); }));
  for (const ending& one : ends) {
    INFO(one.text());
    CHECK(one.is_data_error());
    CHECK(has(one.text(), "what is queued behind it is undefined"));
  }
}

/// What is submitted later fails too; the coordinator can be left, and the next one works.
asio::awaitable<void> begins_anew(communicator world, coordinator coord) {
  device::stream on;
  auto late = co_await filled(on, 3, 1.0F);
  ending one;
  coord.all_reduce("late", late, op::sum, one.handler());
  CHECK(co_await soon([&] { return one.over; }));
  CHECK(one.is_data_error());
  int host = 1;
  CHECK(co_await code_of(coord.all_reduce("late, on the host", host, op::sum)) ==
        errc::data_operation_failed);
  CHECK(coord.pending().empty());
  co_await coord.shutdown();
  CHECK(co_await soon_on_double([] { return fake_nccl::live_communicators() == 0; }));
  co_await meet(world);
  co_await works_anew(world);
}

/// A coordinator whose next kernel on every rank hangs, with operations behind it.
inline asio::awaitable<void> hang(communicator world, coordinator coord, traffic& work) {
  co_await sums(coord, "before");
  co_await work.prepare(coord);
  co_await hangs_next(world, native(world));
  work.submit(coord, "hanging");
  const ncclComm_t comm = native(world);
  CHECK(co_await soon([&] { return fake_nccl::pending_kernels(comm) != 0; }));
  co_await meet(world);
}

/// The first pack of all ranks holds the whole device, so all stands behind it, while on the last
/// rank something fails, which is told.
template <class Fail, class Submit>
inline asio::awaitable<void> fails_behind_a_pack(communicator world, std::string told, Fail fail,
                                                 Submit submit) {
  const cohort::log::capture log;
  auto coord = co_await opened(world);
  traffic work;
  co_await work.prepare(coord);
  co_await meet(world);
  const bool fails = world.rank() == world.size() - 1;
  const device::stream domain = domain_here(world);
  fake_gpu::hold(domain.get());
  if (fails) fail(true);
  submit(coord, work);
  if (fails) {
    CHECK(co_await soon([&] { return log.contains(told); }));
    fail(false);
  }
  co_await meet(world);
  fake_gpu::release(domain.get());
  co_await all_fail(work.ends());
  co_await begins_anew(world, coord);
}

/// MPI fails once, in this function, on the rank where it is so.
class mpi_failure {
 public:
  mpi_failure(const char* function, bool here) : function_(function), here_(here) {
    faults::reset();
    if (here) faults::fail_next(function, MPI_ERR_NO_MEM);
  }
  void check_and_end() const {
    if (here_) CHECK(faults::failed_as_asked(function_));
    faults::reset();
  }

 private:
  const char* function_;
  bool here_;
};

}  // namespace

DOUBLE_TEST_CASE("an asynchronous error of NCCL ends every operation of every rank") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;  // one rank launches nothing in place
    const cohort::log::capture log;
    coordinator coord(world, nccl::backend());
    traffic work;
    co_await hang(world, coord, work);
    ending never;  // not elected: the other ranks do not submit it
    std::vector<int> host(3, 1);
    if (world.rank() == 0) coord.all_reduce("never", host, op::sum, never.handler());
    CHECK_FALSE(std::any_of(work.ends().begin(), work.ends().end(),
                            [](const ending& one) { return one.over; }));
    co_await meet(world);
    if (world.rank() == world.size() - 1) {
      fake_nccl::set_async_error(native(world), ncclSystemError);
    }
    co_await all_fail(work.ends());
    if (world.rank() == 0) {
      CHECK(co_await soon([&] { return never.over; }));
      CHECK(never.is_data_error());
    }
    co_await begins_anew(world, coord);
  });
}

DOUBLE_TEST_CASE("a deadline over a hanging device ends every operation of every rank") {
  const bool by_option = GENERATE(false, true);
  on_gpus([by_option](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    coordinator coord(world, nccl::backend(aborting()));
    traffic work;
    co_await hang(world, coord, work);
    device::stream on;
    ending bounded;
    // It is elected long before.
    cohort::call_options limit;
    if (by_option && world.rank() == 0) limit.deadline = 2s;
    auto values = device::vector<float>(5, on);
    auto running = coord.all_reduce("bounded", values, op::sum, limit, cohort::as_future);
    CHECK(co_await soon([&] { return is_started(coord, "bounded"); }));
    co_await meet(world);
    auto waiting = by_option || world.rank() != 0
                       ? static_cast<asio::awaitable<void>&&>(std::move(running))
                       : cohort::with_deadline(std::move(running), 50ms);
    asio::co_spawn(world.get_executor(), std::move(waiting), bounded.handler());
    co_await all_fail(work.ends());
    CHECK(co_await soon([&] { return bounded.over; }));
    CHECK(bounded.is_data_error());
    CHECK(log.contains("nccl all_reduce #"));  // who stood where
    CHECK((world.rank() != 0 || log.contains(make_error_code(errc::deadline_exceeded).message())));
    co_await begins_anew(world, coord);
  });
}

TEST_CASE("a deadline over what a device does is reported where no abort is asked for") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    auto coord = co_await opened(world);
    device::stream on;
    auto values = co_await filled(on, 5, 1.0F);
    auto& source = asio::use_service<nccl::issue_source>(world.get_executor().context());
    held_stream device_is_busy(source.domain_of(values.device()));
    auto running = coord.all_reduce("held", values, op::sum, cohort::as_future);
    CHECK(co_await soon([&] { return is_started(coord, "held"); }));
    ending held;
    asio::co_spawn(world.get_executor(), cohort::with_deadline(std::move(running), 30ms),
                   held.handler());
    CHECK(co_await soon([&] { return log.contains("NCCL cannot give it up"); }));
    CHECK_FALSE(held.over);
    co_await meet(world);
    device_is_busy.let_go();
    CHECK(co_await soon([&] { return held.over; }));
    CHECK(held.well());
    CHECK(co_await now_in(values) == std::vector<float>(5, static_cast<float>(world.size())));
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("a sticky error of one rank's device ends every operation of every rank") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        const cohort::log::capture log;
        const int last = world.size() - 1;
        const bool breaks = world.rank() == last;
        auto survivors = co_await world.split(breaks ? -1 : 0);
        coordinator coord(world, nccl::backend());
        traffic work;
        if (world.size() > 1) {
          co_await hang(world, coord, work);
        } else {
          co_await sums(coord, "before");
          co_await work.prepare(coord);
          auto& source = asio::use_service<nccl::issue_source>(world.get_executor().context());
          fake_gpu::hold(source.domain_of(0).get());
          work.submit(coord, "held");
        }
        if (breaks) fake_gpu::break_device(0, cudaErrorIllegalAddress);
        co_await all_fail(work.ends());
        CHECK(coord.pending().empty());
        co_await coord.shutdown();
        co_await meet(world);
        if (world.size() == 1) co_return;

        // That process cannot come back; the others hear of it by name, and go on without it.
        auto again = co_await world.dup();
        {
          coordinator broken(again, nccl::backend());
          auto failed = co_await why_not_opened<cohort::rank_error>(broken);
          REQUIRE(failed);
          CHECK(failed->code() == errc::no_device);
          CHECK(failed->ranks() == std::vector<int>{last});
          co_await broken.shutdown();
        }
        if (survivors) {
          CHECK(co_await soon([] { return fake_nccl::live_communicators() == 0; }));
          coordinator fresh(survivors, nccl::backend());
          co_await sums(fresh, "after");
          co_await fresh.shutdown();
        }
        co_await meet(world);
      },
      true);  // nothing is aborted on a lost device
}

DOUBLE_TEST_CASE("a foreign reset of one rank's device ends every operation of every rank") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;
        const cohort::log::capture log;
        coordinator coord(world, nccl::backend());
        traffic work;
        co_await hang(world, coord, work);
        if (world.rank() == world.size() - 1) cudaDeviceReset();
        co_await all_fail(work.ends());
        CHECK(coord.pending().empty());
        co_await coord.shutdown();
        co_await meet(world);
        co_await works_anew(world);
      },
      true);
}

DOUBLE_TEST_CASE("a rank that does not lap is named, and the operations of all ranks end") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    const int last = world.size() - 1;
    auto options = aborting();
    options.communicator.answer_bound = 2s;  // those who lap answer, so that one is silent
    coordinator coord(world, nccl::backend(options));
    device::stream on;
    auto values = co_await filled(on, 5, 1.0F);
    traffic work;
    co_await sums(coord, "before");
    co_await work.prepare(coord);
    co_await hangs_next(world, native(world));
    auto running = coord.all_reduce("bounded", values, op::sum, cohort::as_future);
    work.submit(coord, "hanging");
    const ncclComm_t comm = native(world);
    CHECK(co_await soon([&] { return fake_nccl::pending_kernels(comm) != 0; }));
    co_await meet(world);
    if (world.rank() == last) {
      hold_the_loop();
    } else {
      co_await loop_is_held(last);
    }
    ending bounded;
    auto waiting = world.rank() != 0 ? static_cast<asio::awaitable<void>&&>(std::move(running))
                                     : cohort::with_deadline(std::move(running), 50ms);
    asio::co_spawn(world.get_executor(), std::move(waiting), bounded.handler());
    co_await all_fail(work.ends());
    CHECK(co_await soon([&] { return bounded.over; }));
    CHECK(bounded.is_data_error());
    if (world.rank() == 0) {
      CHECK(log.contains("silent for 2000 ms: rank " + std::to_string(last)));
      let_loop_go(last);
    }
    co_await begins_anew(world, coord);
  });
}

DOUBLE_TEST_CASE("a launch that fails on one rank ends every operation of every rank") {
  const std::string function = GENERATE(as<std::string>{}, "ncclAllReduce", "ncclGroupEnd");
  on_gpus([function](communicator world) -> asio::awaitable<void> {
    const auto fail = [&](bool fails) {
      if (fails) fake_nccl::fail_next(function.c_str(), ncclSystemError);
    };
    const auto submit = [](const coordinator& coord, traffic& work) {
      work.submit(coord, "failing");
    };
    const std::string told(nccl::make_error(ncclSystemError).message());
    co_await fails_behind_a_pack(world, told, fail, submit);
  });
}

DOUBLE_TEST_CASE("a pack without device memory ends every operation of every rank") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const auto fail = [](bool fails) {
      fake_gpu::fail_next("cudaMallocAsync", fails ? cudaErrorMemoryAllocation : cudaSuccess,
                          fails ? 1000000 : 0);
    };
    const auto submit = [](const coordinator& coord, traffic& work) {
      work.submit_sums(coord, "failing");
    };
    const std::string told = device::make_error(cudaErrorMemoryAllocation).message();
    co_await fails_behind_a_pack(world, told, fail, submit);
  });
}

DOUBLE_TEST_CASE("a pack that gets its device memory at the second attempt is right") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto coord = co_await opened(world);
    device::stream on;
    std::vector<device::vector<float>> values;
    for (int i = 0; i < 8; ++i) values.push_back(co_await filled(on, 20, 1.0F));
    fake_gpu::fail_next("cudaMallocAsync", cudaErrorMemoryAllocation);
    std::deque<ending> ends;
    for (std::size_t i = 0; i < values.size(); ++i) {
      coord.all_reduce(std::to_string(i), values[i], op::sum, ends.emplace_back().handler());
    }
    CHECK(co_await soon([&] { return all_over(ends); }));
    for (const ending& one : ends) CHECK(one.text().empty());
    for (const auto& each : values) {
      CHECK(co_await now_in(each) == std::vector<float>(20, static_cast<float>(world.size())));
    }
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("an opening without pinned memory on one rank is one error on all ranks") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    const int last = world.size() - 1;
    if (world.rank() == last) {
      fake_gpu::fail_next("cudaHostAlloc", cudaErrorMemoryAllocation, 1000000);
    }
    coordinator coord(world, nccl::backend());
    auto failed = co_await why_not_opened<cohort::rank_error>(coord);
    REQUIRE(failed);
    CHECK(failed->ranks() == std::vector<int>{last});
    CHECK(has(failed->what(), device::make_error(cudaErrorMemoryAllocation).message()));
    if (world.rank() == last) fake_gpu::fail_next("cudaHostAlloc", cudaSuccess, 0);
    co_await coord.shutdown();
    co_await meet(world);
    co_await works_anew(world);
  });
}

DOUBLE_TEST_CASE("an init of NCCL that fails on one rank is one error on all ranks") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    const int last = world.size() - 1;
    if (world.rank() == last) fake_nccl::fail_next("ncclCommInitRankConfig", ncclSystemError);
    coordinator coord(world, nccl::backend());
    auto failed = co_await why_not_opened<std::system_error>(coord);
    REQUIRE(failed);
    CHECK(failed->code() == nccl::make_error(ncclSystemError));
    CHECK(has(failed->what(), "on rank " + std::to_string(last) + ": "));
    co_await coord.shutdown();
    co_await meet(world);
    co_await works_anew(world);
  });
}

DOUBLE_TEST_CASE(
    "a host operation that fails on one rank ends what is on the devices of all ranks") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    const int last = world.size() - 1;
    coordinator coord(world, nccl::backend());
    traffic work;
    co_await hang(world, coord, work);
    std::vector<int> host(3, 1);
    const mpi_failure failure("MPI_Iallreduce", world.rank() == last);
    ending failing;
    coord.all_reduce("host", host, op::sum, failing.handler());
    co_await all_fail(work.ends());
    CHECK(co_await soon([&] { return failing.over; }));
    CHECK(failing.is_data_error());
    failure.check_and_end();
    co_await begins_anew(world, coord);
  });
}

TEST_CASE("MPI's part of a reduction that fails on one rank ends every operation of every rank") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    const int last = world.size() - 1;
    nccl::backend_options options;
    options.host_path = true;
    auto coord = co_await opened(world, options);
    device::stream on;
    auto shorts = co_await filled(on, 10, std::int16_t{1});
    auto floats = co_await filled(on, 10, 1.0F);
    co_await meet(world);
    const mpi_failure failure("MPI_Iallreduce", world.rank() == last);
    std::deque<ending> ends;
    coord.all_reduce("by MPI", shorts, op::sum, {.priority = 1}, ends.emplace_back().handler());
    coord.all_reduce("behind", floats, op::sum, ends.emplace_back().handler());
    co_await all_fail(ends);
    failure.check_and_end();
    co_await begins_anew(world, coord);
  });
}

TEST_CASE("a fault while sizes are exchanged ends what waits for them") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    const int last = world.size() - 1;
    auto coord = co_await opened(world);
    device::stream on;
    auto values = co_await filled(on, 5, 1.0F);
    auto parts = co_await filled(on, 2, 1);
    co_await meet(world);
    const mpi_failure failure("MPI_Iallgather", world.rank() == last);
    std::deque<ending> ends;
    coord.all_gather("gather", parts, {.priority = 1}, ends.emplace_back().handler());
    coord.all_reduce("behind", values, op::sum, ends.emplace_back().handler());
    co_await all_fail(ends);
    failure.check_and_end();
    co_await begins_anew(world, coord);
  });
}
