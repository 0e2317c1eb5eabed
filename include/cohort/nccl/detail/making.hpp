// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What is made, split and ended by `detail/communicator.ipp`.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/asio.hpp>
#include <cohort/nccl/source.hpp>
#include <cohort/progress/look_task.hpp>

#include <utility>
#include <vector>

namespace cohort::nccl {
class communicator;
}

namespace cohort::nccl::detail {

/// What a process is to make: communicators of its devices, and their places in the queues.
struct making {
  communicator_options options;
  std::vector<int> devices;
  std::vector<turn> places;
  bool several = false;  // the ranks may bring different numbers of devices
  ncclComm_t theirs = nullptr;
  problem bad;  ///< here, before anything has been asked; it takes part, so that all hear of it
  const void* orderer = nullptr;
};

// See detail/communicator.ipp.

progress::look_task<std::vector<communicator>> make_all(cohort::communicator world, making what);
/// One device.
making one_device(communicator_options options, int device, turn place, ncclComm_t theirs = nullptr,
                  problem bad = {}, const void* orderer = nullptr);
/// The device of the options, or -1 where there is none: that is told to all ranks then.
int device_for(int wanted);
turn place_for(const cohort::communicator& world, int device);
progress::look_task<std::vector<communicator>> split(communicator parent, int color, int key,
                                                     turn place);
asio::awaitable<void> finalize(communicator which);
asio::awaitable<void> abort(communicator which);

}  // namespace cohort::nccl::detail

#endif
