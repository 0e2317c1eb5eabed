// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file What ends in time although a rank does not lap: operations that have been elected and are
/// not on the device.

#include "faults/interposer.hpp"
#include "support.hpp"
#include "support/patience.hpp"

#include <cohort/progress/deadline.hpp>

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::coordinator;
using cohort::errc;

/// Sooner than the rank that does not lap goes on.
template <class Predicate>
asio::awaitable<bool> within(std::chrono::seconds bound, Predicate holds) {
  const auto end = std::chrono::steady_clock::now() + cohort_test::patient(bound);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) co_return false;
    co_await pause(1ms);
  }
  co_return true;
}

/// The last rank, which does not lap until all others have ended, or for 12 s. They tell each other
/// by files, because it looks at nothing else.
class silence {
 public:
  silence(int number, const communicator& world)
      : path_((std::filesystem::temp_directory_path() / "cohort_silent_").string() +
              std::to_string(number) + "_"),
        rank_(world.rank()),
        size_(world.size()) {}
  silence(const silence&) = delete;
  ~silence() {
    std::error_code ignored;
    std::filesystem::remove(path_ + std::to_string(rank_), ignored);
  }
  /// By the last rank, when it has submitted: what it has to tell the coordinator leaves before.
  [[nodiscard]] asio::awaitable<void> begin() const {
    for (int lap = 0; lap < 20; ++lap) {
      auto waiting = pause(5ms);
      co_await std::move(waiting);
    }
    tell();
    const auto end = std::chrono::steady_clock::now() + cohort_test::patient(12s);
    for (int rank = 0; rank < size_ - 1; ++rank) {
      while (!told(rank) && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(5ms);
      }
    }
  }
  /// By all, before they submit; the others return when it has begun.
  [[nodiscard]] asio::awaitable<void> comes(communicator world) const {
    co_await meet(world);
    if (rank_ == size_ - 1) co_return;
    auto waiting = soon([this] { return told(size_ - 1); });
    const bool has = co_await std::move(waiting);
    CHECK(has);
  }
  void has_ended() const { tell(); }

 private:
  void tell() const { std::ofstream(path_ + std::to_string(rank_)) << "told\n"; }
  [[nodiscard]] bool told(int rank) const {
    return std::filesystem::exists(path_ + std::to_string(rank));
  }

  std::string path_;
  int rank_;
  int size_;
};

/// The same on all ranks, and no other job's.
asio::awaitable<int> common_number(communicator world) {
  int number = static_cast<int>(getpid());
  auto told = cohort::broadcast(world, number, 0);
  co_await std::move(told);
  co_return number;
}

nccl::backend_options that_abort() {
  nccl::backend_options options;
  options.communicator.on_deadline = cohort::on_deadline::abort;
  options.communicator.answer_bound = 2s;  // those who lap answer, so that one is silent
  return options;
}

/// Its deadline is the first to pass.
bool is_first(const communicator& world) { return world.rank() == world.size() - 2; }
std::chrono::seconds deadline_of(const communicator& world) { return is_first(world) ? 3s : 9s; }

}  // namespace

DOUBLE_TEST_CASE("a deadline passes over an operation whose sizes a silent rank does not tell") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;
        const cohort::log::capture log;
        auto coord = co_await opened(world, that_abort());
        auto set = co_await coord.add_process_set(cohort::ranks::all(world.size()));
        CHECK(fake_nccl::live_communicators() == 2);
        device::stream on;
        auto parts = co_await filled(on, 2, 1);
        auto behind = co_await filled(on, 2, 1.0F);
        const silence silent(co_await common_number(world), world);
        co_await silent.comes(world);
        const int last = world.size() - 1;
        const cohort::call_options limit{.deadline = deadline_of(world)};
        ending gathered;
        ending reduced;
        coord.all_gather("g", parts, limit, gathered.handler());
        coord.all_reduce("behind", behind, op::sum, limit, reduced.handler());
        if (world.rank() == last) {
          co_await silent.begin();
        } else {
          const auto aborts = fake_nccl::calls("ncclCommAbort");
          const auto groups = fake_nccl::calls("ncclGroupStart");
          CHECK(co_await within(10s, [&] { return gathered.over && reduced.over; }));
          if (is_first(world)) {
            const std::string text = log.text();
            INFO(text);
            CHECK(
                has(text, "waits for the sizes of all ranks; asked the ranks: silent for 2000 ms"));
            CHECK(has(text, "ms: rank " + std::to_string(last)));
            CHECK(co_await within(10s, [] { return fake_nccl::live_communicators() == 0; }));
            CHECK(fake_nccl::calls("ncclCommAbort") - aborts == 2);
            CHECK(fake_nccl::calls("ncclGroupStart") - groups == 1);  // by one thread
          }
          silent.has_ended();
        }
        CHECK(co_await soon([&] { return gathered.over && reduced.over; }));
        CHECK(gathered.is_data_error());
        CHECK(reduced.is_data_error());
        co_await coord.shutdown();
      },
      true);
}

DOUBLE_TEST_CASE("a deadline passes over an operation between nodes") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;
        const cohort::log::capture log;
        auto coord = co_await opened(world, over_nodes(world, 1, that_abort()));
        device::stream on;
        auto values = co_await filled(on, 2, 1.0F);
        const silence silent(co_await common_number(world), world);
        co_await silent.comes(world);
        const int last = world.size() - 1;
        ending end;
        coord.all_reduce("x", values, op::sum, {.deadline = deadline_of(world)}, end.handler());
        if (world.rank() == last) {
          co_await silent.begin();
        } else {
          CHECK(co_await within(10s, [&] { return end.over; }));
          if (is_first(world)) {
            const std::string text = log.text();
            INFO(text);
            CHECK(has(text, "waits for what MPI reduces of it between nodes; asked the ranks"));
            CHECK(has(text, "silent for 2000 ms: rank " + std::to_string(last)));
          }
          silent.has_ended();
        }
        CHECK(co_await soon([&] { return end.over; }));
        CHECK(end.is_data_error());
        co_await coord.shutdown();
      },
      true);
}

DOUBLE_TEST_CASE("a deadline over an operation whose sizes come late is only told by default") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    auto coord = co_await opened(world);
    device::stream on;
    auto parts = co_await filled(on, 2, 1);
    const silence silent(co_await common_number(world), world);
    co_await silent.comes(world);
    const int last = world.size() - 1;
    ending gathered;
    coord.all_gather("g", parts, {.deadline = deadline_of(world)}, gathered.handler());
    if (world.rank() == last) {
      co_await silent.begin();
    } else {
      if (is_first(world)) CHECK(co_await within(10s, [&] { return log.contains("sizes"); }));
      CHECK_FALSE(gathered.over);
      silent.has_ended();
    }
    CHECK(co_await soon([&] { return gathered.over; }));
    CHECK(gathered.well());
    if (is_first(world)) {
      const std::string text = log.text();
      CHECK(text.find("sizes") == text.rfind("sizes"));  // once
    }
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("a loop ends after a fault while leaders reduce between nodes") {
  std::chrono::steady_clock::time_point over;
  on_gpus(
      [&](communicator world) -> asio::awaitable<void> {
        over = std::chrono::steady_clock::now();
        if (world.size() < 2) co_return;
        const cohort::log::capture log;
        auto coord = co_await opened(world, over_nodes(world, 1));
        device::stream on;
        auto values = co_await filled(on, 5, 1.0F);
        co_await meet(world);
        const int last = world.size() - 1;
        if (world.rank() == last) fake_gpu::hold(domain_here(world).get());
        ending end;
        coord.all_reduce("x", values, op::sum, end.handler());
        CHECK(co_await soon([&] { return is_started(coord, "x"); }));
        co_await pause(200ms);
        co_await meet(world);
        if (world.rank() == last) fake_gpu::break_device(0, cudaErrorIllegalAddress);
        CHECK(co_await soon([&] { return end.over; }));
        CHECK(end.is_data_error());
        co_await coord.shutdown();
        over = std::chrono::steady_clock::now();
      },
      true);
  CHECK(std::chrono::steady_clock::now() - over < cohort_test::patient(5s));
}

// The last rank sees no message while the decision is on its way and the deadline passes, so it
// asks for a withdrawal in vain.
DOUBLE_TEST_CASE("a deadline that passes just before the election ends what the device then has") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    const int last = world.size() - 1;
    auto coord = co_await opened(world, that_abort());
    device::stream on;
    auto values = co_await filled(on, 5, 1.0F);
    const ncclComm_t comm = native(world);
    co_await meet(world);
    fake_nccl::hang_next(comm);
    ending end;
    const auto rank_0_told = [] {
      const cohort::mpi::lock calls;
      int there = 0;
      MPI_Iprobe(0, 77, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
      return there != 0;
    };
    if (world.rank() != last) coord.all_reduce("w", values, op::sum, end.handler());
    if (world.rank() == 0) {
      let_loop_go(last);  // which submits while this rank sees no message
      wait_for_sign(last);
      CHECK(co_await soon([&] { return is_started(coord, "w"); }));
      let_loop_go(last);
    } else if (world.rank() == last) {
      CHECK(co_await soon(rank_0_told));
      wait_for_sign(0);
      const auto before = coord.stats().messages_sent;
      auto running = coord.all_reduce("w", values, op::sum, cohort::as_future);
      CHECK(co_await soon([&] { return coord.stats().messages_sent != before; }));
      faults::replace_testsome([](int, MPI_Request*, int* done, int*, MPI_Status*) {
        *done = 0;
        return MPI_SUCCESS;
      });
      let_loop_go(0);
      CHECK(co_await soon(rank_0_told));
      asio::co_spawn(world.get_executor(), cohort::with_deadline(std::move(running), 1ms),
                     end.handler());
      co_await pause(20ms);
      CHECK_FALSE(is_started(coord, "w"));
      faults::reset();
      wait_for_sign(0);
    }
    CHECK(co_await soon([&] { return end.over; }));
    INFO(end.text());
    CHECK(end.is_data_error());
    CHECK(
        (world.rank() != last || log.contains(make_error_code(errc::deadline_exceeded).message())));
    co_await coord.shutdown();
    CHECK(co_await soon([] { return fake_nccl::live_communicators() == 0; }));
  });
}

DOUBLE_TEST_CASE("the data of who gives up are kept, and what it does to them later is not seen") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    auto coord = co_await opened(world, {}, impatient());
    device::stream on;
    auto a = co_await filled(on, 3, 1.0F);
    auto b = co_await filled(on, 2, 1.0F);
    co_await meet(world);
    ending of_a;
    ending of_b;
    if (world.rank() == 0) {  // a long computation, until the others have given up
      for (int rank = 1; rank < world.size(); ++rank) wait_for_sign(rank);
      coord.all_reduce("a", a, op::sum, of_a.handler());
      CHECK(co_await soon([&] { return of_a.over; }));
      if (of_a.well()) {
        CHECK(co_await now_in(a) == std::vector<float>(3, static_cast<float>(world.size())));
      }
    } else {
      const auto allocations = fake_gpu::calls("cudaMallocAsync");
      coord.all_reduce("a", a, op::sum, {.deadline = 50ms}, of_a.handler());
      coord.grouped_all_reduce(cohort::bundle("b").add("b", b), op::sum, of_b.handler());
      CHECK(co_await soon([&] { return of_a.over && of_b.over; }));
      CHECK(of_a.code() == errc::deadline_exceeded);
      CHECK(has(of_a.text(), "no decision within 400 ms"));
      CHECK(of_b.code() == errc::deadline_exceeded);
      CHECK(fake_gpu::calls("cudaMallocAsync") == allocations + 2);  // a copy of each
      device::fill(on, a, 100.0F);
      a = device::vector<float>();
      let_loop_go(0);
    }
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("who gives up a start of a process set's group on the host has its data kept") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    auto coord = co_await opened(world, {}, impatient());
    const auto set = co_await coord.add_process_set(cohort::ranks::all(world.size()));
    std::vector<float> values(3, 1.0F);
    cohort::bundle members("group");
    members.add("values", values);
    const auto group = co_await set.make_persistent(std::move(members), op::sum);
    co_await meet(world);
    ending started;
    if (world.rank() == 0) {  // a long computation, until the others have given up
      for (int rank = 1; rank < world.size(); ++rank) wait_for_sign(rank);
      group.start(started.handler());
      CHECK(co_await soon([&] { return started.over; }));
      if (started.well()) {
        CHECK(values == std::vector<float>(3, static_cast<float>(world.size())));
      }
    } else {
      int other = 1;
      ending late;
      group.start(started.handler());
      coord.all_reduce("late", other, op::sum, {.deadline = 50ms}, late.handler());
      CHECK(co_await soon([&] { return started.over && late.over; }));
      CHECK(started.code() == errc::deadline_exceeded);
      CHECK(has(started.text(), "'group: start': no decision within 400 ms"));
      values.assign(3, 100.0F);
      let_loop_go(0);
    }
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("operations whose device does not end after a fault are forgotten by then") {
  const gpus_of_ranks machine;
  asio::io_context io;
  cohort::use_engine(io, {.drain = 300ms});
  const auto body = [](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    const auto coord = co_await opened(world);  // whose bound for aborts is far longer
    device::stream on;
    auto a = co_await filled(on, 5, 1.0F);
    auto b = co_await filled(on, 5, 1.0F);
    co_await meet(world);
    const bool is_it = world.rank() == 0;
    const ncclComm_t comm = native(world);
    // Its kernels do not begin, so that an abort, which waits for them, does not end.
    std::optional<held_stream> held;
    if (is_it) held.emplace(domain_here(world));
    std::deque<ending> ends;
    coord.all_reduce("a", a, op::sum, ends.emplace_back().handler());
    coord.broadcast("b", b, 0, ends.emplace_back().handler());
    CHECK(co_await soon([&] { return is_started(coord, "a") && is_started(coord, "b"); }));
    CHECK(co_await soon([&] { return fake_nccl::pending_kernels(comm) != 0; }));
    co_await meet(world);
    if (is_it) fake_nccl::set_async_error(comm, ncclSystemError);
    CHECK(co_await soon([&] { return all_over(ends); }));
    for (const ending& one : ends) CHECK(one.is_data_error());
    CHECK(fake_nccl::blocked_calls() == (is_it ? 1 : 0));
    co_await coord.shutdown();
    co_await meet(world);
    held.reset();
    CHECK(co_await soon([] { return fake_nccl::live_communicators() == 0; }));
  };
  communicator world(io);
  run(io, body(world));
  CHECK(fake_nccl::faults().empty());
}
