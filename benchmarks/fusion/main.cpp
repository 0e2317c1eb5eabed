// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What do many small tensors cost that are submitted at once, by name? Against the best of many
// hand-written policies of packing, and against one raw all_reduce where the backend takes no time.
// Competitors take turns within one process; the order rotates. Ratios are taken turn by turn and
// their medians reported.

#include "competitors.hpp"
#include "support/core_distance.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/barrier.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/context.hpp>

#include <CLI/CLI.hpp>

#include <functional>

namespace {

struct competitor {
  std::string name;
  std::function<asio::awaitable<double>()> run;  ///< nanoseconds
  double target = 0;                             ///< of the ratio to the first competitor
};

asio::awaitable<double> ready(double value) { co_return value; }

std::string text_of(raw_mpi::pack_policy policy) {
  return std::to_string(policy.bytes / 1024) + " KiB" +
         (policy.in_flight == 0 ? ", blocking"
                                : ", " + std::to_string(policy.in_flight) + " in flight");
}

with_cohort::names make_names(std::size_t number) {
  with_cohort::names all;
  for (std::size_t i = 0; i < number; ++i) all.push_back("layer" + std::to_string(i) + "/weights");
  return all;
}

class contest {
 public:
  contest(cohort::communicator world, bench::core_distance& distance)
      : world_(std::move(world)), distance_(distance) {}

  /// Times of each competitor, turn by turn.
  asio::awaitable<std::vector<std::vector<double>>> run(const std::vector<competitor>& competitors,
                                                        int turns) {
    std::vector<std::vector<double>> times(competitors.size());
    far_.clear();
    for (int turn = -2; turn < turns; ++turn) {  // two to warm up
      co_await cohort::barrier(world_);
      const double round_trip = distance_.round_trip();
      if (turn >= 0) far_.push_back(round_trip > 200);
      for (std::size_t i = 0; i < competitors.size(); ++i) {
        const std::size_t who = (i + far_.size()) % competitors.size();
        // Awaited, for the other rank may still wait for a message of the coordinator; where the
        // backend takes no time, nothing else makes the ranks meet.
        co_await cohort::barrier(world_);
        MPI_Barrier(world_.native());
        const double time = co_await competitors[who].run();
        if (turn >= 0) times[who].push_back(time);
      }
    }
    co_return times;
  }

  /// A row for each but the first, whose times are the base of the ratios.
  void report(const std::string& title, const std::vector<competitor>& competitors,
              const std::vector<std::vector<double>>& times, double unit, const char* unit_name) {
    if (world_.rank() != 0) return;
    std::printf("%s: %s, median %.3f %s; %zu turns, %zu with far cores\n", title.c_str(),
                competitors[0].name.c_str(), bench::median(times[0]) / unit, unit_name, far_.size(),
                bench::only(times[0], far_, true).size());
    for (std::size_t who = 1; who < competitors.size(); ++who) {
      const auto ratio = bench::ratios(times[who], times[0]);
      bench::print_row("  " + competitors[who].name, bench::median(ratio), "x",
                       competitors[who].target);
      std::printf("      %.3f %s, half of the ratios %.2f to %.2f\n",
                  bench::median(times[who]) / unit, unit_name, bench::percentile(ratio, 0.25),
                  bench::percentile(ratio, 0.75));
    }
    std::printf("\n");
  }

 private:
  cohort::communicator world_;
  bench::core_distance& distance_;
  std::vector<bool> far_;
};

/// 1 000 tensors of 4 KiB.
asio::awaitable<void> fuse(cohort::communicator world, bench::core_distance& distance, int turns) {
  constexpr std::size_t number = 1000;
  tensor_set tensors(number, std::vector<float>(1024));
  const auto names = make_names(number);
  cohort::coordinator coord(world);
  co_await coord.barrier();
  const MPI_Comm comm = world.native();
  contest race(world, distance);

  const auto check = [&](const std::string& who) {
    for (auto& each : tensors) {
      for (float& value : each) {
        if (value != static_cast<float>(world.size())) throw std::runtime_error(who + ": wrong");
        value = 1;
      }
    }
  };
  const auto fill = [&](float value) {
    for (auto& each : tensors) std::fill(each.begin(), each.end(), value);
  };

  std::vector<competitor> policies;
  fill(1);
  for (const std::size_t kib : {64, 128, 256, 512, 1024, 2048, 4096}) {
    for (const std::size_t in_flight : {0, 1, 2, 4}) {
      const raw_mpi::pack_policy policy{kib * 1024, in_flight};
      raw_mpi::packed(comm, tensors, policy);
      check(text_of(policy));
      policies.push_back({text_of(policy),
                          [=, &tensors] { return ready(raw_mpi::packed(comm, tensors, policy)); }});
    }
  }
  co_await with_cohort::callbacks(coord, tensors, names);
  check("callbacks");
  co_await with_cohort::futures(coord, tensors, names);
  check("futures");
  fill(0);  // sums stay what they are

  // The best is what rank 0 finds.
  const auto tried = co_await race.run(policies, std::max(turns / 4, 10));
  std::vector<std::size_t> order(policies.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return bench::median(tried[a]) < bench::median(tried[b]);
  });
  MPI_Bcast(order.data(), static_cast<int>(order.size() * sizeof(order[0])), MPI_BYTE, 0, comm);
  if (world.rank() == 0) {
    std::printf("packs by hand, from the best to the worst, us for the set:");
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::printf("%s%s: %.0f", i % 4 == 0 ? "\n  " : "; ", policies[order[i]].name.c_str(),
                  bench::median(tried[order[i]]) / 1000);
    }
    std::printf("\n\n");
  }

  std::vector<competitor> final;
  final.push_back({"best packs by hand (" + policies[order[0]].name + ")", policies[order[0]].run});
  final.push_back(
      {"named, callbacks", [&] { return with_cohort::callbacks(coord, tensors, names); }, 0.85});
  final.push_back(
      {"named, futures", [&] { return with_cohort::futures(coord, tensors, names); }, 0.85});
  final.push_back(
      {"1 000 MPI_Iallreduce, MPI_Waitall", [&] { return ready(raw_mpi::singly(comm, tensors)); }});
  final.push_back(
      {"1 000 MPI_Allreduce", [&] { return ready(raw_mpi::blocking_singly(comm, tensors)); }});
  final.push_back(
      {"only the copies", [&] { return ready(raw_mpi::copied(tensors, std::size_t{1} << 20)); }});
  const auto times = co_await race.run(final, turns);
  race.report("1 000 tensors of 4 KiB", final, times, 1000, "us");

  const auto before = coord.stats();
  co_await with_cohort::callbacks(coord, tensors, names);
  const auto after = coord.stats();
  if (world.rank() == 0) {
    std::printf(
        "in one set, rank 0: %llu packs of %llu tensors, %llu control messages of %llu B\n\n",
        static_cast<unsigned long long>(after.packs - before.packs),
        static_cast<unsigned long long>(after.packed - before.packed),
        static_cast<unsigned long long>(after.messages_sent - before.messages_sent),
        static_cast<unsigned long long>(after.bytes_sent - before.bytes_sent));
  }
  co_await coord.shutdown();
}

/// What the coordinator itself costs, for each tensor, over a backend that does nothing.
asio::awaitable<void> name(cohort::communicator world, bench::core_distance& distance, int turns,
                           std::size_t number, std::size_t bytes, double by_callback,
                           double by_future) {
  tensor_set tensors(number, std::vector<float>(bytes / sizeof(float)));
  const auto names = make_names(number);
  const cohort::coordinator coord(world, with_cohort::instant_backend(world.get_executor()));
  co_await coord.barrier();
  contest race(world, distance);

  const auto each = [number](asio::awaitable<double> all) -> asio::awaitable<double> {
    co_return co_await std::move(all) / static_cast<double>(number);
  };
  const MPI_Comm comm = world.native();
  std::vector<competitor> all;
  all.push_back({"MPI_Iallreduce + MPI_Wait of 8 B",
                 [=] { return ready(raw_mpi::small_all_reduce(comm, 1000)); }});
  all.push_back({"each tensor, callbacks, names prebuilt",
                 [&] { return each(with_cohort::callbacks(coord, tensors, names)); }, by_callback});
  all.push_back({"each tensor, futures",
                 [&] { return each(with_cohort::futures(coord, tensors, names)); }, by_future});
  all.push_back({"the copies by hand, each tensor",
                 [&] { return each(ready(raw_mpi::copied(tensors, std::size_t{1} << 20))); }});
  const auto times = co_await race.run(all, turns);
  race.report("nothing but names, " + std::to_string(number) + " x " + std::to_string(bytes) + " B",
              all, times, 1, "ns");
  co_await coord.shutdown();
}

/// 16 MiB of float as they are, and in 16 bits on the wire.
asio::awaitable<void> compress(cohort::communicator world, bench::core_distance& distance,
                               int turns) {
  std::vector<float> tensor(std::size_t{4} << 20, 1.0F);
  cohort::coordinator coord(world);
  co_await coord.barrier();
  contest race(world, distance);
  const auto in = [&](const char* name, cohort::compression how) {
    return competitor{name,
                      [&, name, how] { return with_cohort::average(coord, tensor, name, how); }};
  };
  const std::vector<competitor> all{in("float", cohort::compression::none),
                                    in("compressed to bf16", cohort::compression::bf16),
                                    in("compressed to f16", cohort::compression::f16)};
  const auto times = co_await race.run(all, turns);
  for (const float each : tensor) {
    if (each != 1) throw std::runtime_error("compression: wrong");
  }
  const bool by_mpi = coord.stats().by_backend.operations == 0;
  race.report(std::string("16 MiB, ") + (by_mpi ? "MPI" : "shared memory"), all, times, 1e6, "ms");
  co_await coord.shutdown();
}

asio::awaitable<void> measure(cohort::communicator world, bench::core_distance& distance, int turns,
                              std::string only) {
  if (only.empty() || only == "compression") co_await compress(world, distance, turns);
  if (only == "compression") co_return;
  if (only != "names") co_await fuse(world, distance, turns);
  if (only == "packs") co_return;
  co_await name(world, distance, turns, 1000, 8, 0.2, 0.35);
  co_await name(world, distance, turns, 4000, 2048, 0.75, 1.1);
}

}  // namespace

int main(int argc, char** argv) {
  int turns = 100;
  std::string only;
  CLI::App app(
      "What many named tensors cost; start it with mpirun -np 2, or more. Within a node they "
      "go through shared memory, with COHORT_BACKEND=mpi through MPI");
  app.add_option("--turns", turns, "turns of each competitor");
  app.add_option("--only", only, "one of packs, names, compression")
      ->check(CLI::IsMember({"packs", "names", "compression"}));
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  asio::io_context io;
  cohort::communicator world(io);
  if (world.rank() == 0) bench::print_machine(world.size());
  bench::core_distance distance(cohort::mpi::comm_ref(world.native()));
  asio::co_spawn(io, measure(world, distance, turns, only), cohort::rethrow);
  io.run();
}
