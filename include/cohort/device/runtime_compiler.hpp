// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Kernels that are compiled while the program runs, with an NVRTC that is loaded when it is first
/// wanted, and loaded on a device.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/core/error.hpp>
#include <cohort/device/stream.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace cohort::device {

/// NVRTC, without its header and without linking it: the few functions that are used here have had
/// these signatures since CUDA 11.2. The library stays loaded.
class runtime_compiler {
 public:
  /// Loads it. `library` is a file or a name. If it is empty, the variable COHORT_NVRTC of the
  /// environment names it; without that the one of this version of CUDA is tried, and then others.
  /// Throws error(errc::not_supported) that says what was looked for in vain.
  explicit runtime_compiler(const std::string& library = {});

  /// The architectures that it compiles for, ascending: 75 for sm_75.
  [[nodiscard]] const std::vector<int>& architectures() const noexcept { return architectures_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  struct compiled {
    std::string image;  ///< for `kernel_module`
    std::string log;    ///< warnings
  };
  /// For a device of compute capability `architecture`: machine code, or where this is newer than
  /// the compiler, PTX of the newest that is older. Takes up to a few seconds. Throws
  /// error(errc::not_supported) with the beginning of the compiler's log.
  [[nodiscard]] compiled compile(const std::string& text, const char* file, int architecture) const;

 private:
  using program = void*;  // nvrtcProgram
  struct functions {
    const char* (*error_text)(int code);
    int (*version)(int* major, int* minor);
    int (*number_of_architectures)(int* number);
    int (*architectures)(int* all);
    int (*create)(program* made, const char* text, const char* file, int headers,
                  const char* const* header_texts, const char* const* header_names);
    int (*destroy)(program* which);
    int (*compile)(program which, int options, const char* const* texts);
    int (*log_size)(program which, std::size_t* bytes);
    int (*log)(program which, char* to);
    int (*code_size)(program which, std::size_t* bytes);
    int (*code)(program which, char* to);
    int (*ptx_size)(program which, std::size_t* bytes);
    int (*ptx)(program which, char* to);
  };
  template <class Function>
  void find(Function& function, const char* symbol);
  void check(int code, const char* call) const;

  void* library_ = nullptr;
  std::string name_;
  functions nvrtc_{};
  std::vector<int> architectures_;
};

inline runtime_compiler::runtime_compiler(const std::string& library) {
  std::vector<std::string> names{library};
  if (library.empty()) {
    const char* const chosen = std::getenv("COHORT_NVRTC");
    names = {chosen != nullptr ? chosen : ""};
    if (names.front().empty()) {
      names = {"libnvrtc.so." + std::to_string(CUDART_VERSION / 1000), "libnvrtc.so.13",
               "libnvrtc.so.12", "libnvrtc.so"};
    }
  }
  std::string tried;
  for (const std::string& each : names) {
    library_ = ::dlopen(each.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) {
      name_ = each;
      break;
    }
    const char* const why = ::dlerror();
    if (tried.empty()) tried = why != nullptr ? why : each;
  }
  if (library_ == nullptr) throw error(errc::not_supported, "no NVRTC was found: " + tried);
  find(nvrtc_.error_text, "nvrtcGetErrorString");
  find(nvrtc_.version, "nvrtcVersion");
  find(nvrtc_.number_of_architectures, "nvrtcGetNumSupportedArchs");
  find(nvrtc_.architectures, "nvrtcGetSupportedArchs");
  find(nvrtc_.create, "nvrtcCreateProgram");
  find(nvrtc_.destroy, "nvrtcDestroyProgram");
  find(nvrtc_.compile, "nvrtcCompileProgram");
  find(nvrtc_.log_size, "nvrtcGetProgramLogSize");
  find(nvrtc_.log, "nvrtcGetProgramLog");
  find(nvrtc_.code_size, "nvrtcGetCUBINSize");
  find(nvrtc_.code, "nvrtcGetCUBIN");
  find(nvrtc_.ptx_size, "nvrtcGetPTXSize");
  find(nvrtc_.ptx, "nvrtcGetPTX");
  int number = 0;
  check(nvrtc_.number_of_architectures(&number), "nvrtcGetNumSupportedArchs");
  architectures_.resize(static_cast<std::size_t>(std::max(number, 0)));
  check(nvrtc_.architectures(architectures_.data()), "nvrtcGetSupportedArchs");
}

template <class Function>
void runtime_compiler::find(Function& function, const char* symbol) {
  function = reinterpret_cast<Function>(::dlsym(library_, symbol));
  if (function == nullptr) throw error(errc::not_supported, name_ + " has no " + symbol);
}

inline void runtime_compiler::check(int code, const char* call) const {
  if (code == 0) return;
  throw error(errc::not_supported,
              std::string(call) + " of " + name_ + ": " + nvrtc_.error_text(code));
}

inline runtime_compiler::compiled runtime_compiler::compile(const std::string& text,
                                                            const char* file,
                                                            int architecture) const {
  const auto above = std::upper_bound(architectures_.begin(), architectures_.end(), architecture);
  if (above == architectures_.begin()) {
    int major = 0;
    int minor = 0;
    static_cast<void>(nvrtc_.version(&major, &minor));
    throw error(errc::not_supported, "NVRTC " + std::to_string(major) + "." +
                                         std::to_string(minor) + " does not compile for sm_" +
                                         std::to_string(architecture));
  }
  const int target = *std::prev(above);
  const bool exact = target == architecture;
  const std::string option =
      std::string("--gpu-architecture=") + (exact ? "sm_" : "compute_") + std::to_string(target);
  struct owner {
    const functions& nvrtc;
    program made = nullptr;
    ~owner() {
      if (made != nullptr) static_cast<void>(nvrtc.destroy(&made));
    }
  } own{nvrtc_};
  check(nvrtc_.create(&own.made, text.c_str(), file, 0, nullptr, nullptr), "nvrtcCreateProgram");
  const std::array<const char*, 2> options{"--std=c++17", option.c_str()};
  const int code = nvrtc_.compile(own.made, static_cast<int>(options.size()), options.data());
  // All sizes count a zero at the end, but for that of machine code.
  const auto take = [&](auto size_of, auto copy, bool is_text) {
    std::size_t size = 0;
    std::string taken;
    if (size_of(own.made, &size) != 0 || size == 0) return taken;
    taken.resize(size);
    if (copy(own.made, taken.data()) != 0) taken.clear();
    if (is_text && !taken.empty()) taken.pop_back();
    return taken;
  };
  compiled made;
  made.log = take(nvrtc_.log_size, nvrtc_.log, true);
  if (code != 0) {
    constexpr std::size_t enough = 100;  // other ranks are told of it in few bytes
    const std::string first = made.log.substr(0, std::min(made.log.find('\n'), enough));
    throw error(errc::not_supported, std::string("NVRTC does not compile ") + file + ": " +
                                         (first.empty() ? nvrtc_.error_text(code) : first));
  }
  made.image =
      exact ? take(nvrtc_.code_size, nvrtc_.code, false) : take(nvrtc_.ptx_size, nvrtc_.ptx, true);
  if (made.image.empty()) throw error(errc::not_supported, name_ + " made no code for " + option);
  return made;
}

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
  // Older drivers have loaded it with the call above.
  if (driver_.load_function != nullptr) {
    check(static_cast<cudaError_t>(driver_.load_function(found)), "cuFuncLoad", device_);
  }
  return found;
}

inline void kernel_module::launch(function which, const stream& on, unsigned blocks,
                                  unsigned threads, const void* argument) const {
  const scoped_device here(device_);
  check(cudaSetDevice(device_), "cudaSetDevice", device_);  // as in the constructor
  void* arguments[] = {const_cast<void*>(argument)};
  check(static_cast<cudaError_t>(
            driver_.launch(which, blocks, 1, 1, threads, 1, 1, 0, on.get(), arguments, nullptr)),
        "cuLaunchKernel", device_);
}

}  // namespace cohort::device

#endif
