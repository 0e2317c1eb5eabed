// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Data-parallel training of a small network on handwritten digits, with everything on devices, one
// for each rank. Gradients are averaged while the back-propagation goes on; the host waits for data
// once in an epoch. Any number of ranks computes what one core of the host does, up to rounding.

#include <CLI/CLI.hpp>
#include <cohort/cohort.hpp>
#include <cohort/gpu.hpp>
#include "gpu_train_kernels.hpp"
#include "support/device_copies.hpp"
#include "support/progress_bar.hpp"
#include "support/train_on_host.hpp"

namespace device = cohort::device;
using support::digits, support::part;
constexpr float rate = 0.025F;
constexpr double tolerance = 1e-3;  // of the loss, relative to that on the host

/// Has room for a batch; its outputs become the error there.
struct layer {
  std::string name;
  kernels::shape by;
  device::vector<float> weights, gradient, in, out;
  layer(const support::dense_layer& like, std::size_t rows, const device::stream& on)
      : name("layer " + std::to_string(like.ins)),
        by{rows, like.ins, like.outs},
        weights(support::to_device(like.weights, on)),
        gradient(like.weights.size(), on),
        in(rows * like.ins, on),
        out(rows * like.outs, on) {}
};

struct trainer {
  cohort::coordinator coord;
  device::stream on;
  cohort::call_options queued;  // the host does not wait for data
  std::vector<layer> net;
  device::vector<float> pixels, seen;  // seen: loss and hits of the training, then of the test
  device::vector<int> labels;

  trainer(const cohort::communicator& world, const digits& data,
          const std::vector<support::dense_layer>& first)
      : coord(world, cohort::nccl::backend()), seen(4, on) {
    queued.on = on;
    queued.ends = cohort::until::enqueued;
    std::vector<float> in;
    std::vector<int> right;
    for (const auto* digits : {&data.training, &data.held_out}) {
      for (const support::digit& one : *digits) {
        for (std::size_t p = 0; p < 64; ++p) in.push_back(float(one[p]) / 8 - 1);
        right.push_back(one.back());
      }
    }
    pixels = support::to_device(in, on);
    labels = support::to_device(right, on);
    for (const auto& like : first) net.emplace_back(like, right.size(), on);
  }

  /// Queues a look at some digits: the error, and what the judge says.
  void look(std::size_t begin, std::size_t rows, float* tally) {
    const float* below = pixels.data() + 64 * begin;
    for (layer& l : net) {
      l.by.rows = rows;
      kernels::activate(on.get(), rows * l.by.ins, below, l.in.data());
      kernels::multiply(on.get(), l.by, l.in.data(), l.weights.data(), l.out.data());
      below = l.out.data();
    }
    kernels::judge(on.get(), rows, net.back().out.data(), labels.data() + begin, tally);
  }

  /// Queues the way back, and the averages beside it. Ends when the stream is to wait for those.
  asio::awaitable<void> learn() {
    std::vector<cohort::future<void>> averages;
    for (auto l = net.rbegin(); l != net.rend(); ++l) {
      kernels::gradient(on.get(), l->by, l->in.data(), l->out.data(), l->gradient.data());
      averages.push_back(
          coord.all_reduce(l->name, l->gradient, cohort::op::average, queued, cohort::as_future));
      if (std::next(l) == net.rend()) break;
      kernels::propagate(on.get(), l->by, l->in.data(), l->weights.data(), l->out.data(),
                         std::next(l)->out.data());
    }
    co_await cohort::when_all(std::move(averages));
    const float of_the_average = rate * float(coord.size());  // as if gradients were summed
    for (layer& l : net)
      kernels::descend(on.get(), l.weights.size(), l.weights.data(), l.gradient.data(),
                       of_the_average);
  }

  /// One epoch, and a test. Returns what was seen on all ranks.
  asio::awaitable<std::vector<float>> epoch(const digits& data, std::size_t steps) {
    const std::size_t ranks = std::size_t(coord.size()), rank = std::size_t(coord.rank());
    device::check(cudaMemsetAsync(seen.data(), 0, seen.bytes(), on.get()), "cudaMemsetAsync",
                  on.device());
    for (std::size_t step = 0; step < steps; ++step) {
      const auto mine = part(data.training, step * ranks + rank, steps * ranks);
      look(std::size_t(mine.data() - data.training.data()), mine.size(), seen.data());
      co_await learn();
    }
    const auto mine = part(data.held_out, rank, ranks);
    look(data.training.size() + std::size_t(mine.data() - data.held_out.data()), mine.size(),
         seen.data() + 2);
    co_await coord.all_reduce("seen", seen, cohort::op::sum, queued);
    co_return co_await support::to_host(seen, on);
  }
};

asio::awaitable<int> run(cohort::communicator world, std::string file, std::size_t epochs) {
  digits data;
  std::string trouble = "another rank could not read its data";
  bool fine = data.read(file, world.size(), trouble);
  co_await all_reduce(world, fine, cohort::op::logical_and);
  if (!fine) std::fprintf(stderr, "rank %d: %s\n", world.rank(), trouble.c_str());
  if (!fine) co_return EXIT_FAILURE;

  const std::vector<support::dense_layer> first{{64, 48, 1}, {48, 32, 2}, {32, 10, 3}};
  const std::size_t steps = data.training.size() / 32 + 1;
  fine = device::count() > 0;
  co_await all_reduce(world, fine, cohort::op::logical_and);
  if (!fine) throw cohort::error(cohort::errc::no_device, "a rank has none");
  trainer mine(world, data, first);
  device::check(cudaSetDevice(mine.on.device()), "cudaSetDevice", mine.on.device());  // for kernels
  support::progress_bar bar{epochs, world.rank() == 0};
  std::vector<float> seen;
  for (std::size_t epoch = 1; epoch <= epochs; ++epoch) {
    seen = co_await mine.epoch(data, steps);
    bar.advance();
    bar.line("epoch %2zu  loss %.4f  test %.2f %%", epoch,
             double(seen[0]) / double(data.training.size()),
             double(100 * seen[3]) / double(data.held_out.size()));
  }
  std::uint64_t sum = 0;
  for (const layer& l : mine.net)
    sum = support::checksum(co_await support::to_host(l.weights, mine.on), sum);
  std::array<std::uint64_t, 2> least{sum, ~sum};
  co_await all_reduce(world, least, cohort::op::min);
  fine = least[0] == sum && least[1] == ~sum;
  co_await all_reduce(world, fine, cohort::op::logical_and);
  if (world.rank() != 0) co_return fine ? EXIT_SUCCESS : EXIT_FAILURE;

  const auto host = support::train_on_host(first, data, epochs, steps, rate);
  const double loss = double(seen[0]) / double(data.training.size());
  const double difference = std::abs(loss - host.loss) / host.loss;
  std::printf("weights identical on all %d ranks: %s\n", world.size(), fine ? "yes" : "NO");
  std::printf("loss %.6f, on the host %.6f: differs by %.1e, tolerance %.0e\n", loss, host.loss,
              difference, tolerance);
  std::printf("accuracy %.2f %%\n", double(100 * seen[3]) / double(data.held_out.size()));
  fine = fine && difference <= tolerance;
  co_return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}

// Not by cohort::run: something outlives the context, and a status of its own says that no device
// is there.
int main(int argc, char** argv) {
  cohort::environment env{argc, argv};
  std::string file = "examples/data/digits.csv";
  std::size_t epochs = 10;
  CLI::App app{"Trains a small network on handwritten digits, data-parallel over devices."};
  app.add_option("file", file, "rows of 64 pixels and a label")->capture_default_str();
  app.add_option("--epochs", epochs)->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const kernels::machine machine(rank);  // outlives all that is on devices
  if (rank == 0) std::puts(machine.note.c_str());
  asio::io_context io;
  auto status = co_spawn(io, run(cohort::communicator(io), file, epochs), cohort::as_future);
  io.run();
  try {
    return status.get();
  } catch (const std::system_error& failed) {
    if (failed.code() != cohort::errc::no_device) throw;
    if (rank == 0) std::fprintf(stderr, "%s\n", failed.what());  // on all ranks
    return 77;                                                   // as programs do that are skipped
  }
}
