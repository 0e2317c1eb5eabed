// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The communicators that a backend has made for the sets of its coordinator.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/communicator.hpp>
#include <cohort/progress/look_task.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace cohort::nccl {

class device_plane;

/// Of one set.
struct device_set {
  communicator comm;               // empty while it is being made
  communicator node;               // hierarchical, and there are several nodes
  cohort::communicator leaders;    // of the nodes; empty on other ranks
  cohort::communicator everybody;  // for what NCCL cannot reduce, with that option
  std::error_code failed;

  /// A rank may be in a reduction that another will not join. MPI must not use the number of that
  /// communicator again, or what is still on its way is taken for something else.
  void keep_mpi() const {
    if (leaders) leaders.state()->keep();
    if (everybody) everybody.state()->keep();
  }
};

/// Guarded by the lock of the issuing source, but for `open`, `close` and `bring_down`.
class device_sets {
 public:
  explicit device_sets(device_plane& plane) noexcept : plane_(plane) {}

  [[nodiscard]] device_set& operator[](std::uint32_t set) { return all_[set]; }
  [[nodiscard]] const std::map<std::uint32_t, device_set>& all() const noexcept { return all_; }
  /// The place of the opening among the operations is that of the elected order: what was started
  /// before it and cannot be issued yet comes first, on all ranks.
  void open(std::uint32_t set, const cohort::communicator& over,
            std::function<void(std::exception_ptr)> done);
  /// 0: all of them. Those whose last handles are to go without the lock.
  [[nodiscard]] std::vector<device_set> close(std::uint32_t set, bool failed);
  void bring_down(std::error_code why, const std::string& text) const;

 private:
  [[nodiscard]] progress::look_task<device_set> make(cohort::communicator over, turn place,
                                                     turn node_place,
                                                     std::optional<turn> arena_place);
  [[nodiscard]] progress::look_task<> make_node(cohort::communicator node, turn place,
                                                device_set& its);
  void begin(std::uint32_t set, const cohort::communicator& over,
             const std::function<void(std::exception_ptr)>& done);
  void made(std::uint32_t set, device_set its, const std::exception_ptr& why);
  [[nodiscard]] detail::making what_to_make(turn place, detail::problem bad = {}) const;

  device_plane& plane_;
  std::map<std::uint32_t, device_set> all_;
};

}  // namespace cohort::nccl

#endif
