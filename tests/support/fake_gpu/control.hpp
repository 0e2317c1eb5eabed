// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How the double of CUDA's runtime behaves, and how a test makes it fail.
///
/// It is a double and no GPU. What it takes over from the real one:
/// - Every stream is a queue with a thread of its own, so it goes on while nobody looks at it.
/// - Device memory is mapped without access; host code that touches it faults. Work in a stream
///   uses another mapping, that `access` gives to test "kernels".
/// - `cudaMalloc`, `cudaFree`, `cudaHostAlloc` and `cudaFreeHost` wait for all streams of the
/// device;
///   `cudaMallocAsync` and `cudaFreeAsync` do not. A copy with pageable memory waits for itself.
/// - An event belongs to a device; recording it in a stream of another one fails. So does freeing
///   memory in a stream of another device, and work there that touches it breaks the device.
/// - A sticky error answers every later call for the device, and what is queued never runs.
/// - `cudaDeviceReset` invalidates streams, events and memory of the device.
/// - A capture takes what its streams are given, and does nothing. Streams that wait for its events
///   join it and must come back. What CUDA forbids meanwhile spoils it: waiting and asking for its
///   streams, events from outside or of another capture, and in the modes that say so
///   `cudaEventQuery`, `cudaMalloc` and its kin from a thread that is not in relaxed mode. Events
///   recorded in a capture cannot be asked for.
/// - An executable graph has a stream for each captured one, so what it does not order runs at the
///   same time. Its launches come one after another.
/// - `cudaMemcpyBatchAsync` refuses the legacy default stream, a stream that is captured, and
///   attributes that CUDA's documentation forbids; its copies are in another order than in the
///   list.
/// - Kernels that are compiled at run time are those of the library, compiled for the host from the
///   same text (fake_kernels.cpp); an image with another text is refused. Loading a module, and the
///   first launch of a kernel that was not loaded before, wait for the device. A launch copies its
///   argument, and does not begin while a collective has the device; what touches memory that is
///   not the device's, or is misaligned, breaks it. Threads run one after another.
/// - Every failing call sets the thread's last error, "not ready" too. Without a driver it stays,
/// and
///   the number of devices is not written (seen with libcudart 13.0 on a machine that has none).
///
/// Where it differs: it is stricter than hardware about memory that was freed (work on it breaks
/// the device, where hardware may well get away with it), about empty copies in a batch, and about
/// the device of memory that is copied; the legacy default stream orders itself with no other
/// stream; graphs have no memory of their own and contain no graphs, and an allocation in a
/// captured stream answers `cudaErrorNotSupported`; one context per device and process.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace fake_gpu {

/// Throws everything away, ends the threads, and begins anew with so many devices. Host functions
/// that wait must have been let go before.
void restart(int devices);

/// From now on the number of devices is asked for in vain: 35 for a driver that is too old, say.
void fail_count(cudaError_t code);

/// The `times` next calls of a function, by its name, answer `code` and do nothing.
void fail_next(const char* function, cudaError_t code, int times = 1);

/// How often it was called since restart().
[[nodiscard]] std::uint64_t calls(const char* function);

/// Calls that wait for a device or a stream at this moment.
[[nodiscard]] int blocked_calls();

/// Stops a stream before its next piece of work, as a kernel that hangs would; and lets it go on.
void hold(cudaStream_t stream);
void release(cudaStream_t stream);

/// Every piece of work of the device from now on takes that long more.
void delay(int device, unsigned microseconds);

/// Queues a kernel that breaks the device when the stream gets there.
cudaError_t crash(cudaStream_t stream, cudaError_t code);

/// Breaks the device now.
void break_device(int device, cudaError_t code);

/// Queues a "kernel": `function(argument)` runs on the stream's thread and may use access(). It
/// does not begin while a collective of NCCL has the device.
cudaError_t launch(cudaStream_t stream, cudaHostFn_t function, void* argument);

/// For kernels: where `bytes` at a device's address can be touched. Null, and the device is broken
/// by an illegal address, if this is not memory of the kernel's device.
[[nodiscard]] void* access(void* address, std::size_t bytes);

/// Acts as if the runtime was being unloaded: every call answers `cudaErrorCudartUnloading`.
void unload(bool yes);

/// The bus id of a device. By default that of device `i` is the same in every process, as it is
/// for the devices of one machine.
void set_bus_id(int device, std::int64_t id);

/// The UUID of a device, as that of a part of a GPU (MIG), which has the bus id of the whole. By
/// default it follows the bus id.
void set_uuid(int device, std::int64_t id);

/// Whether a collective of NCCL has its device to itself, as on hardware. Without it tests of
/// crossed orders prove nothing.
void occupy(bool yes);

/// Whether a collective has the device now.
[[nodiscard]] bool occupied(int device);

/// What the program has made and not yet destroyed, but for what a reset has destroyed.
[[nodiscard]] std::size_t live_allocations(int device);
[[nodiscard]] std::size_t live_streams(int device);
[[nodiscard]] std::size_t live_events(int device);

/// Events with timing among them. Making one counts, and fails, as a call of `make_timing_event`.
[[nodiscard]] std::size_t live_timing_events(int device);
inline constexpr const char* make_timing_event = "cudaEventCreateWithFlags with timing";

}  // namespace fake_gpu
