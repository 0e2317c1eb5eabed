// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What does the library cost on a device? How fast tensors are packed; how much longer an awaited
// call of NCCL takes than the same call in a bare loop; what MPI pays for a device that is waited
// for; and what waiting costs the processor. On the test double it only shows that it runs.

#include "competitors.hpp"
#include "support/report.hpp"
#include "support/resnet50.hpp"
#include "support/statistics.hpp"

#include <cohort/collectives/barrier.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/future.hpp>

#include <CLI/CLI.hpp>

#include <optional>

namespace {

struct scale {
  int chunks = 200;
  int operations = 50;  ///< of a chunk
  double seconds = 10;
  std::size_t tensors = 1000;  ///< of a list at most
};

class report {
 public:
  report(const bench::machine& on, bool shown) : prefix_(on.prefix), shown_(shown) {}
  void title(const std::string& text) const {
    if (shown_) std::printf("\n%s%s\n", prefix_.c_str(), text.c_str());
  }
  void row(const std::string& what, double value, const char* unit, double target = 0) const {
    if (shown_) bench::print_row(prefix_ + what, value, unit, prefix_.empty() ? target : 0);
  }

 private:
  std::string prefix_;
  bool shown_;
};

void pack_tensors(const report& out, const char* name, const std::vector<std::size_t>& sizes,
                  int chunks) {
  const cohort::device::stream on;
  pack all(sizes, on);
  struct way {
    const char* name;
    copy_times (pack::*run)();
    std::vector<double> device, host;
  };
  std::vector<way> ways = {{"one copy of as many bytes", &pack::at_once, {}, {}},
                           {"a cudaMemcpyAsync for each tensor", &pack::one_by_one, {}, {}},
                           {"device::copy_batch", &pack::in_one_call, {}, {}}};
  if (all.has_kernels()) {
    ways.push_back({"a kernel compiled at run time", &pack::by_kernel, {}, {}});
    ways.push_back({"the same, float to bf16", &pack::to_half, {}, {}});
  }
  for (std::size_t i = 1; i < std::size(ways); ++i) {
    if (ways[i].run == &pack::to_half) continue;
    if (!all.is_packed_by(ways[i].run)) throw std::runtime_error("the tensors are not packed");
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (std::size_t i = 0; i < std::size(ways); ++i) {
      way& one = ways[(i + static_cast<std::size_t>(chunk)) % std::size(ways)];
      const copy_times took = (all.*one.run)();
      one.device.push_back(took.device);
      one.host.push_back(took.host);
    }
  }
  out.title("pack " + std::string(name) + ": " + std::to_string(all.tensors()) + " tensors, " +
            std::to_string(all.bytes()) + " bytes");
  for (const way& one : ways) {
    const double time = bench::median(one.device);
    out.row(one.name, time / 1e3, "us on the device, p50");
    out.row("  calls of the host", bench::median(one.host) / 1e3, "us, p50");
    out.row("  bytes read", static_cast<double>(all.bytes()) / time, "GB/s");
    if (&one == ways.data()) continue;
    out.row("  share of the one copy's bandwidth",
            100 * bench::median(bench::ratios(ways[0].device, one.device)), "%");
  }
  out.row("copy_batch over a copy for each, time",
          bench::median(bench::ratios(ways[2].device, ways[1].device)), "");
  if (!all.has_kernels()) return;
  out.row("a kernel over copy_batch, time",
          bench::median(bench::ratios(ways[3].device, ways[2].device)), "");
}

asio::awaitable<void> fuse_tensors(cohort::communicator world, const report& out, const char* name,
                                   std::vector<std::size_t> sizes, int chunks) {
  const std::size_t tensors = sizes.size();
  auto running = with_cohort::fused(world, std::move(sizes), chunks);
  const with_cohort::fused_times took = co_await std::move(running);
  if (took.reduce.empty()) throw std::runtime_error("the device has told no times");
  out.title("a coordinator's all_reduce " + std::string(name) + ": " + std::to_string(tensors) +
            " tensors, " + std::to_string(took.packed) + " bytes packed, " +
            std::to_string(world.size()) + " rank(s)" +
            (world.size() == 1 ? ", no NCCL collective kernel" : ""));
  const double packing = bench::median(took.pack);
  out.row("packing", packing / 1e3, "us on the device, p50");
  if (packing > 0) out.row("  bytes copied", static_cast<double>(took.packed) / packing, "GB/s");
  out.row("NCCL's calls", bench::median(took.reduce) / 1e3, "us on the device, p50");
  out.row("unpacking", bench::median(took.unpack) / 1e3, "us on the device, p50");
}

asio::awaitable<void> awaited(cohort::communicator world, cohort::nccl::communicator gpus,
                              const report& out, scale by) {
  const cohort::device::stream on;
  raw_nccl::communicator raw(world.native(), gpus.device());
  out.title("an awaited all_reduce over a bare loop, " + std::to_string(gpus.size()) + " rank(s)" +
            (gpus.size() == 1 ? ", no NCCL collective kernel" : ""));
  for (const std::size_t count : {std::size_t{1}, std::size_t{1} << 14U, std::size_t{1} << 20U}) {
    cohort::device::vector<float> from(count, on);
    cohort::device::vector<float> to(count, on);
    cohort::device::pinned_vector<float> host(count, on);
    std::fill(host.begin(), host.end(), 1.0F);
    cohort::device::copy(on, host, from);
    std::vector<double> bare, with, more;
    for (int chunk = -1; chunk < by.chunks; ++chunk) {  // the first one warms up
      std::vector<double> times[2];
      for (int half = 0; half < 2; ++half) {
        const int who = (half + chunk + 2) % 2;
        co_await cohort::barrier(world);
        for (int i = 0; i < by.operations; ++i) {
          double took = 0;
          if (who == 0) took = raw.all_reduce(from.data(), to.data(), count, on.get());
          if (who == 1) took = co_await with_cohort::all_reduce(gpus, on, from, to);
          times[who].push_back(took);
        }
        cohort::device::copy(on, to, host);
        co_await cohort::device::done(on);
        if (host[count - 1] != static_cast<float>(gpus.size()))
          throw std::runtime_error("a sum is wrong");
        std::fill(host.begin(), host.end(), 0.0F);
        cohort::device::copy(on, host, to);
      }
      if (chunk < 0) continue;
      more.push_back(bench::median(times[1]) - bench::median(times[0]));
      bare.insert(bare.end(), times[0].begin(), times[0].end());
      with.insert(with.end(), times[1].begin(), times[1].end());
    }
    out.row(std::to_string(4 * count) + " bytes, bare loop p50", bench::median(bare) / 1e3, "us");
    out.row("  awaited p50", bench::median(with) / 1e3, "us");
    out.row("  awaited more, median of the chunks' p50", bench::median(more) / 1e3, "us", 5);
    out.row("  bare loop p99", bench::percentile(bare, 0.99) / 1e3, "us");
    out.row("  awaited p99", bench::percentile(with, 0.99) / 1e3, "us");
  }
}

asio::awaitable<void> mpi_beside(cohort::communicator world, const report& out, scale by) {
  out.title("an awaited MPI all_reduce of 8 bytes, " + std::to_string(world.size()) + " rank(s)");
  const cohort::device::stream on;
  auto& loop = static_cast<asio::io_context&>(world.get_executor().context());
  std::vector<double> alone, beside, more;
  for (int chunk = -1; chunk < by.chunks; ++chunk) {
    std::vector<double> times[2];
    for (int half = 0; half < 2; ++half) {
      const int who = (half + chunk + 2) % 2;
      std::optional<bench::held_stream> held;
      std::optional<cohort::future<void>> waits;
      if (who == 1) {
        held.emplace(on);
        waits = cohort::device::done(loop, on, cohort::as_future);
      }
      co_await cohort::barrier(world);
      for (int i = 0; i < by.operations; ++i) {
        const double took = co_await with_cohort::over_mpi(world);
        times[who].push_back(took);
      }
      if (held) held->let_go();
      if (waits) co_await std::move(*waits);
    }
    if (chunk < 0) continue;
    more.push_back(bench::median(times[1]) - bench::median(times[0]));
    alone.insert(alone.end(), times[0].begin(), times[0].end());
    beside.insert(beside.end(), times[1].begin(), times[1].end());
  }
  out.row("nothing pending on the device, p50", bench::median(alone) / 1e3, "us");
  out.row("an event pending, p50", bench::median(beside) / 1e3, "us");
  out.row("more, median of the chunks' p50", bench::median(more) / 1e3, "us");
  out.row("nothing pending, p99", bench::percentile(alone, 0.99) / 1e3, "us");
  out.row("an event pending, p99", bench::percentile(beside, 0.99) / 1e3, "us");
}

asio::awaitable<void> idle(cohort::nccl::communicator gpus, const report& out, double seconds) {
  out.title("share of a core while the loop waits for a timer");
  using with_cohort::pending;
  constexpr std::pair<const char*, pending> cases[] = {
      {"nothing pending", pending::nothing},
      {"an event pending", pending::event},
      {"a collective pending behind the user's stream", pending::collective}};
  for (const auto& [name, what] : cases) {
    const with_cohort::load found = co_await with_cohort::idle(gpus, what, seconds);
    out.row(name, found.loop, "% of a core, the loop's thread");
    out.row("  with CUDA's and NCCL's threads", found.process, "%");
  }
}

asio::awaitable<void> measure(cohort::communicator world, const bench::machine& machine, scale by,
                              std::string only) {
  const report out(machine, world.rank() == 0);
  const auto wanted = [&](const char* row) { return only.empty() || only == row; };
  std::vector<std::size_t> model;
  for (const bench::tensor_shape& one : bench::resnet50()) model.push_back(4 * one.count);
  // The small ones last, as they are in the model's own order.
  if (model.size() > by.tensors)
    model.erase(model.begin(), model.end() - std::ptrdiff_t(by.tensors));
  const std::vector<std::size_t> small(std::min<std::size_t>(by.tensors, 1000), 4096);
  if (wanted("fused")) {  // before there is a communicator: a coordinator has its device alone
    co_await fuse_tensors(world, out, "of 4 KiB each", small, by.chunks);
    co_await fuse_tensors(world, out, "of the gradients of ResNet-50", model, by.chunks);
  }
  const auto gpus = co_await cohort::nccl::make_communicator(world);
  cohort::device::check(cudaSetDevice(gpus.device()), "cudaSetDevice", gpus.device());
  if (wanted("pack") && world.rank() == 0) {
    pack_tensors(out, "of 4 KiB each", small, by.chunks);
    pack_tensors(out, "of the gradients of ResNet-50", model, by.chunks);
  }
  if (wanted("awaited")) {
    if (world.size() > 1) {  // each rank with itself, so that one start measures both
      const cohort::communicator alone = co_await world.split(world.rank());
      const auto mine = co_await cohort::nccl::make_communicator(alone);
      co_await awaited(alone, mine, out, by);
      co_await mine.finalize();
      co_await cohort::barrier(world);
    }
    co_await awaited(world, gpus, out, by);
  }
  if (wanted("mpi")) co_await mpi_beside(world, out, by);
  if (wanted("idle")) co_await idle(gpus, out, by.seconds);
}

}  // namespace

int main(int argc, char** argv) {
  scale by;
  std::string only;
  CLI::App app("What the library costs on a GPU; start it with mpirun, one rank for each device");
  app.add_option("--chunks", by.chunks, "turns of each competitor")->check(CLI::PositiveNumber);
  app.add_option("--operations", by.operations, "in a turn")->check(CLI::PositiveNumber);
  app.add_option("--seconds", by.seconds, "length of the idle waits");
  app.add_option("--tensors", by.tensors, "at most, of a list")->check(CLI::PositiveNumber);
  app.add_option("--only", only, "one of fused, pack, awaited, mpi, idle");
  CLI11_PARSE(app, argc, argv);

  cohort::environment env(argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const bench::machine machine(rank);
  asio::io_context io;
  const cohort::communicator world(io);
  if (rank == 0) {
    bench::print_machine(world.size());
    std::printf("%sdevice   %s\n", machine.prefix, machine.name.c_str());
  }
  auto done = co_spawn(io, measure(world, machine, by, only), cohort::as_future);
  io.run();
  try {
    done.get();
  } catch (const std::system_error& failed) {
    if (failed.code() != cohort::errc::no_device) throw;
    if (rank == 0) std::printf("skipped: %s\n", failed.what());  // all ranks have this error
    return 77;
  }
}
