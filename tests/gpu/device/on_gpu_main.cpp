// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Runs the tests on whatever devices there are; where there is none, ctest is told to count them as
// skipped (77), with the reason.
#include "support/catch_run.hpp"
#include "support/double.hpp"

#include <cohort/device.hpp>

#include <cstdio>

namespace {

/// What the library promises where CUDA is installed and no device is: this much of the real
/// runtime can be tested there. Returns the status for ctest.
int without_device(const std::error_code& why) {
  using cohort::errc;
  int on_the_stack = 0;
  bool right = why == errc::no_device && cohort::device::count() == 0 &&
               cohort::device::locate(&on_the_stack).space == cohort::memory_space::host;
  try {
    const cohort::device::stream none;
    right = false;
  } catch (const cohort::error& refused) {
    right = right && refused.code() == errc::no_device;
  }
  if (!right) std::printf("and the library does not report that as it should\n");
  return right ? 77 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int device = cohort::device::default_device();
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) {
      std::printf("device %d of %d: %s\n", device, cohort::device::count(), properties.name);
    }
  } catch (const std::system_error& none) {
    std::printf("skipped: %s\n", none.what());
    return without_device(none.code());
  }
  const int failed = cohort_test::run_catch(argc, argv);
  cohort_test::tell_skipped();
  return failed;
}
