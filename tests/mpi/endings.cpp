// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The ways a program can end, one per argument. Not a Catch2 program: most of them end the job.

#include <cohort/core/process.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/mpi/error.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

namespace {

namespace mpi = cohort::mpi;

/// An engine that cannot finish what it has in flight.
class stuck_engine final : public cohort::process::hooks {
 public:
  void describe(std::string& text) override { text += "recv #3 from rank 1, age 2 s\n"; }
  bool drain(std::chrono::nanoseconds) override { return false; }
};
stuck_engine stuck;

/// The host owns MPI: the environment adopts it, and what the library holds goes with it.
int host_finalizes(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    const cohort::environment adopted;
    if (adopted.owns_mpi()) return 1;
    static const mpi::comm outlives_mpi = mpi::comm::from(MPI_COMM_WORLD);
    static_cast<void>(mpi::datatype_of<std::array<int, 3>>());
  }
  MPI_Finalize();
  if (mpi::running() || mpi::make_error(MPI_ERR_RANK).message().empty()) return 1;
  try {
    const cohort::environment late;
  } catch (const cohort::error& problem) {
    std::puts(problem.what());
    return problem.code() == cohort::errc::finalized ? 0 : 1;
  }
  return 1;
}

/// The host finalizes although this rank has failed and the others wait for it.
int host_finalizes_after_failure(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const cohort::environment adopted;
  if (mpi::comm_ref::world().rank() == 0) {
    cohort::process::failed.store(true);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}

void run(std::string_view ending, cohort::environment& env) {
  if (ending == "exception") {
    if (mpi::comm_ref::world().rank() == 0) throw std::runtime_error("rank 0 gives up");
    MPI_Barrier(MPI_COMM_WORLD);
  } else if (ending == "failed") {
    cohort::process::failed.store(true);
  } else if (ending == "recovered") {
    cohort::process::failed.store(true);
    env.recovered();
  } else if (ending == "stuck") {
    cohort::process::add_hooks(&stuck);
  } else if (ending == "missing") {
    // Rank 1 does not come, and the launcher ends it when the others have left.
    if (mpi::comm_ref::world().rank() == 1) std::this_thread::sleep_for(std::chrono::minutes(2));
    cohort::process::missing.fetch_add(1);
  } else if (ending == "leftovers") {
    cohort::process::add_leftovers("all_reduce #9, 64 bytes\n");
  } else {
    throw std::invalid_argument("unknown ending");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string ending = argc > 1 ? argv[1] : "";
  if (ending == "host") return host_finalizes(argc, argv);
  if (ending == "host_after_failure") return host_finalizes_after_failure(argc, argv);
  try {
    cohort::environment env{argc, argv};
    run(ending, env);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 3;
  }
  return 0;
}
