// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A double of NVRTC, a shared library that is loaded as the real one is. It compiles nothing: its
// image is the text, which the double of CUDA compares with the one that it was built from.
// Architectures are 10 and 20; the double's devices have 10.
#include "support/fake_gpu/nvrtc_control.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

namespace {

struct program_object {
  std::string text;
  std::string log;
  std::string image;
  bool is_code = false;
};

std::mutex mutex;
int failures = 0;
int failure = 0;
std::string failing_log;  // NOLINT
std::string warning;      // NOLINT
int compiled = 0;

template <class Value>
int give_size(Value& text, std::size_t* bytes, bool with_end) {
  *bytes = text.size() + (with_end ? 1 : 0);
  return 0;
}

// Programs have the type here that the library takes them for.
program_object& at(void* program) { return *static_cast<program_object*>(program); }

}  // namespace

extern "C" {

void fake_nvrtc_fail(int times, int code, const char* log) {
  const std::lock_guard hold(mutex);
  failures = times;
  failure = code;
  failing_log = log;
}
void fake_nvrtc_warn(const char* log) {
  const std::lock_guard hold(mutex);
  warning = log;
}
int fake_nvrtc_compiled(void) {
  const std::lock_guard hold(mutex);
  return compiled;
}

const char* nvrtcGetErrorString(int code) {
  return code == 6 ? "NVRTC_ERROR_COMPILATION" : "an error of NVRTC's double";
}
int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* number) {
  *number = 2;
  return 0;
}
int nvrtcGetSupportedArchs(int* all) {
  all[0] = 10;
  all[1] = 20;
  return 0;
}
int nvrtcCreateProgram(void** made, const char* text, const char*, int headers, const char* const*,
                       const char* const*) {
  if (headers != 0) return 4;
  *made = new program_object{text, {}, {}, false};
  return 0;
}
int nvrtcDestroyProgram(void** which) {
  delete static_cast<program_object*>(*which);
  *which = nullptr;
  return 0;
}
int nvrtcCompileProgram(void* which, int options, const char* const* texts) {
  program_object& program = at(which);
  const std::lock_guard hold(mutex);
  ++compiled;
  if (failures > 0) {
    --failures;
    program.log = failing_log;
    return failure;
  }
  std::string target;
  for (int i = 0; i < options; ++i) {
    const std::string option = texts[i];
    const std::string_view wanted = "--gpu-architecture=";
    if (option.rfind(wanted, 0) == 0) {
      target = option.substr(wanted.size());
    } else if (option != "--std=c++17") {
      return 5;  // an option that it does not know
    }
  }
  const std::size_t number = target.find('_');
  if (number == target.npos) return 5;
  const std::string architecture = target.substr(number + 1);
  if (architecture != "10" && architecture != "20") return 5;
  program.is_code = target.rfind("sm_", 0) == 0;
  program.log = warning;
  program.image = "fake nvrtc " + target + "\n" + program.text;
  return 0;
}
int nvrtcGetProgramLogSize(void* which, std::size_t* bytes) {
  return give_size(at(which).log, bytes, true);
}
int nvrtcGetProgramLog(void* which, char* to) {
  std::memcpy(to, at(which).log.c_str(), at(which).log.size() + 1);
  return 0;
}
int nvrtcGetCUBINSize(void* which, std::size_t* bytes) {
  *bytes = at(which).is_code ? at(which).image.size() : 0;
  return 0;
}
int nvrtcGetCUBIN(void* which, char* to) {
  std::memcpy(to, at(which).image.data(), at(which).image.size());
  return 0;
}
int nvrtcGetPTXSize(void* which, std::size_t* bytes) {
  return give_size(at(which).image, bytes, true);
}
int nvrtcGetPTX(void* which, char* to) {
  std::memcpy(to, at(which).image.c_str(), at(which).image.size() + 1);
  return 0;
}

}  // extern "C"
