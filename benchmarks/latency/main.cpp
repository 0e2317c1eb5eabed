// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What does awaiting an operation cost over raw MPI? Competitors take turns within one process, in
// chunks; the order rotates. Ratios are taken chunk by chunk and their medians reported.

#include "competitors.hpp"
#include "support/core_distance.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <cohort/mpi/environment.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/shm.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace {

struct options {
  std::string level = "serialized";
  int chunks = 300;
  std::vector<std::string> only;
};

using measure = std::function<asio::awaitable<double>(std::vector<double>&, int)>;

struct competitor {
  const char* name;
  measure chunk;
  double target;  ///< of the ratio to the first competitor; 0: only reported
};

asio::awaitable<double> ready(double value) { co_return value; }

class contest {
 public:
  /// With `only`: those whose title contains one of these.
  contest(const cohort::communicator& world, bench::core_distance& distance,
          std::vector<std::string> only)
      : world_(world), distance_(distance), only_(std::move(only)) {}

  asio::awaitable<void> run(const std::string& title, std::vector<competitor> competitors,
                            std::size_t elements, int rounds, int chunks) {
    if (!is_wanted(title)) co_return;
    std::vector<double> buffer(elements, 1.0);
    std::vector<std::vector<double>> times(competitors.size());
    std::vector<bool> far;
    for (int chunk = -2; chunk < chunks; ++chunk) {  // two to warm up
      const double round_trip = distance_.round_trip();
      if (chunk >= 0) far.push_back(round_trip > 200);
      for (std::size_t turn = 0; turn < competitors.size(); ++turn) {
        const std::size_t who = (turn + far.size()) % competitors.size();
        MPI_Barrier(world_.native());
        const double time = co_await competitors[who].chunk(buffer, rounds);
        if (chunk >= 0) times[who].push_back(time);
      }
    }
    if (world_.rank() == 0) report(title, competitors, times, far);
  }

 private:
  [[nodiscard]] bool is_wanted(const std::string& title) const {
    return only_.empty() || std::any_of(only_.begin(), only_.end(), [&](const std::string& part) {
             return title.find(part) != std::string::npos;
           });
  }
  static void report(const std::string& title, const std::vector<competitor>& competitors,
                     const std::vector<std::vector<double>>& times, const std::vector<bool>& far) {
    std::printf("%s: %s, median %.0f ns, p99 %.0f ns; %zu chunks, %zu with far cores\n",
                title.c_str(), competitors[0].name, bench::median(times[0]),
                bench::percentile(times[0], 0.99), far.size(),
                bench::only(times[0], far, true).size());
    for (std::size_t who = 1; who < competitors.size(); ++who) {
      const auto ratio = bench::ratios(times[who], times[0]);
      bench::print_row(std::string("  ") + competitors[who].name, bench::median(ratio), "x raw",
                       competitors[who].target);
      bench::print_spread(times[who], ratio, far, 3);
    }
    std::printf("\n");
  }

  cohort::communicator world_;
  bench::core_distance& distance_;
  std::vector<std::string> only_;
};

/// 6 messages of 8 KiB each way between two ranks.
asio::awaitable<void> measure_halo(cohort::communicator world, contest& race, int chunks) {
  asio::io_context apart;
  const cohort::communicator elsewhere(apart);
  const auto raw = [&](double (*function)(MPI_Comm, std::vector<double>&, int)) -> measure {
    return [&world, function](std::vector<double>& buffer, int rounds) {
      return ready(function(world.native(), buffer, rounds));
    };
  };
  const auto blocking =
      [&](double (*function)(const cohort::communicator&, std::vector<double>&, int)) -> measure {
    return [&elsewhere, function](std::vector<double>& buffer, int rounds) {
      return ready(function(elsewhere, buffer, rounds));
    };
  };
  const auto awaited = [&](auto* function) -> measure {
    return [&world, function](std::vector<double>& buffer, int rounds) {
      return function(world, buffer, rounds);
    };
  };
  std::vector<competitor> halo;
  halo.push_back({"MPI_Irecv, MPI_Isend, MPI_Waitall", raw(raw_mpi::halo), 0});
  halo.push_back({"batch, blocking", blocking(with_cohort::blocking_halo), 1.10});
  halo.push_back({"co_await batch", awaited(with_cohort::await_halo), 0});
  halo.push_back({"futures, when_all", awaited(with_cohort::future_halo), 0});
  halo.push_back({"MPI_Startall, MPI_Waitall", raw(raw_mpi::persistent_halo), 0});
  halo.push_back(
      {"persistent batch, blocking", blocking(with_cohort::blocking_persistent_halo), 0});
  halo.push_back({"co_await persistent batch", awaited(with_cohort::await_persistent_halo), 0});
  co_await race.run("halo of 6 x 8 KiB each way", halo, 12 * 1024, 300, chunks);
}

asio::awaitable<void> measure_all(cohort::communicator world, bench::core_distance& distance,
                                  options chosen) {
  const auto raw = [&](double (*function)(MPI_Comm, std::vector<double>&, int)) -> measure {
    return [=](std::vector<double>& buffer, int rounds) {
      return ready(function(world.native(), buffer, rounds));
    };
  };
  const auto awaited = [&](auto* function) -> measure {
    return [=](std::vector<double>& buffer, int rounds) { return function(world, buffer, rounds); };
  };
  const bool crowded =
      static_cast<unsigned>(world.size()) > std::max(std::thread::hardware_concurrency(), 1U);
  const bool single = cohort::mpi::level() == cohort::thread_level::single;
  contest race(world, distance, chosen.only);

  const competitor iallreduce{"MPI_Iallreduce + MPI_Wait", raw(raw_mpi::all_reduce), 0};
  const competitor co_awaited{"co_await", awaited(with_cohort::await_all_reduce),
                              crowded  ? 1.15
                              : single ? 1.20
                                       : 1.10};
  const competitor future{"as_future, then co_await", awaited(with_cohort::future_all_reduce),
                          crowded ? 0 : 1.25};
  const competitor callback{"callback", awaited(with_cohort::callback_all_reduce), 0};
  const competitor blocking{"MPI_Allreduce (blocking)", raw(raw_mpi::blocking_all_reduce), 0};
  // Nobody runs this loop.
  asio::io_context apart;
  const cohort::communicator elsewhere(apart);
  const cohort::communicator by_messages(apart, {.backend = cohort::backend_choice::mpi});
  const cohort::communicator by_mpi(apart, {.backend = cohort::backend_choice::mpi_blocking});
  const auto blocked = [](const cohort::communicator& on, auto* function) -> measure {
    return [=](std::vector<double>& buffer, int rounds) {
      return ready(function(on, buffer, rounds));
    };
  };
  const competitor in_plain_code{"sync_wait of a coroutine",
                                 blocked(elsewhere, with_cohort::sync_wait_all_reduce), 2.0};
  std::vector<competitor> small;
  small.push_back(iallreduce);
  small.push_back(co_awaited);
  small.push_back(future);
  small.push_back(callback);
  small.push_back(in_plain_code);
  small.push_back(
      {"blocking, backend mpi", blocked(by_messages, with_cohort::blocking_all_reduce), 1.2});
  small.push_back({"persistent, blocking, backend mpi",
                   blocked(by_messages, with_cohort::persistent_all_reduce), 0});
  small.push_back(blocking);
  co_await race.run("all_reduce 8 B", small, 1, crowded ? 200 : 1000, chosen.chunks);
  const auto all_block = [&](const std::string& title, std::size_t elements, int rounds,
                             double target, int chunks) {
    std::vector<competitor> all;
    all.push_back(blocking);
    all.push_back({"blocking", blocked(elsewhere, with_cohort::blocking_all_reduce), target});
    all.push_back(
        {"blocking, backend mpi_blocking", blocked(by_mpi, with_cohort::blocking_all_reduce), 1.1});
    all.push_back(
        {"persistent, blocking", blocked(elsewhere, with_cohort::persistent_all_reduce), 0});
    return race.run(title, all, elements, rounds, chunks);
  };
  co_await all_block("blocking all_reduce 8 B", 1, crowded ? 200 : 1000, 1.1, chosen.chunks);
  if (crowded) co_return;

  if (world.size() == 2) {
    std::vector<competitor> pair;
    pair.push_back({"MPI_Send, MPI_Recv", raw(raw_mpi::ping_pong), 0});
    pair.push_back({"MPI_Isend, MPI_Irecv, MPI_Wait", raw(raw_mpi::nonblocking_ping_pong), 0});
    pair.push_back({"co_await send, recv", awaited(with_cohort::ping_pong), 1.5});
    pair.push_back(
        {"blocking send, recv", blocked(elsewhere, with_cohort::blocking_ping_pong), 1.2});
    pair.push_back(
        {"blocking, backend mpi_blocking", blocked(by_mpi, with_cohort::blocking_ping_pong), 1.1});
    co_await race.run("ping-pong 8 B, round trip", pair, 1, 1000, chosen.chunks);
    co_await measure_halo(world, race, std::max(chosen.chunks / 3, 1));
  }

  std::vector<competitor> large;
  large.push_back(iallreduce);
  large.push_back({"co_await", awaited(with_cohort::await_all_reduce), 1.03});
  large.push_back({"co_await, op::adasum", awaited(with_cohort::await_adasum), 0});
  const int chunks = std::max(chosen.chunks / 3, 1);
  const auto elements = [](int kib) { return static_cast<std::size_t>(kib) * 128; };
  co_await all_block("blocking all_reduce 4 KiB", elements(4), 300, 1.0, chunks);
  co_await all_block("blocking all_reduce 64 KiB", elements(64), 100, 1.0, chunks);
  co_await all_block("blocking all_reduce 1 MiB", elements(1 << 10), 10, 1.0, chunks);
  co_await race.run("all_reduce 4 KiB", large, elements(4), 300, chunks);
  co_await race.run("all_reduce 64 KiB", large, elements(64), 100, chunks);
  co_await race.run("all_reduce 1 MiB", large, elements(1 << 10), 10, chunks);
  co_await race.run("all_reduce 16 MiB", large, elements(16 << 10), 1, chunks);
}

}  // namespace

int main(int argc, char** argv) {
  options chosen;
  CLI::App app("What awaiting costs over raw MPI; start it with mpirun -np 2, or more");
  app.add_option("--level", chosen.level, "thread level")
      ->check(CLI::IsMember({"single", "serialized", "multiple"}));
  app.add_option("--chunks", chosen.chunks, "chunks of the small messages; a third for the others");
  app.add_option("--only", chosen.only, "only titles that contain this: \"8 B\", halo, 1 MiB");
  CLI11_PARSE(app, argc, argv);

  const auto level = chosen.level == "single"     ? cohort::thread_level::single
                     : chosen.level == "multiple" ? cohort::thread_level::multiple
                                                  : cohort::thread_level::serialized;
  cohort::environment env(argc, argv, level);
  asio::io_context io;
  asio::steady_timer alive(io, std::chrono::hours(1));  // makes every turn of the loop dearer
  cohort::communicator world(io);
  if (world.rank() == 0) bench::print_machine(world.size());
  bench::core_distance distance(cohort::mpi::comm_ref(world.native()));
  asio::co_spawn(io, measure_all(world, distance, chosen), cohort::rethrow);
  io.run();
}
