// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the double of NCCL needs of the double of CUDA's runtime. Not for tests.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fake_gpu::internal {

/// Called by restart() when all streams have ended.
void at_restart(void (*function)());

[[nodiscard]] int current();
void make_current(int device);

/// What a call for the device answers.
[[nodiscard]] cudaError_t state(int device);
[[nodiscard]] std::uint32_t generation(int device);
[[nodiscard]] std::int64_t bus_id(int device);

/// Negative if it is no stream.
[[nodiscard]] int device_of(cudaStream_t stream);

/// Until it is taken back, work that the program queues in the stream is a fault.
void announce(cudaStream_t stream, int change);

/// Makes the kernel of one launch of a graph, which has a number; of a stream that is not captured,
/// 0. Called with the double of CUDA's runtime locked.
using kernel_of_launch = std::function<std::function<void()>(std::uint64_t launch)>;

/// Queues without being counted as the program's work. False if the stream cannot take it.
bool enqueue(cudaStream_t stream, const kernel_of_launch& make);

/// Which capture takes what is queued there, or null.
[[nodiscard]] const void* capture_of(cudaStream_t stream);

/// Whether collectives have their device to themselves.
[[nodiscard]] bool occupies();

// For kernels.

/// Whether the stream ends or the device is broken.
[[nodiscard]] bool must_end();

/// Waits its turn; false if it must end.
[[nodiscard]] bool take_multiprocessors();
void give_multiprocessors();

// What the program did wrong.
void fault(std::string text);
[[nodiscard]] std::vector<std::string> faults();
void clear_faults();

}  // namespace fake_gpu::internal
