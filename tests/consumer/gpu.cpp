// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A user's program on devices: it sums the ranks there and fails if the sum is wrong. Where a rank
// has no device, every rank prints the error that names all such ranks, and fails if it does not.
#include <cohort/gpu.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/progress/context.hpp>

#include <cstddef>
#include <cstdio>

static_assert(COHORT_HAS_CUDA == 1 && COHORT_HAS_NCCL == 1);

namespace {

asio::awaitable<void> sum_ranks(cohort::communicator world, float& sum) {
  auto gpus = co_await cohort::nccl::make_communicator(world);
  const cohort::device::stream s;
  cohort::device::vector<float> values(10, s);
  cohort::device::pinned_vector<float> host(10, s);
  for (float& one : host) one = static_cast<float>(world.rank());
  cohort::device::copy(s, host, values);
  co_await cohort::nccl::all_reduce(gpus, s, values, cohort::op::sum);
  cohort::device::copy(s, values, host);
  co_await cohort::device::done(s);
  sum = host[9];
}

asio::awaitable<void> run(cohort::communicator world, bool& right) {
  const auto ranks = static_cast<std::size_t>(world.size());
  try {
    float sum = -1;
    co_await sum_ranks(world, sum);
    std::printf("rank %d: the sum on devices is %.0f\n", world.rank(), static_cast<double>(sum));
    right = sum == static_cast<float>(ranks * (ranks - 1) / 2);
  } catch (const cohort::rank_error& failed) {
    std::printf("rank %d: %s\n", world.rank(), failed.what());
    right = failed.code() == cohort::errc::no_device && cohort::device::count() == 0 &&
            failed.ranks().size() == ranks;
  }
}

}  // namespace

int main(int argc, char** argv) {
  cohort::environment env{argc, argv};
  asio::io_context io;
  cohort::communicator world{io};
  bool right = false;
  asio::co_spawn(io, run(world, right), cohort::rethrow);
  io.run();
  return right ? 0 : 1;
}
