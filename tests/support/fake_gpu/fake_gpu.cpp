// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The double itself; control.hpp says what it is and what it is not.
#include "support/fake_gpu/control.hpp"
#include "support/fake_gpu/internal.hpp"
#include "support/fake_gpu/machine.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fake_gpu {

machine& the() {
  static machine& instance = *new machine;
  return instance;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
thread_local stream_object* working_for = nullptr;

cudaError_t fail(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

cudaError_t enter(const char* function, lock&) {
  machine& m = the();
  ++m.calls[function];
  if (m.unloading) return cudaErrorCudartUnloading;
  const auto found = m.failures.find(function);
  if (found != m.failures.end() && found->second.second > 0) {
    --found->second.second;
    return found->second.first;
  }
  return cudaSuccess;
}

cudaError_t device_ready(int device) {
  machine& m = the();
  if (m.count_error != cudaSuccess) return m.count_error;
  if (m.devices.empty()) return cudaErrorNoDevice;
  if (device < 0 || device >= static_cast<int>(m.devices.size())) return cudaErrorInvalidDevice;
  return m.devices[static_cast<std::size_t>(device)].sticky;
}

device_object& at(int device) { return the().devices[static_cast<std::size_t>(device)]; }

namespace {

void run_stream(const std::shared_ptr<stream_object>& self) {
  machine& m = the();
  working_for = self.get();
  current_device = self->device;
  lock hold(m.mutex);
  for (;;) {
    m.changed.wait(hold, [&] { return self->ending || (!self->queue.empty() && !self->held); });
    if (self->ending) return;
    auto next = std::move(self->queue.front());
    self->queue.pop_front();
    if (at(self->device).sticky != cudaSuccess) continue;  // never runs
    self->busy = true;
    if (const unsigned pause = at(self->device).delay; pause != 0) {
      hold.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(pause));
      hold.lock();
    }
    next(hold);
    self->busy = false;
    m.changed.notify_all();
    if (self->destroyed && self->queue.empty()) return;
  }
}

}  // namespace

std::shared_ptr<stream_object> make_stream(int device, int priority) {
  auto made = std::make_shared<stream_object>();
  made->device = device;
  made->generation = at(device).generation;
  made->priority = priority;
  made->number = ++the().tickets;
  made->worker = std::thread(run_stream, made);
  return made;
}

std::shared_ptr<stream_object> find(cudaStream_t handle) {
  machine& m = the();
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    if (device_ready(current_device) != cudaSuccess) return nullptr;
    auto& legacy = at(current_device).legacy;
    if (!legacy) {
      legacy = make_stream(current_device, 0);
      m.streams[legacy.get()] = legacy;
    }
    return legacy;
  }
  const auto found = m.streams.find(handle);
  if (found == m.streams.end()) return nullptr;
  const auto& object = found->second;
  return !object->destroyed && object->generation == at(object->device).generation ? object
                                                                                   : nullptr;
}

std::shared_ptr<event_object> find(cudaEvent_t handle) {
  const auto found = the().events.find(handle);
  if (found == the().events.end()) return nullptr;
  return found->second->generation == at(found->second->device).generation ? found->second
                                                                           : nullptr;
}

namespace {

allocation* find(const void* pointer) {
  machine& m = the();
  auto* address = const_cast<char*>(static_cast<const char*>(pointer));
  auto after = m.memory.upper_bound(address);
  if (after == m.memory.begin()) return nullptr;
  allocation& one = std::prev(after)->second;
  return address < one.address + one.mapped ? &one : nullptr;
}

bool idle(const stream_object& stream) {
  const bool broken = at(stream.device).sticky != cudaSuccess;
  return broken || (stream.queue.empty() && !stream.busy);
}

/// Waits, as a blocking call of CUDA does.
template <class Predicate>
void block(lock& hold, Predicate until) {
  machine& m = the();
  ++m.blocked;
  m.changed.notify_all();
  m.changed.wait(hold, until);
  --m.blocked;
}

}  // namespace

void wait_for_device(lock& hold, int device) {
  block(hold, [device] {
    for (const auto& [handle, stream] : the().streams) {
      if (stream->device == device && stream->generation == at(device).generation &&
          !idle(*stream)) {
        return false;
      }
    }
    return true;
  });
}

cudaError_t usable(const stream_object& stream) {
  if (const auto code = device_ready(stream.device)) return code;
  const bool spoiled = stream.capture != nullptr && stream.capture->spoiled;
  return spoiled ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

void push_each(stream_object& stream, const work_of_launch& make) {
  if (stream.announced > 0) {
    the().faults.push_back("work was queued in stream " + std::to_string(stream.number) +
                           " of device " + std::to_string(stream.device) +
                           " before the collective that is in progress there");
  }
  if (stream.capture != nullptr) {
    ++stream.capture->lanes[stream.lane].before[stream.lane];
    stream.capture->graph->nodes.push_back({graph_node::work, stream.lane, 0, make});
    return;
  }
  stream.queue.push_back(make(0));
  the().changed.notify_all();
}

void push(stream_object& stream, work what) {
  push_each(stream, [what = std::move(what)](std::uint64_t) { return what; });
}

work wait_for(std::shared_ptr<mark> target) {
  return [target = std::move(target)](lock& held) {
    stream_object* const waiting = working_for;
    the().changed.wait(held, [&] {
      return waiting->ending || !target || target->reached ||
             at(waiting->device).sticky != cudaSuccess;
    });
  };
}

void break_now(int device, cudaError_t code) {
  if (at(device).sticky == cudaSuccess) at(device).sticky = code;
  the().changed.notify_all();
}

reachable find_reachable(std::uintptr_t where, int device) {
  const allocation* const found = find(reinterpret_cast<const void*>(where));
  if (found == nullptr || found->freed || found->generation != at(found->device).generation ||
      (found->type == cudaMemoryTypeDevice && found->device != device)) {
    return {};
  }
  return {reinterpret_cast<std::uintptr_t>(found->address), found->bytes, found->alias};
}

namespace {

/// Where a stream's work touches `bytes` at `pointer`, or null if it may not.
char* touch(const void* pointer, std::size_t bytes, int device) {
  allocation* found = find(pointer);
  auto* address = const_cast<char*>(static_cast<const char*>(pointer));
  if (found == nullptr) return address;  // pageable memory of the host
  if (found->freed || found->generation != at(found->device).generation) return nullptr;
  if (found->type == cudaMemoryTypeDevice && found->device != device) return nullptr;
  if (address + bytes > found->address + found->bytes) return nullptr;
  return found->alias + (address - found->address);
}

struct piece {
  void* to;
  const void* from;
  std::size_t bytes;
};

/// One piece of work that copies all. Waits for it if memory is pageable.
cudaError_t queue_copies(lock& hold, const std::shared_ptr<stream_object>& on,
                         std::vector<piece> pieces) {
  bool pageable = false;
  for (const piece& one : pieces) {
    for (const void* end : {static_cast<const void*>(one.to), one.from}) {
      const allocation* found = find(end);
      if (found == nullptr) pageable = true;
      if (found != nullptr && found->freed) return cudaErrorInvalidValue;
    }
  }
  const auto done = std::make_shared<mark>();
  push(*on, [done, pieces = std::move(pieces), device = on->device](lock& held) {
    for (const piece& one : pieces) {
      char* const target = touch(one.to, one.bytes, device);
      const char* const source = touch(one.from, one.bytes, device);
      if (target == nullptr || source == nullptr) {
        break_now(device, cudaErrorIllegalAddress);
        break;
      }
      held.unlock();
      std::memcpy(target, source, one.bytes);
      held.lock();
    }
    ++the().calls["copies and kernels that are done"];
    done->reached = true;
  });
  if (pageable && on->capture == nullptr) {
    block(hold, [&] { return done->reached || at(on->device).sticky != cudaSuccess; });
  }
  return cudaSuccess;
}

cudaError_t allocate(void** result, std::size_t bytes, int device, cudaMemoryType type) {
  machine& m = the();
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t mapped = (bytes + page - 1) / page * page;
  constexpr std::size_t most = std::size_t(1) << 30;
  if (bytes == 0 || mapped > most) return cudaErrorMemoryAllocation;
  const int file = memfd_create("fake_gpu", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(mapped)) != 0) {
    if (file >= 0) close(file);
    return cudaErrorMemoryAllocation;
  }
  const auto map = [&](int protection) {
    return mmap(nullptr, mapped, protection, MAP_SHARED, file, 0);
  };
  void* alias = map(PROT_READ | PROT_WRITE);
  void* address = type == cudaMemoryTypeDevice ? map(PROT_NONE) : alias;
  close(file);
  if (alias == MAP_FAILED || address == MAP_FAILED) return cudaErrorMemoryAllocation;
  std::memset(alias, 0xa5, mapped);  // nobody can rely on zeros
  allocation made;
  made.address = static_cast<char*>(address);
  made.alias = static_cast<char*>(alias);
  made.bytes = bytes;
  made.mapped = mapped;
  made.device = device;
  made.generation = at(device).generation;
  made.type = type;
  m.memory[made.address] = made;
  *result = address;
  return cudaSuccess;
}

// The program's view stays reserved without access, so that what touches it later faults.
void forget(allocation& one) {
  one.freed = true;
  if (one.type != cudaMemoryTypeDevice) mprotect(one.address, one.mapped, PROT_NONE);
}

void unmap(const allocation& one) {
  munmap(one.address, one.mapped);
  if (one.alias != one.address) munmap(one.alias, one.mapped);
}

template <class Count>
std::size_t count_if(Count count) {
  const lock hold(the().mutex);
  return count();
}

}  // namespace

// ---- control ---------------------------------------------------------------------------------

void restart(int devices) {
  machine& m = the();
  std::vector<std::shared_ptr<stream_object>> old;
  {
    const lock hold(m.mutex);
    for (auto& [handle, stream] : m.streams) {
      stream->ending = true;
      old.push_back(stream);
    }
    m.changed.notify_all();
  }
  for (const auto& stream : old) {
    if (stream->worker.joinable()) stream->worker.join();
  }
  if (m.restarted != nullptr) m.restarted();
  const lock hold(m.mutex);
  for (const auto& [address, one] : m.memory) {
    // Pinned memory that was not given back stays: MPI may have been left with it after a failure.
    if (one.type == cudaMemoryTypeDevice || one.freed) unmap(one);
  }
  m.memory.clear();
  m.streams.clear();
  m.events.clear();
  m.graveyard.clear();
  m.failures.clear();
  m.calls.clear();
  m.faults.clear();
  m.occupy = true;
  for (const auto& capture : m.captures) {
    for (const auto& lane : capture->lanes) lane.stream->capture.reset();  // each has the other
  }
  m.captures.clear();
  m.graphs.clear();
  m.executables.clear();
  m.count_error = cudaSuccess;
  m.unloading = false;
  m.devices.assign(static_cast<std::size_t>(devices), device_object());
  for (std::size_t i = 0; i < m.devices.size(); ++i) {
    m.devices[i].bus_id = 0x17 + static_cast<std::int64_t>(i);
  }
  last_error = cudaSuccess;
  current_device = 0;
  capture_mode = cudaStreamCaptureModeGlobal;
}

void fail_count(cudaError_t code) {
  const lock hold(the().mutex);
  the().count_error = code;
}

void fail_next(const char* function, cudaError_t code, int times) {
  const lock hold(the().mutex);
  the().failures[function] = {code, times};
}

std::uint64_t calls(const char* function) {
  const lock hold(the().mutex);
  return the().calls[function];
}

int blocked_calls() {
  const lock hold(the().mutex);
  return the().blocked;
}

void hold(cudaStream_t stream) {
  const lock guard(the().mutex);
  if (const auto object = find(stream)) object->held = true;
}

void release(cudaStream_t stream) {
  const lock guard(the().mutex);
  if (const auto object = find(stream)) object->held = false;
  the().changed.notify_all();
}

void delay(int device, unsigned microseconds) {
  const lock hold(the().mutex);
  at(device).delay = microseconds;
}

cudaError_t crash(cudaStream_t stream, cudaError_t code) {
  const lock hold(the().mutex);
  const auto object = find(stream);
  if (!object) return cudaErrorInvalidResourceHandle;
  push(*object, [device = object->device, code](lock&) { break_now(device, code); });
  return cudaSuccess;
}

void break_device(int device, cudaError_t code) {
  const lock hold(the().mutex);
  break_now(device, code);
}

cudaError_t launch(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  const lock hold(the().mutex);
  const auto object = find(stream);
  if (!object) return cudaErrorInvalidResourceHandle;
  if (const auto code = usable(*object)) return code;
  push(*object, [function, argument](lock& held) {
    const stream_object* const on = working_for;
    the().changed.wait(held, [on] { return on->ending || !at(on->device).taken; });
    held.unlock();
    function(argument);
    held.lock();
  });
  return cudaSuccess;
}

void* access(void* address, std::size_t bytes) {
  const lock hold(the().mutex);
  if (working_for == nullptr) return nullptr;
  char* found = find(address) == nullptr ? nullptr : touch(address, bytes, working_for->device);
  if (found == nullptr) break_now(working_for->device, cudaErrorIllegalAddress);
  return found;
}

void unload(bool yes) {
  const lock hold(the().mutex);
  the().unloading = yes;
}

std::size_t live_allocations(int device) {
  return count_if([device] {
    std::size_t sum = 0;
    for (const auto& [address, one] : the().memory) {
      sum += !one.freed && one.device == device && one.generation == at(device).generation;
    }
    return sum;
  });
}

std::size_t live_streams(int device) {
  return count_if([device] {
    std::size_t sum = 0;
    for (const auto& [handle, one] : the().streams) {
      sum += !one->destroyed && one->device == device && one != at(device).legacy &&
             !one->of_graph && one->generation == at(device).generation;
    }
    return sum;
  });
}

std::size_t live_timing_events(int device) {
  return count_if([device] {
    std::size_t sum = 0;
    for (const auto& [handle, one] : the().events) {
      sum += one->timed && one->device == device && one->generation == at(device).generation;
    }
    return sum;
  });
}

std::size_t live_events(int device) {
  return count_if([device] {
    std::size_t sum = 0;
    for (const auto& [handle, one] : the().events) {
      sum += one->device == device && one->generation == at(device).generation;
    }
    return sum;
  });
}

void set_bus_id(int device, std::int64_t id) {
  const lock hold(the().mutex);
  at(device).bus_id = id;
}

void set_uuid(int device, std::int64_t id) {
  const lock hold(the().mutex);
  at(device).uuid = id;
}

void occupy(bool yes) {
  const lock hold(the().mutex);
  the().occupy = yes;
}

bool occupied(int device) {
  const lock hold(the().mutex);
  return at(device).taken;
}

// ---- for the half that is NCCL ---------------------------------------------------------------

namespace internal {

void at_restart(void (*function)()) {
  const lock hold(the().mutex);
  the().restarted = function;
}

int current() { return current_device; }

void make_current(int device) { current_device = device; }

cudaError_t state(int device) {
  const lock hold(the().mutex);
  return device_ready(device);
}

std::uint32_t generation(int device) {
  const lock hold(the().mutex);
  return device_ready(device) == cudaErrorInvalidDevice ? 0 : at(device).generation;
}

std::int64_t bus_id(int device) {
  const lock hold(the().mutex);
  return at(device).bus_id;
}

int device_of(cudaStream_t stream) {
  const lock hold(the().mutex);
  const auto object = find(stream);
  return object ? object->device : -1;
}

void announce(cudaStream_t stream, int change) {
  const lock hold(the().mutex);
  if (const auto object = find(stream)) object->announced += change;
}

bool enqueue(cudaStream_t stream, const kernel_of_launch& make) {
  const lock hold(the().mutex);
  const auto object = find(stream);
  if (!object || usable(*object) != cudaSuccess) return false;
  const int announced = std::exchange(object->announced, 0);  // this is what was announced
  push_each(*object, [make](std::uint64_t launch) -> work {
    return [kernel = make(launch)](lock& held) {
      held.unlock();
      kernel();
      held.lock();
    };
  });
  object->announced = announced;
  return true;
}

const void* capture_of(cudaStream_t stream) {
  const lock hold(the().mutex);
  const auto object = find(stream);
  return object ? object->capture.get() : nullptr;
}

bool occupies() {
  const lock hold(the().mutex);
  return the().occupy;
}

bool must_end() {
  const lock hold(the().mutex);
  return working_for->ending || at(working_for->device).sticky != cudaSuccess;
}

bool take_multiprocessors() {
  lock hold(the().mutex);
  device_object& device = at(working_for->device);
  if (!the().occupy) return true;
  const std::uint64_t ticket = ++the().tickets;
  device.waiting.push_back(ticket);
  const auto ending = [&] { return working_for->ending || device.sticky != cudaSuccess; };
  the().changed.wait(
      hold, [&] { return ending() || (!device.taken && device.waiting.front() == ticket); });
  device.waiting.erase(std::find(device.waiting.begin(), device.waiting.end(), ticket));
  if (ending()) return false;
  device.taken = true;
  return true;
}

void give_multiprocessors() {
  const lock hold(the().mutex);
  at(working_for->device).taken = false;
  the().changed.notify_all();
}

std::vector<std::string> faults() {
  const lock hold(the().mutex);
  return the().faults;
}

void fault(std::string text) {
  const lock hold(the().mutex);
  the().faults.push_back(std::move(text));
}

void clear_faults() {
  const lock hold(the().mutex);
  the().faults.clear();
}

}  // namespace internal
}  // namespace fake_gpu

// ---- the part of CUDA's runtime --------------------------------------------------------------

using namespace fake_gpu;  // NOLINT: this file is the double

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorCallRequiresNewerDriver:
      return "cudaErrorCallRequiresNewerDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorContextIsDestroyed:
      return "cudaErrorContextIsDestroyed";
    default:
      return "cudaErrorOfTheDouble";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error of the test double";
}

cudaError_t cudaGetLastError(void) {
  const lock hold(the().mutex);
  if (the().count_error != cudaSuccess) return last_error;  // stays without a driver
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaGetDeviceCount", hold)) return fail(code);
  if (the().count_error != cudaSuccess) return fail(the().count_error);
  if (the().devices.empty()) return fail(cudaErrorNoDevice);
  *count = static_cast<int>(the().devices.size());
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaGetDevice", hold)) return fail(code);
  if (the().count_error != cudaSuccess) return fail(the().count_error);
  if (the().devices.empty()) return fail(cudaErrorNoDevice);
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaSetDevice", hold)) return fail(code);
  if (the().count_error != cudaSuccess) return fail(the().count_error);
  if (device < 0 || device >= static_cast<int>(the().devices.size())) {
    return fail(cudaErrorInvalidDevice);
  }
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaDeviceGetPCIBusId", hold)) return fail(code);
  if (const auto code = device_ready(device)) return fail(code);
  const int needed = std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0",
                                   static_cast<unsigned>(at(device).bus_id));
  return fail(needed < size ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* result, int device) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaGetDeviceProperties", hold)) return fail(code);
  if (const auto code = device_ready(device)) return fail(code);
  *result = cudaDeviceProp();
  std::snprintf(result->name, sizeof result->name, "test double");
  const std::int64_t bus = at(device).bus_id;
  const std::int64_t uuid = at(device).uuid == 0 ? bus : at(device).uuid;
  std::memcpy(result->uuid.bytes, &uuid, sizeof uuid);
  result->pciBusID = static_cast<int>(bus);
  return cudaSuccess;
}

// So old that no real compiler takes the double for a device of its own.
cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaDeviceGetAttribute", hold)) return fail(code);
  if (const auto code = device_ready(device)) return fail(code);
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceReset(void) {
  machine& m = the();
  lock hold(m.mutex);
  if (const auto code = enter("cudaDeviceReset", hold)) return fail(code);
  if (m.devices.empty()) return fail(cudaErrorNoDevice);
  device_object& device = at(current_device);
  for (auto& [handle, stream] : m.streams) {
    if (stream->device == current_device) stream->ending = true;
  }
  ++device.generation;
  device.sticky = cudaSuccess;
  device.legacy.reset();
  m.changed.notify_all();
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaDeviceSynchronize", hold)) return fail(code);
  if (const auto code = device_ready(current_device)) return fail(code);
  if (const auto code = check_safe()) return fail(code);
  wait_for_device(hold, current_device);
  return fail(device_ready(current_device));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaDeviceGetStreamPriorityRange", hold)) return fail(code);
  if (const auto code = device_ready(current_device)) return fail(code);
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int priority) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaStreamCreateWithPriority", hold)) return fail(code);
  if (const auto code = device_ready(current_device)) return fail(code);
  auto made = make_stream(current_device, priority);
  *stream = reinterpret_cast<cudaStream_t>(made.get());
  the().streams[made.get()] = std::move(made);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaStreamDestroy", hold)) return fail(code);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = device_ready(object->device)) return fail(code);
  object->destroyed = true;  // what is queued is finished
  if (object->queue.empty() && !object->busy) object->ending = true;
  the().changed.notify_all();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaStreamQuery", hold)) return fail(code);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = device_ready(object->device)) return fail(code);
  if (object->capture != nullptr) return fail(refuse_capture(*object));
  return fail(idle(*object) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaStreamSynchronize", hold)) return fail(code);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = device_ready(object->device)) return fail(code);
  if (object->capture != nullptr) return fail(refuse_capture(*object));
  block(hold, [&] { return idle(*object); });
  return fail(device_ready(object->device));
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaStreamGetDevice", hold)) return fail(code);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  *device = object->device;
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaStreamGetPriority", hold)) return fail(code);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  *priority = object->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaStreamWaitEvent", hold)) return fail(code);
  const auto object = find(stream);
  const auto of = find(event);
  if (!object || !of) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = usable(*object)) return fail(code);
  if (const auto [taken, code] = capture_wait(object, *of); taken) return fail(code);
  // What was recorded last by now counts, also if the event is recorded again later.
  push(*object, wait_for(of->last));
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaLaunchHostFunc", hold)) return fail(code);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = usable(*object)) return fail(code);
  push(*object, [function, argument](lock& held) {
    held.unlock();
    function(argument);
    held.lock();
  });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaEventCreateWithFlags", hold)) return fail(code);
  if (const auto code = device_ready(current_device)) return fail(code);
  const bool timed = (flags & cudaEventDisableTiming) == 0;
  if (timed) {
    if (const auto code = enter(fake_gpu::make_timing_event, hold)) return fail(code);
  }
  auto made = std::make_shared<event_object>();
  made->device = current_device;
  made->generation = at(current_device).generation;
  made->timed = timed;
  *event = reinterpret_cast<cudaEvent_t>(made.get());
  the().events[made.get()] = std::move(made);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaEventDestroy", hold)) return fail(code);
  const auto object = find(event);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  the().graveyard.push_back(object);
  the().events.erase(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaEventRecord", hold)) return fail(code);
  const auto object = find(stream);
  const auto of = find(event);
  if (!object || !of) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = usable(*object)) return fail(code);
  if (object->device != of->device) return fail(cudaErrorInvalidResourceHandle);
  of->capture = object->capture;
  if (object->capture != nullptr) {
    capture_record(*object, *of);
    return cudaSuccess;
  }
  of->last = std::make_shared<mark>();
  push(*object, [target = of->last, timed = of->timed](lock&) {
    target->reached = true;
    target->when = std::chrono::steady_clock::now();
    if (timed) ++the().calls["timing events that are reached"];
  });
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaEventElapsedTime", hold)) return fail(code);
  const auto first = find(start);
  const auto last = find(end);
  if (!first || !last || first->device != last->device) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (const auto code = device_ready(first->device)) return fail(code);
  for (const auto& one : {first, last}) {
    if (!one->timed || !one->last) return fail(cudaErrorInvalidResourceHandle);
    if (!one->last->reached) return fail(cudaErrorNotReady);
  }
  *milliseconds =
      std::chrono::duration<float, std::milli>(last->last->when - first->last->when).count();
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaEventQuery", hold)) return fail(code);
  if (const auto code = check_safe()) return fail(code);
  const auto object = find(event);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = device_ready(object->device)) return fail(code);
  if (object->capture != nullptr) return fail(capture_query(*object));
  return fail(!object->last || object->last->reached ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaMalloc", hold)) return fail(code);
  if (const auto code = check_safe()) return fail(code);
  if (const auto code = device_ready(current_device)) return fail(code);
  wait_for_device(hold, current_device);
  return fail(allocate(memory, bytes, current_device, cudaMemoryTypeDevice));
}

cudaError_t cudaFree(void* memory) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaFree", hold)) return fail(code);
  if (const auto code = check_safe()) return fail(code);
  if (memory == nullptr) return cudaSuccess;
  allocation* found = find(memory);
  if (found == nullptr || found->freed || found->address != memory) {
    return fail(cudaErrorInvalidValue);
  }
  if (const auto code = device_ready(found->device)) return fail(code);
  wait_for_device(hold, found->device);
  forget(*found);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaMallocAsync", hold)) return fail(code);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = usable(*object)) return fail(code);
  if (object->capture != nullptr) return fail(cudaErrorNotSupported);  // not in the double
  return fail(allocate(memory, bytes, object->device, cudaMemoryTypeDevice));
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaFreeAsync", hold)) return fail(code);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = usable(*object)) return fail(code);
  allocation* found = find(memory);
  // A graph frees only what it has allocated.
  if (found == nullptr || found->freed || found->device != object->device ||
      object->capture != nullptr) {
    return fail(cudaErrorInvalidValue);
  }
  push(*object, [memory](lock&) {
    if (allocation* one = find(memory)) forget(*one);
  });
  return cudaSuccess;
}

cudaError_t cudaMallocManaged(void** memory, size_t bytes, unsigned int) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaMallocManaged", hold)) return fail(code);
  if (const auto code = check_safe()) return fail(code);
  if (const auto code = device_ready(current_device)) return fail(code);
  wait_for_device(hold, current_device);
  return fail(allocate(memory, bytes, current_device, cudaMemoryTypeManaged));
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned int) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaHostAlloc", hold)) return fail(code);
  if (const auto code = check_safe()) return fail(code);
  if (const auto code = device_ready(current_device)) return fail(code);
  wait_for_device(hold, current_device);
  return fail(allocate(memory, bytes, current_device, cudaMemoryTypeHost));
}

cudaError_t cudaFreeHost(void* memory) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaFreeHost", hold)) return fail(code);
  if (const auto code = check_safe()) return fail(code);
  allocation* found = find(memory);
  if (found == nullptr || found->freed) return fail(cudaErrorInvalidValue);
  if (const auto code = device_ready(found->device)) return fail(code);
  wait_for_device(hold, found->device);
  forget(*found);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* result, const void* pointer) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaPointerGetAttributes", hold)) return fail(code);
  if (const auto code = device_ready(current_device)) return fail(code);
  if (pointer == nullptr) return fail(cudaErrorInvalidValue);
  const allocation* found = find(pointer);
  *result = cudaPointerAttributes();
  result->device = -1;
  if (found == nullptr || found->freed) return cudaSuccess;
  result->type = found->type;
  result->device = found->device;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t stream) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaMemcpyAsync", hold)) return fail(code);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = usable(*object)) return fail(code);
  return fail(queue_copies(hold, object, {{to, from, bytes}}));
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaMemcpyPeerAsync", hold)) return fail(code);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = usable(*object)) return fail(code);
  for (const int device : {to_device, from_device}) {
    if (const auto code = device_ready(device)) return fail(code);
  }
  for (const void* end : {static_cast<const void*>(to), from}) {
    const allocation* found = find(end);
    if (found == nullptr || found->freed) return fail(cudaErrorInvalidValue);
  }
  push(*object, [=, device = object->device](lock& held) {
    char* const target = touch(to, bytes, to_device);
    const char* const source = touch(from, bytes, from_device);
    if (target == nullptr || source == nullptr) return break_now(device, cudaErrorIllegalAddress);
    held.unlock();
    std::memcpy(target, source, bytes);
    held.lock();
  });
  return cudaSuccess;
}

#if CUDART_VERSION >= 12080
#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* bytes,
                                 size_t count, struct cudaMemcpyAttributes* attributes,
                                 size_t* first, size_t attribute_count, cudaStream_t stream) {
  size_t* const failed = nullptr;
#else
cudaError_t cudaMemcpyBatchAsync(void** to, void** from, size_t* bytes, size_t count,
                                 struct cudaMemcpyAttributes* attributes, size_t* first,
                                 size_t attribute_count, size_t* failed, cudaStream_t stream) {
#endif
  lock hold(the().mutex);
  if (failed != nullptr) *failed = SIZE_MAX;  // no copy of its own has failed
  if (const auto code = enter("cudaMemcpyBatchAsync", hold)) return fail(code);
  if (stream == nullptr || stream == cudaStreamLegacy) return fail(cudaErrorInvalidValue);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = usable(*object)) return fail(code);
  if (object->capture != nullptr) return fail(refuse_capture(*object));
  if (count == 0 || attribute_count == 0 || attribute_count > count || first[0] != 0) {
    return fail(cudaErrorInvalidValue);
  }
  for (std::size_t i = 0; i < attribute_count; ++i) {
    const bool ordered = i == 0 || (first[i] > first[i - 1] && first[i] < count);
    const bool known = attributes[i].srcAccessOrder >= cudaMemcpySrcAccessOrderStream &&
                       attributes[i].srcAccessOrder <= cudaMemcpySrcAccessOrderAny;
    if (!ordered || !known) return fail(cudaErrorInvalidValue);
  }
  std::vector<piece> pieces;
  for (std::size_t i = count; i-- > 0;) {  // in no order that anybody can rely on
    if (bytes[i] == 0) {
      if (failed != nullptr) *failed = i;
      return fail(cudaErrorInvalidValue);
    }
    pieces.push_back({to[i], from[i], bytes[i]});
  }
  return fail(queue_copies(hold, object, std::move(pieces)));
}
#endif

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  lock hold(the().mutex);
  if (const auto code = enter("cudaMemsetAsync", hold)) return fail(code);
  const auto object = find(stream);
  if (!object) return fail(cudaErrorInvalidResourceHandle);
  if (const auto code = usable(*object)) return fail(code);
  if (find(to) == nullptr) return fail(cudaErrorInvalidValue);
  push(*object, [=, device = object->device](lock&) {
    char* const target = touch(to, bytes, device);
    if (target == nullptr) return break_now(device, cudaErrorIllegalAddress);
    std::memset(target, value, bytes);
  });
  return cudaSuccess;
}

}  // extern "C"
