// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Starts of a persistent group that capture it, or replay what was captured.

#include <cohort/comm/device_backend.hpp>
#include <cohort/coordinator/data/device_calls.hpp>
#include <cohort/coordinator/persistent_group.hpp>
#include <cohort/coordinator/sets/set_view.hpp>
#include <cohort/protocol/validation.hpp>

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace cohort::coordination {

template <class Any>
class persistent_state;

/// One start of a group that is a capture or a replay, which must be the same on all ranks. Its
/// task enters, with a captured_state as its context; it leaves with the graph, and with a
/// signature that says what it is.
template <class Any>
class group_capture {
 public:
  group_capture(negotiation<Any>& log, const persistent_state<Any>& group, task& one) noexcept
      : log_(log), group_(group), one_(one) {}

  /// Why no rank can do this with the group, or null. With the guard held.
  [[nodiscard]] std::exception_ptr refused() const {
    if (!group_.device_) return problem(errc::not_supported, "it is in memory of the host");
    if (one_.device->use != comm::device_use::capture || log_.faults.broken ||
        log_.sets.whole().left || log_.faults.any()) {
      return nullptr;
    }
    comm::device_call what;
    coordination::describe(what, one_, group_.view_.rank());
    what.set = group_.view_.place.set;
    what.use = comm::device_use::capture;
    for (tensor& each : what.tensors) each.divisor = group_.view_.size();
    const std::string why = log_.device->refuses(what);
    return why.empty() ? nullptr : problem(errc::not_supported, why);
  }
  /// Says in the signature what the `number`-th start of the group is. Where this rank cannot do
  /// it, the task fails. Throws what a backend throws that makes a graph.
  void describe(std::uint64_t number, protocol::signature& sig) const {
    device_part& part = *one_.device;
    auto* const its = static_cast<captured_state*>(std::exchange(one_.context, nullptr));
    sig.detail = 1;
    if (part.use == comm::device_use::replay) {
      if (its == nullptr || !its->graph || its->group.lock().get() != &group_) {
        return one_.fail(
            problem(errc::invalid_argument, "what is to be replayed was not captured of it"));
      }
      sig.detail = 1 + its->start;
      part.graph = its->graph;
      const comm::device_buffer* const span = part.without_order();
      if (span == nullptr) return;
      return one_.fail(problem(errc::invalid_argument, std::string(span->field) + lacks_order));
    }
    part.ends = until::complete;
    its->group = group_.weak_from_this();
    its->start = number;
    its->graph = log_.device->make_graph("the graph of persistent group '" + group_.text_ + "'");
    part.graph = its->graph;
    if (part.graph) return;
    one_.fail(problem(errc::not_supported, std::string(log_.device->name()) + " captures nothing"));
  }

 private:
  [[nodiscard]] std::exception_ptr problem(errc code, const std::string& why) const {
    const bool replays = one_.device->use == comm::device_use::replay;
    return std::make_exception_ptr(
        error(code, "rank " + std::to_string(group_.view_.rank()) + ": " +
                        (replays ? "replay" : "capture") + " of persistent group '" + group_.text_ +
                        "' of " + protocol::element_name(group_.sig_) + ": " + why));
  }

  negotiation<Any>& log_;
  const persistent_state<Any>& group_;
  task& one_;
};

}  // namespace cohort::coordination
