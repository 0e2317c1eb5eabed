// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

#if defined(COHORT_FAKE_GPU)

#include "support/fake_gpu/control.hpp"

namespace bench {

machine::machine(int rank) : name("test double of a GPU"), prefix("test double, no figure: ") {
  fake_gpu::restart(1);
  fake_gpu::set_bus_id(0, 100 + rank);
}
machine::~machine() { fake_gpu::restart(0); }

}  // namespace bench

#else

namespace bench {

machine::machine(int /*rank*/) : prefix("") {
  if (cohort::device::count() == 0) return;  // making a communicator says so
  cudaDeviceProp found{};
  const int device = cohort::device::default_device();
  cohort::device::check(cudaGetDeviceProperties(&found, device), "cudaGetDeviceProperties", device);
  int driver = 0;
  int runtime = 0;
  int nccl = 0;
  cohort::device::check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion", device);
  cohort::device::check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion", device);
  ncclGetVersion(&nccl);
  name = std::string(found.name) + ", driver for CUDA " + std::to_string(driver) + ", runtime " +
         std::to_string(runtime) + ", NCCL " + std::to_string(nccl);
}
machine::~machine() {}

}  // namespace bench

#endif
