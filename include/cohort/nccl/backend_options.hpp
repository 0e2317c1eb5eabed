// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How a coordinator works on devices.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/state.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace cohort::nccl {

/// Whether kernels are compiled at run time that fill and empty packs, and do what NCCL cannot:
/// scale factors, averages to which not all ranks bring data, 16 bits on the wire, neutral
/// elements.
enum class kernel_use : std::uint8_t {
  automatic,  ///< where NVRTC is found; elsewhere as `off`
  off,        ///< a batch of copies, and host code in the order of the stream
  required,   ///< a rank that cannot is an error on all ranks
};

/// Equal on all ranks, but for the device.
struct backend_options {
  backend_options() {}

  communicator_options communicator;  ///< of the communicators that it makes
  /// Tensors of fewer bytes that are elected together are copied into one buffer and reduced, or
  /// broadcast, by one call of NCCL. Larger ones are not copied.
  std::size_t pack_below = std::size_t{4} << 20U;
  /// all_reduce goes over NCCL within each node and over MPI, through pinned memory, between them.
  /// Its tensors are packed, whatever their size. Other operations go over NCCL alone.
  bool hierarchical = false;
  /// Reductions that NCCL lacks, and those of element types that it lacks, go through pinned memory
  /// and MPI, in their place of the elected order. Otherwise they are refused. Such an operation
  /// holds those behind it until MPI has reduced it, and a host waits, with until::enqueued too.
  bool host_path = false;
  kernel_use kernels = kernel_use::automatic;
  /// NVRTC, by its file or its name, see device::runtime_compiler. Each rank may have its own.
  std::string nvrtc;
  int node = -1;  ///< hierarchical: a number of this rank's node; -1: MPI says who shares memory
};

}  // namespace cohort::nccl

#endif
