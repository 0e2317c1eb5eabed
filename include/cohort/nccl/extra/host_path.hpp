// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The part of an elected reduction that MPI does: between nodes, or because NCCL cannot.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/nccl/backend/elected_work.hpp>
#include <cohort/progress/look_task.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace cohort::nccl {

/// Of one backend. Such an operation has two parts in the queue of the device. Between them it
/// holds all that was elected later.
///
/// 1. The first part reduces within the node, or only packs.
/// 2. Its pack goes through pinned memory, piece by piece, and MPI reduces it there.
/// 3. The second part broadcasts within the node, and unpacks.
class host_path {
 public:
  explicit host_path(device_plane& plane) noexcept : plane_(plane) {}

  /// Why MPI cannot reduce that; empty: it can.
  [[nodiscard]] static std::string not_of_mpi(const comm::device_call& what);
  [[nodiscard]] bool takes(const comm::device_call& what) const noexcept;
  [[nodiscard]] bool is_busy() const noexcept { return busy_ != nullptr; }
  /// For reports: what holds this one up in it, or nothing; and what holds up those behind.
  [[nodiscard]] std::string what_holds(const elected_work& op) const;
  [[nodiscard]] std::string in_words() const;
  /// It is about to be queued, as the first part.
  void begin(elected_work& op) noexcept {
    op.stage_ = elected_work::stage::within_node;
    busy_ = &op;
  }
  /// The first part is over. In a look.
  void go_between(elected_work& op);
  void forget(const elected_work& op) noexcept {
    if (busy_ == &op) busy_ = nullptr;
  }
  /// After a failure what MPI has of it may never end: who waited for that, to be told.
  [[nodiscard]] std::optional<comm::backend_completion> give_up();

 private:
  /// One reduction of MPI, in a piece.
  struct reduction {
    std::size_t offset;
    std::size_t count;
    MPI_Datatype type;
    MPI_Op operation;
    int root;  // -1: all get the result
  };
  /// Of a pack, what is copied to the host and back at a time.
  struct piece {
    std::byte* at;
    std::size_t bytes;
    std::vector<reduction> parts;
  };
  [[nodiscard]] std::vector<piece> pieces_of_runs(const elected_work& op) const;
  [[nodiscard]] std::vector<piece> pieces_of_tensors(const elected_work& op) const;
  [[nodiscard]] progress::look_task<> reduce(std::vector<piece> pieces, cohort::communicator over);
  [[nodiscard]] progress::look_task<> reduce_piece(const piece& one, cohort::communicator over);
  void come_back(elected_work& op, std::exception_ptr why);

  device_plane& plane_;
  elected_work* busy_ = nullptr;
};

}  // namespace cohort::nccl

#endif
