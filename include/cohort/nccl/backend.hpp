// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::nccl::backend`: lets a coordinator run named operations on device memory over NCCL.
///
/// \code
/// cohort::coordinator coord(world, cohort::nccl::backend());
/// cohort::device::stream compute;
/// cohort::device::vector<float> gradient(1000, compute);
/// co_await coord.all_reduce("gradient", gradient, cohort::op::average);
/// co_await coord.shutdown();
/// \endcode

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/nccl/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace cohort::nccl {

/// Whether kernels are compiled at run time. They fill and empty packs, and do what NCCL cannot:
/// scale factors, averages to which not all ranks bring data, 16 bits on the wire, neutral
/// elements.
enum class kernel_use : std::uint8_t {
  automatic,  ///< where NVRTC is found; elsewhere as `off`
  off,        ///< a batch of copies, and host code in the order of the stream
  required,   ///< if a rank cannot have them, all ranks get an error
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

  /// Whether MPI does a part of some reductions.
  [[nodiscard]] bool uses_mpi() const noexcept { return hierarchical || host_path; }
};

/// What a backend for these options is, with all extras. See backend/device_plane.hpp.
[[nodiscard]] std::shared_ptr<comm::device_backend> make_device_plane(
    const backend_options& options);

/// What a coordinator on devices is given: `coordinator coord(world, nccl::backend());`.
///
/// Each coordinator makes an NCCL communicator of its own over its ranks, one device each, and for
/// each process set another one. From then until it has closed it *holds* the device: verbs of
/// other communicators of this library end there with errc::device_ordered, because only one order
/// of launches, the elected one, is the same on all ranks.
///
/// Tensors that are elected together are packed on a second stream while the pack before is being
/// reduced, and unpacked on a third. Packs lie in two buffers of device memory, which grow with the
/// largest pack. Types and reductions are those of the direct verbs.
///
/// *Errors*: as with make_communicator, on every operation of every rank: rank_error with
/// errc::no_device, errc::wrong_device, mismatch_error. A failure of NCCL or of the device closes
/// the coordinator on all ranks with data_error.
class backend {
 public:
  backend() {}
  explicit backend(const backend_options& options) : options_(options) {}
  /// On the device and with the options of a communicator, which is not changed. Throws
  /// error(errc::not_supported) where that has several devices in a process.
  explicit backend(const communicator& like) {
    if (!like) throw cohort::error(errc::invalid_communicator, "nccl::backend");
    if (like.size() != like.state()->mpi.size()) {
      throw cohort::error(errc::not_supported,
                          "nccl::backend: a coordinator has one device in each process");
    }
    options_.communicator = like.state()->options;
    options_.communicator.device = like.device();
  }
  [[nodiscard]] std::shared_ptr<comm::device_backend> make_device_backend() const {
    return make_device_plane(options_);
  }

 private:
  backend_options options_;
};

}  // namespace cohort::nccl

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/nccl/backend/device_plane.ipp>
#include <cohort/nccl/extra/install.ipp>
#endif

#endif
