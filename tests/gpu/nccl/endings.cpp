// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// A program whose host finalizes MPI while NCCL communicators, memory and streams live, with an
// operation in flight. Not a Catch2 program: MPI ends once.

#include <cohort/core/log.hpp>
#include <cohort/gpu.hpp>
#include <cohort/mpi/environment.hpp>

#include "support/fake_gpu/control.hpp"
#include "support/fake_gpu/nccl_control.hpp"
#include "support/patience.hpp"
#include "support/run.hpp"

#include <chrono>
#include <cstdio>
#include <optional>

namespace {

namespace device = cohort::device;
namespace nccl = cohort::nccl;

bool holds(bool what, const char* text) {
  if (!what) std::fprintf(stderr, "not so: %s\n", text);
  return what;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  fake_gpu::restart(1);
  fake_gpu::set_bus_id(0, 100 + rank);
  bool good = true;
  {
    asio::io_context io;
    const cohort::environment adopted;
    const cohort::communicator world{io};
    std::optional<nccl::communicator> gpus;
    const device::stream s;
    device::vector<int> v(10, s);
    device::vector<int> w(10, s);
    const auto make = [&]() -> asio::awaitable<void> {
      nccl::communicator_options patient;
      patient.answer_bound =
          cohort_test::patient(std::chrono::seconds(20));  // nothing is heard while MPI ends
      gpus.emplace(co_await nccl::make_communicator(world, patient));
      co_await nccl::broadcast(*gpus, s, v, 0);
    };
    cohort_test::run(io, make());
    bool ended = false;
    nccl::all_reduce(*gpus, s, v, w, cohort::op::sum, [&](std::error_code) { ended = true; });
    const auto over = std::chrono::steady_clock::now();
    MPI_Finalize();
    good &= holds(
        std::chrono::steady_clock::now() - over < cohort_test::patient(std::chrono::seconds(10)),
        "nobody waits for answers");
    good &= holds(fake_nccl::live_communicators() == 0, "NCCL's communicator ends before MPI");
    good &= holds(gpus->stands() == nccl::phase::gone, "it was not leaked");
    std::error_code late;
    nccl::barrier(*gpus, s, [&](std::error_code why) { late = why; });
    io.restart();
    io.run();
    good &= holds(ended, "the operation has ended");
    good &= holds(static_cast<bool>(late), "later operations fail");
    const auto waits = [&]() -> asio::awaitable<void> { co_await device::done(s); };
    io.restart();
    cohort_test::run(io, waits());  // streams need no MPI
  }
  good &= holds(fake_nccl::faults().empty(), "no call that NCCL forbids");
  fake_gpu::restart(0);
  if (!good) return 1;
  std::puts("NCCL has ended before MPI");
  return 0;
}
