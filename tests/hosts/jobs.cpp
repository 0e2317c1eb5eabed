// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Jobs over simulated hosts; run.sh makes these, and starts one of the jobs below.

#include <cohort/cluster.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/collectives/broadcast.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/process.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/shm/backend.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "support/patience.hpp"

namespace {

namespace cluster = cohort::cluster;
using namespace std::chrono_literals;
using job = asio::awaitable<void>;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

asio::awaitable<void> waits(cluster::call_context& call) {
  asio::steady_timer timer(call.context(), 10min);
  co_await timer.async_wait(asio::use_awaitable);
}
std::string host_name() { return cohort::process::host_name(); }

job sleep(std::chrono::nanoseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}

/// Of hosts.sh, from the head.
bool hosts(const std::string& command) {
  const char* const script = std::getenv("COHORT_HOSTS_SCRIPT");
  require(script != nullptr, "COHORT_HOSTS_SCRIPT is not set");
  return std::system((std::string(script) + " " + command).c_str()) == 0;
}

cluster::launch_options on_two_hosts() {
  return cluster::launch_options{}.ranks(2).hosts({"h1:1", "h2:1"}).grace(1s);
}

/// A call to a host whose cable is out ends, and so does the worker there: within `heartbeats`.
job cut(cluster::launch_options options, std::chrono::seconds heartbeats) {
  const auto executor = co_await asio::this_coro::executor;
  auto& io = static_cast<asio::io_context&>(executor.context());
  options.on_loss(cluster::loss_policy::proceed);
  auto launching = cluster::launch(io, options);
  const cluster::workers all = co_await std::move(launching);
  const std::string there = co_await all.call<&host_name>(1);
  require(there == "h2", "rank 1 is on " + there);
  const std::string alive = "agent h2 kill -0 " + std::to_string(all.pid(1)) + " 2>/dev/null";
  require(hosts(alive), "the worker on h2 is not seen");
  auto pending = all.call<&waits>(1, cohort::as_future);
  require(std::system("ip link set h2 down") == 0, "cut");
  const auto before = std::chrono::steady_clock::now();
  const auto within = [&](std::chrono::seconds bound) {
    return std::chrono::steady_clock::now() - before < bound;
  };
  try {
    auto bounded =
        cohort::with_deadline(std::move(pending), cohort_test::patient(heartbeats + 34s));
    co_await std::move(bounded);
  } catch (const cohort::peer_lost_error& lost) {
    std::cout << lost.what() << std::endl;
    require(lost.ranks() == std::vector<int>{1}, "another rank is named");
  }
  require(all.state(1) == cluster::worker_state::lost, "rank 1 is not lost");
  while (hosts(alive)) {
    require(within(cohort_test::patient(heartbeats + 34s)),
            "the worker of the host that is cut lives on");
    auto pause = sleep(200ms);
    co_await std::move(pause);
  }
  const std::string here = co_await all.call<&host_name>(0);
  require(here == "h1", "rank 0 is on " + here);
  co_await all.shutdown(20s);
  require(all.state(0) == cluster::worker_state::gone, "rank 0 has not left");
}

/// A host that crashes and comes back is used again, and no worker speaks of a manager that is
/// gone.
job respawn() {
  const auto executor = co_await asio::this_coro::executor;
  auto& io = static_cast<asio::io_context&>(executor.context());
  struct {
    std::mutex mutex;
    std::string text;
  } printed;
  const auto sink = [&](const cluster::output_line& line) {
    const std::lock_guard guard(printed.mutex);
    printed.text += line.text;
    std::cout << line.text << std::endl;
  };
  auto options = on_two_hosts().heartbeat(500ms).sink(sink);
  options.on_loss(cluster::loss_policy::respawn).respawns(1);
  auto launching = cluster::launch(io, options);
  const cluster::workers all = co_await std::move(launching);
  const char* const state = std::getenv("COHORT_HOSTS");
  require(state != nullptr, "COHORT_HOSTS is not set");
  auto pending = all.call<&waits>(1, cohort::as_future);
  require(std::system(("kill -KILL $(cat " + std::string(state) + "/h2)").c_str()) == 0, "kill");
  bool lost = false;
  try {
    co_await std::move(pending);
  } catch (const cohort::peer_lost_error&) {
    lost = true;
  }
  require(lost, "the call has not ended with a loss");
  auto pause = sleep(5s);  // so long does it boot
  co_await std::move(pause);
  require(hosts("boot-here h2"), "boot");
  co_await all.ready();
  const std::string there = co_await all.call<&host_name>(1);
  require(there == "h2", "rank 1 is on " + there);
  co_await all.shutdown();
  const std::lock_guard guard(printed.mutex);
  require(printed.text.find("the manager is gone") == std::string::npos,
          "a worker has said that the manager is gone");
}

/// Two ranks on each host: who is where, in the world and without its last rank.
job nodes(cohort::communicator world) {
  require(world.local_size() == 2 && world.local_rank() == world.rank() % 2, "places in the world");
  require(world.is_homogeneous(), "two ranks on each host");
  const bool last = world.rank() == 3;
  const cohort::communicator most = co_await world.split(last ? -1 : 0);
  if (last) co_return;
  const int together = world.rank() < 2 ? 2 : 1;
  require(most.local_size() == together, "ranks on this host without rank 3");
  require(most.local_rank() == (world.rank() == 1 ? 1 : 0), "place without rank 3");
  require(!most.is_homogeneous(), "two ranks on one host, and one on the other");
}

/// Whether sums and broadcasts of `count` numbers are right, through the backend of `world`.
asio::awaitable<bool> sums_right(cohort::communicator world, std::size_t count) {
  const int n = world.size();
  std::vector<double> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = world.rank() + static_cast<double>(i % 100);
  co_await cohort::all_reduce(world, x, cohort::op::sum);
  for (std::size_t i = 0; i < count; ++i) {
    if (x[i] != n * (n - 1) / 2 + n * static_cast<double>(i % 100)) co_return false;
  }
  for (int root = 0; root < n; ++root) {
    std::fill(x.begin(), x.end(), world.rank() == root ? root + 0.5 : -1.0);
    co_await cohort::broadcast(world, x, root);
    if (std::count(x.begin(), x.end(), root + 0.5) != std::ptrdiff_t(count)) co_return false;
  }
  co_return true;
}

/// Ranks of several hosts share memory on each, and send messages between them: blocks of ranks,
/// one rank on each host, and hosts with unequal numbers of ranks in turns.
job between(cohort::communicator world) {
  co_await nodes(world);
  const bool last = world.rank() == 3;
  const bool firsts = world.rank() == 0 || world.rank() == 2;
  const cohort::communicator uneven = co_await world.split(last ? -1 : 0, -world.rank());
  const cohort::communicator single = co_await world.split(firsts ? 0 : -1);
  for (cohort::communicator over : {world, uneven, single}) {
    if (!over) continue;
    const auto by = co_await cohort::shm::make_backend(over);
    require(by.active() && by.name() == "hierarchical", "no backend: " + by.why());
    over.set_backend(by);
    const cohort::communicator_statistics before = over.stats();
    for (const std::size_t count : {0, 1, 1000, 30'001, 400'000}) {
      const bool right = co_await sums_right(over, count);
      require(right, "sums of " + std::to_string(count) + " numbers");
    }
    co_await cohort::barrier(over);
    const cohort::communicator_statistics done = over.stats();
    require(done.backend == "hierarchical" &&
                done.by_backend.operations == done.operations - before.operations,
            "MPI has done some of it");
    over.reset_backend();
  }
}

/// Sums between hosts until one of them is gone; then every rank has an error, or MPI ends it.
job forever(cohort::communicator world) {
  world.set_backend(co_await cohort::shm::make_backend(world));
  std::vector<float> x(100'000, 1.0F);
  for (int i = 0;; ++i) {
    if (i == 10 && world.rank() == 0) std::cout << "going" << std::endl;
    co_await cohort::all_reduce(world, x, cohort::op::max);
  }
}

/// A host crashes while its ranks sum with others, which then end. mpiexec of Open MPI 4 may wait
/// for the host for ever; it ends with the simulated hosts.
int loss(const std::string& self) {
  const char* const launcher = std::getenv("COHORT_MPIEXEC");
  const std::string starts = launcher == nullptr ? "mpiexec" : launcher;
  const bool is_hydra = std::system((starts + " --version 2>&1 | grep -q HYDRA").c_str()) == 0;
  const std::string where = is_hydra ? " -hosts h1:2,h2:2" : " --host h1:2,h2:2 --bind-to none";
  FILE* const output = ::popen((starts + where + " -n 4 " + self + " forever 2>&1").c_str(), "r");
  require(output != nullptr, "popen");
  std::array<char, 1000> line{};
  do {
    require(std::fgets(line.data(), line.size(), output) != nullptr, "the job has not begun");
  } while (std::string_view(line.data()).substr(0, 5) != "going");
  const auto ranks_are_there = [] {
    return hosts("agent h1 pgrep -f \"'[f]orever$'\" >/dev/null");
  };
  require(ranks_are_there(), "no ranks on h1");
  require(std::system("kill -KILL $(cat $COHORT_HOSTS/h2)") == 0, "kill");
  const auto end = std::chrono::steady_clock::now() + cohort_test::patient(60s);
  while (ranks_are_there()) {
    require(std::chrono::steady_clock::now() < end, "ranks on the host that is left go on");
    std::this_thread::sleep_for(200ms);
  }
  return 0;
}

/// A worker of another host that sleeps hears of a call, though its doorbell cannot be rung: no
/// UDP leaves this host.
job doorbell(cohort::communicator world) {
  require(std::system("ip rule add ipproto udp blackhole") == 0, "blackhole");
  auto adopting =
      cluster::adopt(world, cluster::adopt_options().transport(cluster::transport::mpi));
  const cluster::workers all = co_await std::move(adopting);
  const std::string before = co_await all.call<&host_name>(3);
  require(before == "h2", "rank 3 is on " + before);
  auto pause = sleep(4s);  // more than an engine looks after the last message
  co_await std::move(pause);
  auto bounded =
      cohort::with_deadline(all.call<&host_name>(3, cohort::as_future), cohort_test::patient(20s));
  co_await std::move(bounded);
  co_await all.shutdown();
}

int run(asio::io_context& io, job work) {
  std::exception_ptr failed;
  asio::co_spawn(io, std::move(work), [&](std::exception_ptr why) { failed = why; });
  io.run();
  if (!failed) return 0;
  try {
    std::rethrow_exception(failed);
  } catch (const std::exception& problem) {
    std::cerr << "failed: " << problem.what() << std::endl;
  }
  return 1;
}

/// On one node: a rank is killed in the middle of a collective in memory.
job killed(cohort::communicator world) {
  world.set_backend(co_await cohort::shm::make_backend(world));
  std::vector<int> data(100'000, 1);
  co_await cohort::all_reduce(world, data, cohort::op::sum);
  require(world.stats().by_backend.operations == 1, "not in memory");
  if (world.rank() == 1) {
    std::cerr << "in memory, then killed" << std::endl;
    std::raise(SIGKILL);
  }
  co_await cohort::all_reduce(world, data, cohort::op::sum);
}

}  // namespace

int main(int argc, char** argv) {
  if (cluster::serve(argc, argv)) return 0;
  if (const char* const launcher = std::getenv("MPIEXEC")) {
    if (*launcher != '\0') ::setenv("COHORT_MPIEXEC", launcher, 0);
  }
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what == "loss") {
    try {
      return loss(argv[0]);
    } catch (const std::exception& problem) {
      std::cerr << "failed: " << problem.what() << std::endl;
      std::_Exit(1);  // the job runs on
    }
  }
  if (what == "ranks-between" || what == "forever" || what == "killed") {
    cohort::environment env{argc, argv};
    asio::io_context io;
    const cohort::communicator world{io};
    if (what == "killed") return run(io, killed(world));
    return run(io, what == "forever" ? forever(world) : between(world));
  }
  if (what == "ranks-doorbell") {
    cohort::environment env{argc, argv};
    asio::io_context io;
    const cohort::communicator world{io};
    if (world.rank() == 0) return run(io, doorbell(world));
    cluster::serve(world);
    return 0;
  }
  asio::io_context io;
  if (what == "cut") return run(io, cut(on_two_hosts().heartbeat(1s), 6s));
  if (what == "cut-by-default") return run(io, cut(on_two_hosts(), 30s));
  if (what == "respawn") return run(io, respawn());
  std::cerr << "no job \"" << what << "\"" << std::endl;
  return 2;
}
