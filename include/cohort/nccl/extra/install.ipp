// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The backend that programs get: one with all extras. Body of `nccl/backend.hpp`.
///
/// The room `extra` has what a backend, or a program, may do without. Operations and communicators
/// enter it from `backend` and `life`; memory, graphs and times leave it. The core knows none of
/// these classes, but the interfaces of `backend/extras.hpp`: to remove an extra, delete its file
/// and its lines here.

#include <cohort/device/nvtx.hpp>
#include <cohort/nccl/backend.hpp>
#include <cohort/nccl/backend/device_plane.hpp>
#include <cohort/nccl/extra/captured_graph.hpp>
#include <cohort/nccl/extra/fusion_arenas.ipp>
#include <cohort/nccl/extra/host_path.hpp>
#include <cohort/nccl/extra/pack_kernels.hpp>
#include <cohort/nccl/extra/stage_times.hpp>

#include <memory>
#include <string>

namespace cohort::nccl {

class full_device_plane final : public device_plane {
 public:
  explicit full_device_plane(const backend_options& options)
      : device_plane(options), arenas_(*this), host_(*this) {
    extras_.arenas = &arenas_;
    if (options.uses_mpi()) extras_.host = &host_;
    extras_.times = &times_;
    extras_.make_graph = [](const std::string& name, int device) -> std::shared_ptr<call_graph> {
      return std::make_shared<captured_calls>(name, device);
    };
    extras_.load_kernels = [](int device, const std::string& nvrtc) {
      return std::shared_ptr<const move_kernels>(pack_kernels::of_device(device, nvrtc));
    };
    device::attach_tools();  // before the first operation is submitted
  }

 private:
  fusion_arenas arenas_;
  host_path host_;
  stage_times times_;
};

COHORT_INLINE std::shared_ptr<comm::device_backend> make_device_plane(
    const backend_options& options) {
  return std::make_shared<full_device_plane>(options);
}

}  // namespace cohort::nccl
