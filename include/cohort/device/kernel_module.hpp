// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::device::kernel_module`: kernels that were compiled while the program runs, loaded on a
/// device.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/device/stream.hpp>

#include <cstdint>
#include <string>

namespace cohort::device {

/// Functions of the driver, which CUDA's runtime has loaded: nothing more is linked. A module is
/// never unloaded, for that may wait for the device; it goes with the device's context.
class kernel_module {
 public:
  using function = void*;  ///< CUfunction

  /// Loads an image of `runtime_compiler`. May wait for whatever the device does, so never call it
  /// where a loop runs. Throws std::system_error with CUDA's code, error(errc::not_supported) if
  /// the driver lacks a function.
  kernel_module(const std::string& image, int device);

  /// A kernel by its name, loaded so that its first launch does not wait for the device. Throws the
  /// same.
  [[nodiscard]] function find(const char* name) const;

  /// Queues it with one argument, which is copied now, also where `on` is captured. Throws
  /// std::system_error with CUDA's code. Any thread.
  void launch(function which, const stream& on, unsigned blocks, unsigned threads,
              const void* argument) const;

  [[nodiscard]] int device() const noexcept { return device_; }
  /// Whether the context in which it was loaded is still there.
  [[nodiscard]] bool is_there() const noexcept { return state_of(device_).holds(generation_); }

 private:
  // As in <cuda.h>, whose error codes are those of the runtime.
  using handle = void*;  // CUmodule
  struct functions {
    int (*load)(handle* made, const void* image);
    int (*find)(function* found, handle from, const char* name);
    int (*load_function)(function which);  // from 12.4
    int (*launch)(function which, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  unsigned shared, cudaStream_t on, void** arguments, void** extra);
  };
  template <class Function>
  bool look_up(Function& found, const char* symbol);

  int device_;
  std::uint32_t generation_;
  functions driver_{};
  handle native_ = nullptr;
};

template <class Function>
bool kernel_module::look_up(Function& found, const char* symbol) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 13000
  constexpr unsigned version = 12040;
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(symbol, &address, version, cudaEnableDefault, &status);
#else
  const cudaError_t code = cudaGetDriverEntryPoint(symbol, &address, cudaEnableDefault, &status);
#endif
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
  const bool there = code == cudaSuccess && status == cudaDriverEntryPointSuccess;
  if (there) found = reinterpret_cast<Function>(address);
  return there && address != nullptr;
}

inline kernel_module::kernel_module(const std::string& image, int device)
    : device_(device), generation_(state_of(device).generation()) {
  check_usable(device);
  const scoped_device here(device);
  check(cudaSetDevice(device), "cudaSetDevice", device);  // makes its context that of the thread
  if (!look_up(driver_.load, "cuModuleLoadData") || !look_up(driver_.find, "cuModuleGetFunction") ||
      !look_up(driver_.launch, "cuLaunchKernel")) {
    throw error(errc::not_supported, "the driver loads no modules");
  }
  if (!look_up(driver_.load_function, "cuFuncLoad")) driver_.load_function = nullptr;
  check(static_cast<cudaError_t>(driver_.load(&native_, image.c_str())), "cuModuleLoadData",
        device);
}

inline kernel_module::function kernel_module::find(const char* name) const {
  const scoped_device here(device_);
  check(cudaSetDevice(device_), "cudaSetDevice", device_);
  function found = nullptr;
  check(static_cast<cudaError_t>(driver_.find(&found, native_, name)), "cuModuleGetFunction",
        device_);
  // Older drivers load it above.
  if (driver_.load_function != nullptr) {
    check(static_cast<cudaError_t>(driver_.load_function(found)), "cuFuncLoad", device_);
  }
  return found;
}

inline void kernel_module::launch(function which, const stream& on, unsigned blocks,
                                  unsigned threads, const void* argument) const {
  const scoped_device here(device_);
  check(cudaSetDevice(device_), "cudaSetDevice", device_);  // see above
  void* arguments[] = {const_cast<void*>(argument)};
  check(static_cast<cudaError_t>(
            driver_.launch(which, blocks, 1, 1, threads, 1, 1, 0, on.get(), arguments, nullptr)),
        "cuLaunchKernel", device_);
}

}  // namespace cohort::device

#endif
