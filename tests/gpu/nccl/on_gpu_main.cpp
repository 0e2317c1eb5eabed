// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The main of the tests of the layer nccl, and of the coordinator on devices, with the real
// libraries. They run with a device for each rank. Elsewhere ctest is told to count them as skipped
// (77), with the reason.
#define CATCH_CONFIG_EXTERNAL_INTERFACES  // as mpi_main.cpp, which is not the first here
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/core/log.hpp>
#include <cohort/nccl/backend.hpp>

#include <cstdio>

#define COHORT_TEST_ON_GPU 1
#include "gpu/coordinator/support.hpp"

namespace cohort_test {

/// 0 if the tests can run, or the status with which the program is to end. Collective.
int look_for_devices();

}  // namespace cohort_test

#include "support/mpi_main.cpp"

namespace {

using namespace cohort_test;

/// What the library promises where CUDA and NCCL are installed and a device is not: one error that
/// names all ranks, of whatever needs devices. Returns the status for ctest.
int without_device() {
  using cohort::errc;
  const cohort::log::capture log;
  bool right = true;
  const auto expect = [&](bool so, const std::string& text) {
    if (!so) std::fprintf(stderr, "[rank %d] %s\n", rank, text.c_str());
    right = right && so;
  };
  on_world([&](cohort::communicator world) -> asio::awaitable<void> {
    try {
      auto making = nccl::make_communicator(world);
      co_await std::move(making);
      expect(false, "a communicator was made");
    } catch (const cohort::rank_error& failed) {
      expect(failed.code() == errc::no_device, failed.what());
      expect(failed.ranks().size() == static_cast<std::size_t>(world.size()), failed.what());
    }
    auto again = co_await world.dup();
    cohort::coordinator coord(again, nccl::backend());
    // It cannot be elected, so what ends it is the opening. One rank elects it alone.
    std::vector<int> host(1);
    const std::string why = "no NCCL communicator can be made";
    const bool told = co_await soon([&] { return world.size() > 1 || log.contains(why); });
    expect(told, "a coordinator does not say why it has no device");
    auto named = coord.all_reduce("of rank " + std::to_string(world.rank()), host, op::sum);
    const auto code = co_await code_of(std::move(named));
    expect(code == errc::no_device, "a coordinator without a device: " + code.message());
    co_await coord.shutdown();
  });
  return right ? 77 : 1;
}

}  // namespace

int cohort_test::look_for_devices() {
  int ranks = 0;
  int here = 0;
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &here);
  MPI_Comm_free(&node);
  const int devices = device::count();
  int lacking = devices < here ? 1 : 0;
  int most = devices;
  MPI_Allreduce(MPI_IN_PLACE, &lacking, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (lacking == 0) {
    cudaDeviceProp properties{};
    const int mine = device::default_device();
    if (cudaGetDeviceProperties(&properties, mine) == cudaSuccess) {
      std::printf("rank %d has device %d of %d: %s\n", rank, mine, devices, properties.name);
    }
    return 0;
  }
  if (rank == 0) {
    std::printf("skipped: %d rank(s) need as many devices on each node, there are %d\n", ranks,
                devices);
    std::fflush(stdout);
  }
  int status = most == 0 ? without_device() : 77;
  MPI_Allreduce(MPI_IN_PLACE, &status, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return status;
}
