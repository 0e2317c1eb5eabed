// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What a backend may do without, as it knows it: the interfaces of the room `nccl/extra`.
///
/// A backend has one of each, or none, and then does not offer what it stands for. They are put in
/// at one place, `extra/install.ipp`: an extra is removed by deleting its file and its line there.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/device/pinned_vector.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/device/vector.hpp>
#include <cohort/nccl/life/state.hpp>
#include <cohort/nccl/source.hpp>
#include <cohort/progress/look_task.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::nccl {

class elected_work;
struct device_set;

/// Memory in which operations run without copies. Called with the lock of the issuing source,
/// unless it says otherwise.
class arena_maker : public comm::device_arenas {
 public:
  /// An operation of the kind `arena_add`. Without the lock.
  virtual void start(comm::device_call& what, comm::backend_completion done) = 0;
  /// See comm::device_backend.
  virtual bool forget(const comm::request_operation& op) = 0;
  /// Whether it lies in memory that NCCL knows on all ranks.
  [[nodiscard]] virtual bool is_registered(const void* data) const = 0;
  /// Whether there are arenas, at this position of the log, that NCCL is told of: a set that is
  /// opened now has a second place in the queue of the device then, for `enlist_all_on`.
  [[nodiscard]] virtual bool are_registered() const noexcept = 0;
  /// Registers all of them on the communicator of a new set.
  [[nodiscard]] virtual progress::look_task<> enlist_all_on(
      std::shared_ptr<communicator_state> comm, turn place) = 0;
};

/// Does a part of a reduction by MPI: between nodes, or because NCCL cannot. Such an operation has
/// two parts in the queue of the device, and goes through here between them. Called with the lock
/// of the issuing source, unless it says otherwise.
class host_reducer {
 public:
  virtual ~host_reducer() = default;
  /// Why it cannot do that reduction; empty: it can. `why` NCCL cannot; null: NCCL can.
  [[nodiscard]] virtual std::string refuses(const comm::device_call& what,
                                            const char* why) const = 0;
  /// Makes what a set needs for that, beside its communicator of NCCL. All ranks of the set come
  /// here; `place` is for a communicator of the node.
  [[nodiscard]] virtual progress::look_task<> open(cohort::communicator over, turn place,
                                                   device_set& its) = 0;
  /// An operation is about to be laid out. If MPI does a part of it, calls `op.go_in_parts`.
  virtual void take(elected_work& op, const device_set& set) = 0;
  /// The first part is over. In a look. Calls `device_plane::come_back` when MPI
  /// has done its part.
  virtual void go_between(elected_work& op) = 0;
  /// For reports: what MPI does of it.
  [[nodiscard]] virtual std::string in_words(const elected_work& op) const = 0;
};

/// Notes when a device did the stages of operations. Called with the lock of the issuing source.
class stage_timer {
 public:
  /// What an operation that is timed has. Its stages follow one another.
  class operation {
   public:
    virtual ~operation() = default;
    virtual void begin(comm::device_stage what, const device::stream& on,
                       std::size_t bytes) noexcept = 0;
    virtual void end(comm::device_stage what, const device::stream& on) noexcept = 0;
  };

  virtual ~stage_timer() = default;
  /// `yes`: from now on, anew. What operations have that were started before is dropped.
  virtual void record(bool yes, int device) noexcept = 0;
  /// For an operation that is about to begin; null where nothing is recorded.
  [[nodiscard]] virtual std::unique_ptr<operation> start(
      const comm::device_call& what) noexcept = 0;
  /// All stages of the operation are on their streams. Returns a number for `forget`.
  virtual std::uint64_t put(std::unique_ptr<operation> one) noexcept = 0;
  /// An operation has failed: drops what was noted of it, by its `number` if it has been put.
  virtual void forget(std::unique_ptr<operation> half, std::uint64_t number) noexcept = 0;
  /// Stages that are over, in the order of their operations. Never waits.
  [[nodiscard]] virtual std::vector<comm::device_span> take() = 0;
};

/// Kernels that fill and empty packs, for one device. Immutable, so any thread may launch.
class move_kernels {
 public:
  /// `count` elements; `from` may be `to`. No `from`: neutral elements.
  struct part {
    const void* from;
    void* to;
    std::size_t count;
  };
  /// What is done to each element. Numbers are scaled, or divided, in the type of the two that has
  /// more bits, those of 16 bits as float; integers truncate toward zero.
  struct change {
    ncclDataType_t from = ncclUint8;
    ncclDataType_t to = ncclUint8;
    double factor = 1;
    std::int64_t divisor = 1;   ///< one of the two is 1
    std::uint64_t neutral = 0;  ///< the bits of an element

    friend bool operator==(const change&, const change&) = default;
  };

  virtual ~move_kernels() = default;
  /// Queues it on `on`. What the kernels read of `parts` is copied now. Parts of no elements are
  /// left out. Throws std::system_error.
  virtual void run(const device::stream& on, const change& how,
                   std::span<const part> parts) const = 0;
};

/// What an operation is captured in, or what has been captured of it. Guarded by the lock of the
/// issuing source, but for its destructor.
class call_graph : public comm::device_graph, public captured {
 public:
  /// What the stream is given from now on becomes the graph.
  virtual void begin() = 0;
  virtual void finish() = 0;
  /// What a replay uses: its share outlives end().
  [[nodiscard]] virtual std::shared_ptr<const void> used() = 0;
  /// Null: it has ended, or there was nothing to capture.
  [[nodiscard]] virtual cudaGraphExec_t native() const noexcept = 0;

  const device::stream stream;
  device::vector<std::byte> memory;                 ///< of packs; freed in the order of the stream
  std::vector<std::shared_ptr<const void>> leases;  ///< on what it reads and writes
  /// For host code in the graph. All graphs of a device share it, for they run one after another.
  std::shared_ptr<device::pinned_vector<std::byte>> staging;
  std::vector<std::shared_ptr<const void>> host_calls;  ///< what that code is given

 protected:
  call_graph(std::string whose, device::stream on)
      : captured(std::move(whose)), stream(std::move(on)) {}
};

/// Makes those of a device, or finds what there is. Takes up to a few seconds, and may wait for
/// whatever the device does. Throws std::system_error.
using kernel_loader = std::shared_ptr<const move_kernels> (*)(int device, const std::string& nvrtc);

/// The extras of one backend.
struct extras {
  arena_maker* arenas = nullptr;
  host_reducer* host = nullptr;
  stage_timer* times = nullptr;
  /// Any thread. Throws std::system_error.
  std::shared_ptr<call_graph> (*make_graph)(const std::string& name, int device) = nullptr;
  kernel_loader load_kernels = nullptr;
};

}  // namespace cohort::nccl

#endif
