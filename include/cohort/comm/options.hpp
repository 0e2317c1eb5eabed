// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What a communicator is made with, and what it tells of itself.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace cohort {

/// How much a communicator verifies. Each level includes the ones before.
enum class checks : std::uint8_t {
  local,   ///< arguments that this rank alone can judge; costs nothing measurable
  bounds,  ///< receives look at the message's size before they take it; one probe each
  /// Each collective first compares sizes, types and roots; one small all_reduce each. With
  /// `cohort/staging.hpp` it also asks CUDA whether buffers of the host are that.
  cross_rank
};

/// What happens when a deadline passes over a collective that MPI cannot give up.
enum class on_deadline : std::uint8_t {
  report,  ///< name it in the log and wait on
  abort    ///< name it and end the job
};

/// What MPI's verbs do with buffers in device memory (`cohort/staging.hpp`).
enum class device_memory : std::uint8_t {
  staged,      ///< they go through pinned memory of the host
  cuda_aware,  ///< this MPI takes pointers into device memory; it cannot be asked whether it does
  refused      ///< they are an error
};

/// Who does the collectives of a communicator whose backend nobody sets.
enum class backend_choice : std::uint8_t {
  environment,  ///< as `COHORT_BACKEND` says: one of the next four, `auto` where it is not set
  mpi,
  /// Shared memory, if all ranks are on one node, want the same, and construct the communicator, or
  /// call `cohort::run`, in a file that includes <cohort/shm.hpp>, in a program without
  /// <cohort/staging.hpp>; else MPI. The sixteenth collective begins to open it, and MPI does what
  /// is started until all ranks have it: nothing waits. What was chosen is logged, and in
  /// communicator::stats(). Of a single rank, collectives that block are MPI's blocking calls,
  /// which wait for nobody.
  ///
  /// Coordinators and process sets whose ranks are on several nodes use shared memory on each and
  /// messages between them. A communicator's own verbs do not: these messages go on only while the
  /// engine looks, so a rank that starts a collective and then blocks in MPI would stop the others,
  /// which MPI's collectives do not.
  automatic,
  shm,  ///< the same, but nothing over several nodes
  /// The same, and a communicator that is constructed over several nodes does its own verbs so too:
  /// its constructor opens it. Communicators that are made from it do not.
  hierarchical,
  /// MPI's blocking calls, for codes whose ranks all block anyhow: the fastest that MPI has, as an
  /// all_reduce of few bytes takes a third of the nonblocking one. Each collective that a backend
  /// may take stays in MPI until it is over, whatever its token; the others are as ever. With
  /// `blocking` so do send and receive, where nothing is in flight on this loop. Until then this
  /// thread looks after nothing else, timers and op::adasum included, so leave nothing in flight
  /// that another rank needs before it makes the same call. At `thread_level::serialized` no lock
  /// is held meanwhile: the program promises that no other thread calls MPI then, nor runs a loop
  /// of the library. Communicators over two groups, and those with more than `checks::local`, are
  /// as ever.
  mpi_blocking
};

/// Must be equal on all ranks of the communicator, but for `device_memory`, `shared_memory` and
/// `node`.
struct communicator_options {
  cohort::checks checks = cohort::checks::local;
  cohort::on_deadline on_deadline = cohort::on_deadline::report;
  cohort::device_memory device_memory = cohort::device_memory::staged;
  /// With `checks::cross_rank` it is MPI.
  cohort::backend_choice backend = cohort::backend_choice::environment;
  /// Bytes of memory that this process may have for backends which it chooses, all together, when
  /// it opens that of this communicator. Where that would need more, MPI does the collectives, on
  /// all ranks. Empty: `COHORT_SHM_MEMORY`, or 64 MiB.
  std::optional<std::size_t> shared_memory = std::nullopt;
  /// A number for the node of this rank, to try several on one machine; negative: as it is.
  int node = -1;
};

namespace comm {

/// What one of the ways has been given that data can go: MPI, a backend, a device.
struct path_statistics {
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;

  void add(std::size_t moved) noexcept {
    ++operations;
    bytes += moved;
  }
};

}  // namespace comm

/// What a communicator has started on this rank since it was made.
struct communicator_statistics {
  std::uint64_t operations = 0;      ///< collectives, messages and all else of users
  comm::path_statistics by_backend;  ///< those that a backend took; MPI did the others
  std::string backend;               ///< its name; empty: there is none, or not yet
};

}  // namespace cohort
