// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Device memory in MPI's verbs: where this is included, the verbs of `collectives/` and `p2p/`
/// take `device::vector` and `device::span` in place of some or all buffers. Which rank has its
/// data where is nobody else's affair. Declares nothing where there is no <cuda_runtime.h>.
///
///     co_await cohort::all_reduce(world, gradient, cohort::op::sum);
///     co_await cohort::send(world, device_halo, right, 7);
///
/// By default (`device_memory::staged`) the data go through pinned memory of the same size. What
/// the stream of a buffer has queued when the call is made comes first, and the result is in device
/// memory when the operation ends, so what is queued on that stream then sees it. The loop is not
/// blocked. A collective that waits for its data holds those of the host that are started after it
/// on the same communicator, so that all ranks post in one order. A message is posted when its
/// data, or the memory for it, is there: so of two messages to one rank with one tag that are under
/// way at the same time either may come first. Of a message that is shorter than the buffer only
/// its bytes are written. With `device_memory::cuda_aware` MPI is given the pointers when the
/// stream has come so far, but for averages, functions of the user and reduce_scatter in place,
/// where host code touches the data. A communicator's backend is not asked.
///
/// *Completion*: that of the verb; device vectors that were moved in come back. *Cancellation*: of
/// a receive, it is given up; else terminal, with `device::vector` and owned buffers: the awaiter
/// leaves, MPI goes on with the pinned memory, and no result is written. A borrowed `device::span`
/// must stay, so then it is ignored. *Errors*: those of the verb; errc::not_supported with
/// `device_memory::refused`; errc::device_ordered with `cuda_aware` while NCCL has the device;
/// CUDA's codes. What fails on this rank before MPI has its data leaves the other ranks waiting, as
/// any failing post does. *Cost*: pinned memory of the buffers' sizes, two copies, and two waits
/// for the device. *Source*: docs/design/gpu.md.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/collectives.hpp>
#include <cohort/comm/staged/body.hpp>
#include <cohort/device/carrier.hpp>
#include <cohort/p2p.hpp>

#endif
