// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A user's program that needs no MPI: streams and device memory. Where no device is it prints the
// error that says so, and fails if it does not.
#include <cohort/device.hpp>

#include <cstdio>

static_assert(COHORT_HAS_CUDA == 1);

int main() {
  try {
    const cohort::device::stream s;
    cohort::device::vector<int> values(10, s);
    cohort::device::fill(s, values, 7);
    cohort::device::pinned_vector<int> host(10, s);
    cohort::device::copy(s, values, host);
    asio::io_context io;
    bool right = false;
    cohort::device::done(io, s, [&](std::error_code failed) { right = !failed && host[9] == 7; });
    io.run();
    return right ? 0 : 1;
  } catch (const cohort::error& failed) {
    std::printf("%s\n", failed.what());
    return failed.code() == cohort::errc::no_device && cohort::device::count() == 0 ? 0 : 1;
  }
}
