// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::nccl::backend`: lets a coordinator run named operations on device memory over NCCL.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/nccl/backend_options.hpp>
#include <cohort/nccl/communicator.hpp>
#include <cohort/nccl/device_plane.hpp>

#include <memory>

namespace cohort::nccl {

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
  /// On the device and with the options of a communicator, which stays what it is. Throws
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
    return std::make_shared<device_plane>(options_);
  }

 private:
  backend_options options_;
};

}  // namespace cohort::nccl

#endif
