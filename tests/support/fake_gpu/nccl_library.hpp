// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the calls of NCCL's double are made of: its state, jobs and groups. Not for tests.

#include "support/fake_gpu/internal.hpp"
#include "support/fake_gpu/nccl_internal.hpp"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fake_nccl {

namespace internal = fake_gpu::internal;
using clock = std::chrono::steady_clock;
using lock = std::unique_lock<std::mutex>;
using shared_communicator = std::shared_ptr<communicator>;

/// Something in progress. `step` is asked again and again until it has a result.
struct job {
  std::vector<shared_communicator> of;
  std::function<std::optional<ncclResult_t>()> step;
  bool launches = false;
  bool stalled = false;
  clock::time_point not_before;
  std::optional<ncclResult_t> result;
};

struct library {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const void*, shared_communicator> communicators;
  std::vector<shared_communicator> graveyard;  // so that no handle's address is used again
  std::vector<std::shared_ptr<job>> jobs;
  std::thread launcher;
  bool stopping = false;
  bool swept = false;
  bool held = false;
  int blocked = 0;
  int version = NCCL_VERSION_CODE;
  std::string host;
  std::mt19937_64 random{1};
  unsigned least_delay = 100;
  unsigned most_delay = 1000;
  std::vector<std::string> launched;
  std::map<std::string, std::pair<ncclResult_t, int>> failures;
  std::map<std::string, std::uint64_t> calls;
  std::set<std::string> stalling;
  struct registration {
    std::weak_ptr<communicator> of;
    const char* memory;
    std::size_t bytes;
  };
  std::map<const void*, registration> registered;  // by handle
  std::uint64_t in_registered_memory = 0;          // calls
  std::uint64_t handles = 0;
};

/// Texts of errors have a lock of their own, because kernels write them.
struct error_texts {
  std::mutex mutex;
  std::string last;
  std::map<const communicator*, std::string> of;
};

struct posted {
  shared_communicator of;
  operation what;
  cudaStream_t stream;
};

struct group_of_thread {
  int depth = 0;
  bool stalled = false;
  ncclResult_t error = ncclSuccess;
  std::vector<posted> operations;
  std::vector<std::shared_ptr<job>> makings;
  std::vector<shared_communicator> endings;  // destroyed or aborted
};

library& the();
error_texts& texts();
extern thread_local group_of_thread group;

/// Keeps the text for `ncclGetLastError`.
ncclResult_t fail(ncclResult_t code, const std::string& text);

/// What every call begins with: it is counted, and may be made to fail.
ncclResult_t enter(const char* function, lock&);

/// The communicator behind a handle, or null and a fault.
shared_communicator find(ncclComm_t handle);

/// Nothing may be called for a device while something of it is in progress that launches.
void check_order(const char* function, int device);
ncclResult_t ensure_ready(const communicator& of);

/// Whether no collective of this process runs or waits on the device.
bool device_idle(int device);

/// Opens the shared memory and takes the place of the rank there.
ncclResult_t attach(communicator& of);
/// Null until all are there.
std::optional<ncclResult_t> joined(communicator& of);
ncclResult_t read_config(communicator& of, const ncclConfig_t* config);

ncclResult_t make(lock& hold, const char* function, ncclComm_t* comm, int ranks, ncclUniqueId id,
                  int rank, const ncclConfig_t* config);
std::shared_ptr<job> finalizing(const shared_communicator& of);
ncclResult_t ended_by(lock& hold, const char* function, ncclComm_t comm, bool abort);

ncclResult_t end_group(lock& hold);

/// A call by itself is a group of one.
template <class Call>
ncclResult_t grouped(lock& hold, Call call) {
  ++group.depth;
  const ncclResult_t code = call();
  if (code != ncclSuccess && group.error == ncclSuccess) group.error = code;
  const ncclResult_t ended = end_group(hold);
  return code != ncclSuccess ? code : ended;
}

}  // namespace fake_nccl
