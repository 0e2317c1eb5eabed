// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Functions of the driver that load and launch kernels; control.hpp says what they are and are not.
#include "support/fake_gpu/control.hpp"
#include "support/fake_gpu/machine.hpp"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fake_gpu {
namespace {

struct module_object {
  int device;
  std::uint32_t generation;
};

struct function_object {
  std::string name;
  int device;
  std::uint32_t generation;
  bool loaded = false;
  emulated_kernel kernel;
};

// Never taken back: the library unloads no module.
std::map<void*, std::unique_ptr<module_object>>& modules() {
  static auto& all = *new std::map<void*, std::unique_ptr<module_object>>;
  return all;
}
std::map<void*, std::unique_ptr<function_object>>& functions() {
  static auto& all = *new std::map<void*, std::unique_ptr<function_object>>;
  return all;
}

template <class Object>
bool is_there(const Object& one) {
  return device_ready(one.device) == cudaSuccess && at(one.device).generation == one.generation;
}

// The driver's error codes are those of the runtime, but it sets no last error.

int load_module(void** made, const void* image) {
  lock hold(the().mutex);
  if (const auto code = enter("cuModuleLoadData", hold)) return code;
  if (const auto code = check_safe()) return code;
  const int device = current_device;
  if (const auto code = device_ready(device)) return code;
  const std::string_view text(static_cast<const char*>(image));
  if (text.substr(0, 11) != "fake nvrtc " || text.find(text_of_kernels()) == text.npos) {
    return cudaErrorInvalidKernelImage;
  }
  wait_for_device(hold, device);
  auto object = std::make_unique<module_object>(module_object{device, at(device).generation});
  *made = object.get();
  modules()[object.get()] = std::move(object);
  return cudaSuccess;
}

int find_function(void** found, void* module, const char* name) {
  lock hold(the().mutex);
  if (const auto code = enter("cuModuleGetFunction", hold)) return code;
  const auto from = modules().find(module);
  if (from == modules().end() || !is_there(*from->second)) return cudaErrorInvalidResourceHandle;
  const emulated_kernel kernel = find_kernel(name);
  if (kernel == nullptr) return cudaErrorSymbolNotFound;
  auto object = std::make_unique<function_object>(
      function_object{name, from->second->device, from->second->generation, false, kernel});
  *found = object.get();
  functions()[object.get()] = std::move(object);
  return cudaSuccess;
}

int load_function(void* which) {
  lock hold(the().mutex);
  if (const auto code = enter("cuFuncLoad", hold)) return code;
  if (const auto code = check_safe()) return code;
  const auto found = functions().find(which);
  if (found == functions().end() || !is_there(*found->second)) {
    return cudaErrorInvalidResourceHandle;
  }
  wait_for_device(hold, found->second->device);
  found->second->loaded = true;
  return cudaSuccess;
}

int launch_kernel(void* which, unsigned blocks, unsigned blocks_y, unsigned blocks_z,
                  unsigned threads, unsigned threads_y, unsigned threads_z, unsigned shared,
                  cudaStream_t stream, void** arguments, void** extra) {
  lock hold(the().mutex);
  if (const auto code = enter("cuLaunchKernel", hold)) return code;
  const auto object = find(stream);
  const auto found = functions().find(which);
  if (!object || found == functions().end()) return cudaErrorInvalidResourceHandle;
  function_object& function = *found->second;
  if (const auto code = usable(*object)) return code;
  if (function.device != object->device || current_device != object->device ||
      !is_there(function)) {
    return cudaErrorInvalidResourceHandle;
  }
  const bool flat = blocks_y == 1 && blocks_z == 1 && threads_y == 1 && threads_z == 1;
  if (!flat || blocks == 0 || blocks > 0x7fffffffU || threads == 0 || threads > 1024 ||
      shared != 0 || extra != nullptr) {
    return cudaErrorInvalidValue;
  }
  if (!function.loaded) wait_for_device(hold, function.device);  // it is loaded now
  function.loaded = true;
  const auto argument = std::make_shared<std::vector<unsigned long long>>(
      (size_of_argument() + sizeof(unsigned long long) - 1) / sizeof(unsigned long long));
  std::memcpy(argument->data(), arguments[0], size_of_argument());
  push(*object, [argument, kernel = function.kernel, shape = emulated_shape{blocks, threads},
                 device = object->device](lock& held) {
    const stream_object* const on = working_for;
    the().changed.wait(held, [on, device] {
      return on->ending || !at(device).taken || at(device).sticky != cudaSuccess;
    });
    if (on->ending) return;
    held.unlock();
    const cudaError_t code = run_kernel(kernel, shape, argument->data());
    held.lock();
    if (code != cudaSuccess) break_now(device, code);
    ++the().calls["copies and kernels that are done"];
  });
  return cudaSuccess;
}

cudaError_t entry_point(const char* name, const char* symbol, void** function,
                        cudaDriverEntryPointQueryResult* status) {
  lock hold(the().mutex);
  if (const auto code = enter(name, hold)) return fail(code);
  *function = nullptr;
  const std::string_view wanted(symbol);
  if (wanted == "cuModuleLoadData") *function = reinterpret_cast<void*>(&load_module);
  if (wanted == "cuModuleGetFunction") *function = reinterpret_cast<void*>(&find_function);
  if (wanted == "cuFuncLoad") *function = reinterpret_cast<void*>(&load_function);
  if (wanted == "cuLaunchKernel") *function = reinterpret_cast<void*>(&launch_kernel);
  if (status != nullptr) {
    *status =
        *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace fake_gpu

using namespace fake_gpu;  // NOLINT: this file is the double

extern "C" {

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int,
                                             unsigned long long,
                                             enum cudaDriverEntryPointQueryResult* status) {
  return entry_point("cudaGetDriverEntryPointByVersion", symbol, function, status);
}
#endif

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    enum cudaDriverEntryPointQueryResult* status) {
  return entry_point("cudaGetDriverEntryPoint", symbol, function, status);
}

}  // extern "C"
