// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Whatever a program opens at once, in whatever order its ranks run, none hangs.
//
// openings [--first SEED] [--count N] [--seconds S]: runs N programs made from the seeds from SEED
// on, or as many as S seconds allow. A seed decides which two or three things are opened, over
// which communicators, and what collectives lie between; each rank then delays each of its
// coroutines as it likes. One that takes too long is named by its seed and ends the job.

#include <cohort/cluster/call_context.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/membership/invitation.hpp>
#include <cohort/cluster/serve.hpp>
#include <cohort/cluster/workers.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/coordinator.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/mpi/topology.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/rendezvous.hpp>
#include <cohort/shm/backend.hpp>

#include "support/patience.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using task = asio::awaitable<void>;
using cohort::communicator;
using cohort::coordinator;
using random = std::mt19937_64;

const auto patience = cohort_test::patient(60s);

enum class kind : std::uint8_t {
  coordinator,
  dropped_coordinator,
  rendezvous,
  dup,
  split,
  split_node,
  grid,
  shm_backend,
  process_set,
  persistent_group,
  adopted,
  intercommunicator,
  workers
};
constexpr std::size_t kinds = 13;

/// All pairs and triples, repetitions included, but for workers: a rank serves once at a time.
std::vector<std::vector<kind>> combinations() {
  std::vector<std::vector<kind>> all;
  for (std::size_t a = 0; a < kinds; ++a) {
    for (std::size_t b = a; b < kinds; ++b) {
      all.push_back({static_cast<kind>(a), static_cast<kind>(b)});
      for (std::size_t c = b; c < kinds; ++c) {
        all.push_back({static_cast<kind>(a), static_cast<kind>(b), static_cast<kind>(c)});
      }
    }
  }
  std::erase_if(all, [](const auto& each) {
    return std::count(each.begin(), each.end(), kind::workers) > 1;
  });
  return all;
}

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(std::string("openings: ") + what);
}

/// Something that this rank opens, until it is of use. How many there were at once is counted.
class opening {
 public:
  opening() {
    const int now = ++under_way;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) continue;
  }
  opening(const opening&) = delete;
  opening& operator=(const opening&) = delete;
  ~opening() { done(); }
  void done() {
    if (!std::exchange(done_, true)) --under_way;
  }
  static inline std::atomic<int> most{0};

 private:
  static inline std::atomic<int> under_way{0};
  bool done_ = false;
};

task sum_ranks(communicator over) {
  int sum = 1;
  co_await cohort::all_reduce(over, sum, cohort::op::sum);
  require(sum == over.size(), "a sum over a communicator is wrong");
}

// ---- what is done with what has been opened; each runs in a coroutine of its own
// -----------------

task use(coordinator opened, int size) {
  opening now;
  int sum = 1;
  co_await opened.all_reduce("sum", sum, cohort::op::sum);
  now.done();
  require(sum == size, "a sum of a coordinator is wrong");
  co_await opened.shutdown();
}

task use(cohort::future<communicator> making, bool member) {
  opening now;
  const communicator opened = co_await std::move(making);
  now.done();
  require(static_cast<bool>(opened) == member, "the wrong ranks have a communicator");
  if (member) co_await sum_ranks(opened);
}

task use(cohort::rendezvous opened, int rank, int size) {
  opening now;
  const auto step = opened.step(1);
  cohort::rendezvous_key out;
  out.source = rank;
  out.destination = (rank + 1) % size;
  out.name = "value";
  step.send(out, rank);
  cohort::rendezvous_key in;
  in.source = (rank + size - 1) % size;
  in.destination = rank;
  in.name = "value";
  const auto got = co_await step.recv<int>(in);
  now.done();
  require(got.value == in.source, "a value of a rendezvous is wrong");
  co_await opened.close();
}

task use_set(coordinator of, int rank, int size) {
  opening now;
  std::vector<int> members(static_cast<std::size_t>(size + 1) / 2);
  for (std::size_t i = 0; i < members.size(); ++i) members[i] = 2 * static_cast<int>(i);
  std::vector<int> backwards(static_cast<std::size_t>(size));
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  const cohort::ranks some(members);
  const cohort::ranks all(backwards);
  const auto evens = co_await of.add_process_set(some);
  const auto everyone = co_await of.add_process_set(all);
  now.done();
  require(static_cast<bool>(evens) == (rank % 2 == 0), "the wrong ranks have a set");
  int sum = 1;
  co_await everyone.all_reduce("sum", sum, cohort::op::sum);
  require(sum == size, "a sum of a set is wrong");
  co_await of.shutdown();
}

task use_group(coordinator of, int size) {
  opening now;
  std::vector<int> values(3, 1);
  auto tensors = cohort::bundle("group").add("values", values);
  const auto group = co_await of.make_persistent(std::move(tensors), cohort::op::sum);
  co_await group.start();
  now.done();
  require(values == std::vector<int>(3, size), "a sum of a persistent group is wrong");
  co_await of.shutdown();
}

/// A duplicate of an intercommunicator.
task meet_across(cohort::future<communicator> making) {
  opening now;
  const communicator made = co_await std::move(making);
  now.done();
  co_await cohort::barrier(made);
}

asio::awaitable<int> count_workers(cohort::cluster::call_context& call) {
  int sum = 1;
  co_await cohort::all_reduce(call.world(), sum, cohort::op::sum);
  co_return sum;
}

/// On rank 0; the other ranks serve.
task use_workers(communicator of_job, cohort::cluster::transport how) {
  cohort::cluster::adopt_options options;
  options.transport(how).timeout(patience);
  opening now;
  auto adopting = cohort::cluster::adopt(of_job, options);
  const auto workers = co_await std::move(adopting);
  now.done();
  auto calling = workers.call_all<&count_workers>();
  for (const auto& each : co_await std::move(calling)) {
    require(each.value() == of_job.size() - 1, "a sum over workers is wrong");
  }
  co_await workers.shutdown();
}

// ---- a program ----------------------------------------------------------------------------------

/// What is opened over one communicator, in an order that all ranks share.
struct lane {
  communicator over;
  std::vector<kind> opens;
  std::vector<bool> collective;  // after each
  communicator across;           // between even and odd ranks, in the same context
  communicator of_job;           // of the workers, in the first context on all ranks
};

/// Lets other coroutines and other ranks go first, now and then.
task delay(random& own) {
  const auto choice = own() % 8;
  if (choice < 3) co_return;
  if (choice < 6) {
    for (auto times = own() % 20; times != 0; --times) {
      co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    }
    co_return;
  }
  asio::steady_timer timer(co_await asio::this_coro::executor);
  timer.expires_after(std::chrono::microseconds(own() % 400));
  co_await timer.async_wait(asio::use_awaitable);
}

task open_all(lane todo, std::uint64_t own_seed) {
  random own(own_seed);
  const communicator over = todo.over;
  const int rank = over.rank();
  const int size = over.size();
  const auto spawn = [&over](task work) {
    asio::co_spawn(over.get_executor(), std::move(work), cohort::rethrow);
  };
  for (std::size_t i = 0; i < todo.opens.size(); ++i) {
    co_await delay(own);
    switch (todo.opens[i]) {
      case kind::coordinator:
        spawn(use(coordinator(over), size));
        break;
      case kind::dropped_coordinator: {
        const coordinator dropped(over);
        break;
      }
      case kind::rendezvous:
        spawn(use(cohort::rendezvous(over), rank, size));
        break;
      case kind::dup:
        spawn(use(over.dup(cohort::as_future), true));
        break;
      case kind::split:
        spawn(use(over.split(rank % 2, -rank, cohort::as_future), true));
        break;
      case kind::split_node:
        spawn(use(over.split_node(cohort::as_future), true));
        break;
      case kind::grid: {
        const int used = std::max(1, size - 1);
        const auto shape = cohort::mpi::cartesian::of(used);
        spawn(use(over.create(shape, cohort::as_future), rank < used));
        break;
      }
      case kind::shm_backend: {
        opening now;
        auto backend = co_await cohort::shm::make_backend(over);
        now.done();
        spawn(use(coordinator(over, std::move(backend)), size));
        break;
      }
      case kind::process_set:
        spawn(use_set(coordinator(over), rank, size));
        break;
      case kind::persistent_group:
        spawn(use_group(coordinator(over), size));
        break;
      case kind::adopted: {  // what adopt and serve open
        opening now;
        auto making = cohort::cluster::make_communicators(over);
        const auto made = co_await std::move(making);
        now.done();
        spawn(sum_ranks(made.everyone));
        if (made.workers) spawn(sum_ranks(made.workers));
        break;
      }
      case kind::intercommunicator:
        spawn(meet_across((size > 1 ? todo.across : over).dup(cohort::as_future)));
        break;
      case kind::workers:
        if (todo.of_job && todo.of_job.rank() == 0) {
          const bool over_mpi = own() % 2 == 0;
          asio::co_spawn(todo.of_job.get_executor(),
                         use_workers(todo.of_job, over_mpi ? cohort::cluster::transport::mpi
                                                           : cohort::cluster::transport::tcp),
                         cohort::rethrow);
        }
        break;
    }
    if (todo.collective[i]) co_await sum_ranks(over);
  }
}

/// Of MPI_COMM_WORLD, which has two ranks or more; kept until the end.
MPI_Comm even_and_odd_ranks() {
  static MPI_Comm across = MPI_COMM_NULL;
  if (across != MPI_COMM_NULL) return across;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 7, &across);
  MPI_Comm_free(&half);
  return across;
}

/// Three communicators: two of all ranks, and one in the other order. The second is of a context
/// and a thread of its own in every fourth program.
void run_program(std::uint64_t seed, const std::vector<std::vector<kind>>& all, bool threads) {
  random same(seed);  // on all ranks
  asio::io_context io;
  asio::io_context other_io;
  const communicator world(io);
  const bool second_thread = threads && (seed + seed / all.size()) % 4 == 3;
  const communicator other(second_thread ? other_io : io);
  random own(seed * 131 + static_cast<std::uint64_t>(world.rank()) + 1);
  // In steps, so that the first few hundred seeds have something of every kind.
  std::vector<kind> opens = all[seed * 211 % all.size()];
  std::shuffle(opens.begin(), opens.end(), same);
  std::array<lane, 3> lanes;
  if (world.size() > 1 && std::count(opens.begin(), opens.end(), kind::intercommunicator) != 0) {
    lanes[0].across = lanes[2].across = communicator(io, even_and_odd_ranks());
    lanes[1].across = communicator(second_thread ? other_io : io, even_and_odd_ranks());
  }
  communicator of_job;
  if (world.size() > 1 && std::count(opens.begin(), opens.end(), kind::workers) != 0) {
    // A communicator has one invitation at a time.
    const bool invited = std::count(opens.begin(), opens.end(), kind::adopted) != 0;
    of_job = same() % 2 == 0 && !invited ? world : communicator(io);
    for (lane& each : lanes) each.of_job = of_job;
  }
  const auto run = [&] {
    if (of_job && of_job.rank() != 0) {
      cohort::cluster::serve(of_job);
      io.restart();
    }
    io.run();
  };
  const auto begin = [&](communicator reversed) {
    lanes[0].over = world;
    lanes[1].over = other;
    lanes[2].over = std::move(reversed);
    for (const kind one : opens) {
      const std::size_t any = same() % lanes.size();
      lane& where = lanes[one == kind::workers ? 0 : any];  // in the context of its communicator
      where.opens.push_back(one);
      where.collective.push_back(same() % 2 == 0);
    }
    std::array<std::size_t, 3> order{0, 1, 2};
    std::shuffle(order.begin(), order.end(), own);
    for (const std::size_t i : order) {
      asio::co_spawn(lanes[i].over.get_executor(), open_all(lanes[i], own()), cohort::rethrow);
    }
  };
  const auto start = [&]() -> task {
    auto splitting = world.split(0, -world.rank());
    begin(co_await std::move(splitting));
  };
  asio::co_spawn(io, start(), cohort::rethrow);
  if (!second_thread) return run();
  auto keep = asio::make_work_guard(other_io);
  std::thread second([&] { other_io.run(); });
  run();
  keep.reset();
  second.join();
}

// ---- the job ------------------------------------------------------------------------------------

/// Ends the job when a program takes too long.
class watchdog {
 public:
  watchdog() : thread_([this] { watch(); }) {}
  ~watchdog() {
    {
      const std::lock_guard hold(mutex_);
      done_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void begins(std::uint64_t seed) {
    {
      const std::lock_guard hold(mutex_);
      seed_ = seed;
      ++programs_;
    }
    changed_.notify_one();
  }

 private:
  void watch() {
    std::unique_lock hold(mutex_);
    while (!done_) {
      const std::uint64_t seen = programs_;
      const bool moved =
          changed_.wait_for(hold, patience, [&] { return done_ || programs_ != seen; });
      if (moved || seen == 0) continue;
      cohort::process::end_job("openings: the program of seed " + std::to_string(seed_) +
                               " hangs; in flight:\n" + cohort::process::describe_in_flight());
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t seed_ = 0;
  std::uint64_t programs_ = 0;
  bool done_ = false;
  std::thread thread_;
};

std::uint64_t option(int argc, char** argv, std::string_view name, std::uint64_t otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == name) return std::strtoull(argv[i + 1], nullptr, 10);
  }
  return otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const cohort::environment env(argc, argv);
  const std::uint64_t first = option(argc, argv, "--first", 0);
  const std::uint64_t count = option(argc, argv, "--count", 1'000'000'000);
  const std::chrono::seconds limit(option(argc, argv, "--seconds", 1'000'000));
  const bool threads = env.level() >= cohort::mpi::thread_level::serialized;
  const auto all = combinations();
  const auto begin = std::chrono::steady_clock::now();
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  watchdog dog;
  std::uint64_t done = 0;
  std::uint64_t at_once = 0;
  for (int goes_on = 1; done < count; ++done) {
    if (std::chrono::steady_clock::now() - begin > limit) goes_on = 0;
    MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (goes_on == 0) break;
    dog.begins(first + done);
    run_program(first + done, all, threads);
    if (opening::most.exchange(0) > 1) ++at_once;
  }
  if (rank == 0) {
    std::printf(
        "%llu programs, of %zu combinations, from seed %llu on; %llu opened things at once\n",
        static_cast<unsigned long long>(done), all.size(), static_cast<unsigned long long>(first),
        static_cast<unsigned long long>(at_once));
  }
  if (done >= 50 && at_once * 4 < done) {  // else this shows nothing
    std::fprintf(stderr, "rank %d: things were opened at once in %llu of %llu programs only\n",
                 rank, static_cast<unsigned long long>(at_once),
                 static_cast<unsigned long long>(done));
    return 1;
  }
  return done == 0 ? 1 : 0;
}
