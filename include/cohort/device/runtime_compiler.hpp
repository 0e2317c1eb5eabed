// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::device::runtime_compiler`: compiles CUDA kernels while the program runs, with an NVRTC
/// that is loaded when it is first wanted.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/core/error.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

namespace cohort::device {

/// NVRTC, without its header and without linking it: the few functions that are used here have had
/// these signatures since CUDA 11.2. The library stays loaded.
class runtime_compiler {
 public:
  /// Loads it. `library` is a file or a name; empty: what the variable COHORT_NVRTC of the
  /// environment says and nothing else; without it that of CUDA's version here, and then others.
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
    constexpr std::size_t enough = 100;  // errors of other ranks are told in few bytes
    const std::string first = made.log.substr(0, std::min(made.log.find('\n'), enough));
    throw error(errc::not_supported, std::string("NVRTC does not compile ") + file + ": " +
                                         (first.empty() ? nvrtc_.error_text(code) : first));
  }
  made.image =
      exact ? take(nvrtc_.code_size, nvrtc_.code, false) : take(nvrtc_.ptx_size, nvrtc_.ptx, true);
  if (made.image.empty()) throw error(errc::not_supported, name_ + " made no code for " + option);
  return made;
}

}  // namespace cohort::device

#endif
