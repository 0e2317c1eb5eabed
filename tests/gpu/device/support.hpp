// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of the device layer share: the same with the double and with a real device.

#include <cohort/device.hpp>

#include "support/catch.hpp"
#include "support/double.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace cohort_test {

namespace device = cohort::device;

/// The devices of one test case; cohort has forgotten those of the last.
class machine {
 public:
  explicit machine(int wanted = 1) {
#if defined(COHORT_FAKE_GPU)
    fake_gpu::restart(wanted);
    lacks_ = false;
#else
    lacks_ = device::count() < wanted;
    if (lacks_) std::printf("skipped: this test case needs %d devices\n", wanted);
#endif
    device::forget_devices();
  }
  ~machine() {
#if defined(COHORT_FAKE_GPU)
    fake_gpu::restart(0);
#endif
  }
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;

  /// Whether the test case cannot be run on what is here.
  [[nodiscard]] bool lacks() const noexcept { return lacks_; }

 private:
  bool lacks_;
};

/// Holds a stream back until it is opened, on any device: the stream calls a function that waits.
/// One at a time for each device, because CUDA may call all of them on one thread.
class gate {
 public:
  explicit gate(const device::stream& on) : on_(on) {
    const device::scoped_device here(on.device());
    REQUIRE(cudaLaunchHostFunc(on.get(), &wait, this) == cudaSuccess);
  }
  ~gate() {
    open();
    const device::scoped_device here(on_.device());
    cudaStreamSynchronize(on_.get());
  }
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;

  void open() {
    open_.store(true);
    open_.notify_all();
  }

 private:
  static void wait(void* self) { static_cast<gate*>(self)->open_.wait(false); }
  device::stream on_;
  std::atomic<bool> open_{false};
};

inline bool is_idle(const device::stream& on) {
  const device::scoped_device here(on.device());  // for default streams
  const cudaError_t code = cudaStreamQuery(on.get());
  static_cast<void>(cudaGetLastError());
  return code == cudaSuccess;
}

/// Whether a stream that is held back stays so. One that is not would go on within that time.
inline bool stays_busy(const device::stream& on) {
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return !is_idle(on);
}

/// Waits for a stream as a plain program would.
inline void finish(const device::stream& on) {
  const device::scoped_device here(on.device());
  REQUIRE(cudaStreamSynchronize(on.get()) == cudaSuccess);
}

template <class T>
device::pinned_vector<T> counted(std::size_t size, const device::stream& on, T first) {
  device::pinned_vector<T> made(size, on);
  std::iota(made.begin(), made.end(), first);
  return made;
}

/// The code that `call` throws, or no error.
template <class Call>
std::error_code code_thrown_by(Call call) {
  try {
    call();
  } catch (const std::system_error& failed) {
    return failed.code();
  }
  return {};
}

}  // namespace cohort_test
