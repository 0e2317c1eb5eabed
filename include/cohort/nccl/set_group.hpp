// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Operations on several devices of a process, posted by one group of NCCL.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/operation.hpp>

#include <concepts>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// One operation for each of several devices, posted together and awaited as one.
///
/// `nccl::set_group both;`
/// `both.add(nccl::all_reduce(gpus[0], s0, g0, op::sum, nccl::in_group));`
/// `both.add(nccl::all_reduce(gpus[1], s1, g1, op::sum, nccl::in_group));`
/// `co_await both.run();`
///
/// Every verb takes `nccl::in_group` in place of a token, and so does `nccl::group::run`, for the
/// messages of one device. At most one operation for each device. They are posted when the queues
/// of all these devices have come to them, so other operations of one of these devices may wait for
/// another device. Buffers are borrowed; a device::vector may go before the group has ended.
///
/// *Completion* of `run`: `void(std::error_code)`, when all have ended, with the first error. If
/// one of them is refused, none is started: errc::invalid_argument for two on one device,
/// errc::invalid_communicator for an empty handle, or what the verb says. *Cancellation*, deadlines
/// and *errors* otherwise: as for a verb. *Source*: `ncclGroupStart`, `ncclGroupEnd`.
class set_group {
 public:
  set_group() {}

  set_group& add(request&& part) & {
    parts_.push_back(std::move(part));
    return *this;
  }
  set_group&& add(request&& part) && {
    parts_.push_back(std::move(part));
    return std::move(*this);
  }

  /// Posts them, once. Takes what every verb takes at its end, but for `in_group`.
  template <class... Tail>
  requires detail::tail_for<void(std::error_code), Tail...> &&
      (!std::same_as<std::remove_cvref_t<Tail>, in_group_t> && ...) auto run(Tail&&... tail) {
    request asked;
    asked.verb = "set_group";
    for (const request& part : parts_) {
      if (!asked.comm) asked.comm = part.comm;
    }
    asked.parts = std::move(parts_);
    return detail::initiate<void(std::error_code)>(std::move(asked), std::tuple<>(),
                                                   std::forward<Tail>(tail)...);
  }

 private:
  std::vector<request> parts_;
};

}  // namespace cohort::nccl

#endif
