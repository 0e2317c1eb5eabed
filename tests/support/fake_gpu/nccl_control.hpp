// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How the double of NCCL behaves, and how a test makes it fail. `fake_gpu::restart` restarts
/// it too.
///
/// Ranks are devices of one process, of several on one node, or both; at most 16. What it takes
/// over from NCCL:
/// - Ranks find each other by the unique id, which can be had without a device. A rank that does
/// not
///   come leaves the others in progress. Other versions and duplicate GPUs (host and bus id; device
///   `i` has the same bus id in every process unless `fake_gpu::set_bus_id` says otherwise) are
///   refused with `ncclInvalidUsage`, on ranks that are not concerned with `ncclRemoteError`.
/// - Collectives are kernels in the order of streams, over the memory of `cudaMalloc` and its kin.
///   A kernel that runs has its device to itself until it is done: other collectives, and kernels
///   of `fake_gpu::launch`, do not begin; copies do. So crossed orders deadlock.
/// - With `config.blocking = 0` and two or more ranks every call answers `ncclInProgress`; a thread
///   launches it later, those that are in progress together in random order. The first collective
///   of a communicator, and the first message of a pair, is launched when the peers have called it
///   too. Blocking communicators wait for all that in the call.
/// - A call for a communicator that is in progress answers `ncclInvalidArgument`.
/// - With one rank collectives launch nothing in place, copy out of place, and are never in
///   progress. Collectives of no elements launch nothing.
/// - A group is one kernel for each communicator: its collectives in order, then its messages
///   together. Creation, finalization and collectives do not mix, nor do blocking and non-blocking
///   communicators. A message ends when it was received.
/// - An abort waits for the communicator's kernels, which end over poisoned data; one that waits
/// for
///   the device goes only when the device is free, so all communicators of a process are aborted in
///   one group. Peers notice nothing. Finalizing waits for kernels and for all ranks; destroying
///   what is not finalized does that in the call. Creation waits for the device's collectives.
/// - A call in a captured stream puts a kernel into the graph, also after the call, which must be
///   before the end of the capture. It runs with each launch of the graph; its place among the
///   communicator's kernels is that of the launch. While the graph is alive, or still captured,
///   finalizing stays in progress and an abort blocks. Streams of one group belong to one capture
///   or to none.
/// - A collective on registered memory must be on it, at the same offset, on all ranks (the same
///   offset only where ranks have no parts of their own). Registering while a collective is on the
///   device, which it might wait for, and freeing what is registered are faults.
/// - After an asynchronous error kernels stay until the abort. A sticky error of the device ends
/// them.
///
/// Where it differs: it is stricter, because it detects what other ranks call and reports a
/// mismatch as asynchronous error with a text, where NCCL hangs or ends with wrong data; a
/// collective has all of the device, where NCCL takes a few multiprocessors; collectives in a group
/// are not sorted by size; ranks reduce in their order, and an average in 16 bits is rounded once.
/// What NCCL only forbids is kept as a fault, for `faults()`.

#include <nccl.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fake_nccl {

/// The `times` next calls of a function, by its name, answer `code` and do nothing.
void fail_next(const char* function, ncclResult_t code, int times = 1);

/// The next call of a function that is in progress stays so until an abort.
void stall_next(const char* function);

/// How often it was called since the restart.
[[nodiscard]] std::uint64_t calls(const char* function);

/// What the program has done that NCCL forbids: calls for any communicator of a device while one is
/// in progress there, unless it finalizes, and work in a stream before the collective that is in
/// progress for it.
[[nodiscard]] std::vector<std::string> faults();
void clear_faults();

/// Cycles of communicators, each of which has a device that the next one before it waits for: "a
/// waits for b waits for c waits for a". Each process that has such a device finds the cycle, in
/// all processes that one `mpiexec` has started.
[[nodiscard]] std::vector<std::string> cycles();

/// Collectives that were called on memory registered for their communicator, since the restart.
[[nodiscard]] std::uint64_t calls_in_registered_memory();

/// Of the order in which communicators in progress are launched, and of delays.
void seed(std::uint64_t value);

/// How long calls stay in progress at least: a random time between these. 100 and 1000 by default.
void launch_delay(unsigned least_microseconds, unsigned most_microseconds);

/// Launches nothing, so that all calls stay in progress, until it is let go.
void hold_launches(bool yes);

/// The names of communicators whose kernels were launched, in that order.
[[nodiscard]] std::vector<std::string> launches();

/// An asynchronous error of a communicator of this process.
void set_async_error(ncclComm_t comm, ncclResult_t code);

/// The next kernel of the communicator never ends; or takes that long more.
void hang_next(ncclComm_t comm);
void delay_next(ncclComm_t comm, unsigned microseconds);

/// What this process tells the others at init from now on. An empty host is the real one, or
/// `NCCL_HOSTID`.
void set_version(int code);
void set_host(std::string name);

/// Calls that wait at this moment: of blocking communicators, aborts, destructions.
[[nodiscard]] int blocked_calls();

/// Kernels that were launched and have not ended; communicators that are not destroyed.
[[nodiscard]] std::uint64_t pending_kernels(ncclComm_t comm);
[[nodiscard]] std::size_t live_communicators();

/// Those that are not destroyed and have so many ranks, for tests that did not make them.
[[nodiscard]] std::vector<ncclComm_t> communicators_of(int ranks);

}  // namespace fake_nccl
