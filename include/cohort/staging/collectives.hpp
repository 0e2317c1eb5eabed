// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// MPI's collectives on device memory: `cohort::all_reduce(world, device_vector, op)` and the
/// others.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/collectives.hpp>
#include <cohort/staging/operation.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort {
namespace staging {

/// Who has data that count: every rank, or the root alone on one side.
enum class flow : std::uint8_t { everybody, to_root, from_root };

/// A verb whose buffers come first: `InPlace` is the number of arguments of its form with one
/// buffer, `Out` where the result is in the other form, `Whole` whether all of it is written.
template <std::size_t InPlace, std::size_t Out, flow Flow, bool Whole>
struct collective_verb {
  template <class... Arguments>
  static constexpr bool is_in_place =
      sizeof...(Arguments) <= InPlace
      || std::same_as<std::remove_cvref_t<std::tuple_element_t<0, std::tuple<Arguments...>>>,
                      in_place_t>;

  template <std::size_t I, class... Arguments>
  [[nodiscard]] static constexpr traffic role(bool is_root) noexcept {
    if constexpr (is_in_place<Arguments...>) {
      if (Flow == flow::to_root) return {"buffer", true, is_root};
      if (Flow == flow::from_root) return {"buffer", is_root || !Whole, !is_root};
      return {"buffer", true, true};
    } else if constexpr (I == 0) {
      return {"in", Flow != flow::from_root || is_root, false};
    } else {
      const bool gets = Flow != flow::to_root || is_root;
      return {"out", gets && !Whole, gets};
    }
  }
  /// Whether MPI alone touches the buffers.
  template <class...>
  static constexpr bool can_be_direct = true;
};

struct all_reduce_call : collective_verb<2, 1, flow::everybody, true> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::all_reduce(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::all_reduce(comm, std::forward<Arguments>(arguments)...);
  }
};
struct reduce_call : collective_verb<3, 1, flow::to_root, true> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::reduce(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::reduce(comm, std::forward<Arguments>(arguments)...);
  }
};
struct scan_call : collective_verb<2, 1, flow::everybody, true> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::scan(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::scan(comm, std::forward<Arguments>(arguments)...);
  }
};
struct exclusive_scan_call : collective_verb<2, 1, flow::everybody, false> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::exclusive_scan(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::exclusive_scan(comm, std::forward<Arguments>(arguments)...);
  }
};
struct broadcast_call : collective_verb<2, 0, flow::from_root, true> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::broadcast(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::broadcast(comm, std::forward<Arguments>(arguments)...);
  }
};
struct all_gather_call : collective_verb<1, 1, flow::everybody, true> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::all_gather(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::all_gather(comm, std::forward<Arguments>(arguments)...);
  }
};
struct all_gather_v_call : collective_verb<0, 1, flow::everybody, false> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::all_gather_v(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::all_gather_v(comm, std::forward<Arguments>(arguments)...);
  }
};
struct gather_call : collective_verb<2, 1, flow::to_root, true> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::gather(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::gather(comm, std::forward<Arguments>(arguments)...);
  }
};
struct gather_v_call : collective_verb<3, 1, flow::to_root, false> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::gather_v(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::gather_v(comm, std::forward<Arguments>(arguments)...);
  }
};
struct scatter_call : collective_verb<2, 1, flow::from_root, true> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::scatter(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::scatter(comm, std::forward<Arguments>(arguments)...);
  }
};
struct scatter_v_call : collective_verb<3, 1, flow::from_root, false> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::scatter_v(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::scatter_v(comm, std::forward<Arguments>(arguments)...);
  }
};
struct all_to_all_call : collective_verb<1, 1, flow::everybody, true> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::all_to_all(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::all_to_all(comm, std::forward<Arguments>(arguments)...);
  }
};
struct all_to_all_v_call : collective_verb<2, 2, flow::everybody, false> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::all_to_all_v(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::all_to_all_v(comm, std::forward<Arguments>(arguments)...);
  }
};
struct reduce_scatter_call : collective_verb<2, 1, flow::everybody, true> {
  template <class... Arguments>
  static constexpr bool can_be_direct = !is_in_place<Arguments...>;  // the host moves a block
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::reduce_scatter(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::reduce_scatter(comm, std::forward<Arguments>(arguments)...);
  }
};
struct reduce_scatter_v_call : collective_verb<3, 1, flow::everybody, true> {
  template <class... Arguments>
  static constexpr bool can_be_direct = !is_in_place<Arguments...>;  // the host moves a block
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::reduce_scatter_v(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::reduce_scatter_v(comm, std::forward<Arguments>(arguments)...);
  }
};
struct neighbor_all_gather_call : collective_verb<0, 1, flow::everybody, false> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::neighbor_all_gather(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::neighbor_all_gather(comm, std::forward<Arguments>(arguments)...);
  }
};
struct neighbor_all_gather_v_call : collective_verb<0, 1, flow::everybody, false> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::neighbor_all_gather_v(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::neighbor_all_gather_v(comm, std::forward<Arguments>(arguments)...);
  }
};
struct neighbor_all_to_all_call : collective_verb<0, 1, flow::everybody, false> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::neighbor_all_to_all(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::neighbor_all_to_all(comm, std::forward<Arguments>(arguments)...);
  }
};
struct neighbor_all_to_all_v_call : collective_verb<0, 2, flow::everybody, false> {
  template <class... Arguments>
  static auto call(const communicator& comm, Arguments&&... arguments)
      -> decltype(cohort::neighbor_all_to_all_v(comm, std::forward<Arguments>(arguments)...)) {
    return cohort::neighbor_all_to_all_v(comm, std::forward<Arguments>(arguments)...);
  }
};

}  // namespace staging

/// Verbs of `collectives/`, called as there, with `device::vector` or `device::span` in place of
/// some or all buffers. Which rank has its data where is nobody else's affair.
///
/// By default (`device_memory::staged`) the data go through pinned memory of the same size. What
/// the stream of a buffer has queued when the call is made comes first, and the result is in device
/// memory when the operation ends, so what is queued on that stream then sees it. The loop is not
/// blocked. A collective that waits for its data holds those of the host that are started after it
/// on the same communicator, so that all ranks post in one order. With `device_memory::cuda_aware`
/// MPI is given the pointers when that stream has come so far, but for averages, functions of the
/// user and reduce_scatter in place, where host code touches the data; a communicator's backend is
/// not asked.
///
/// *Completion*: that of the verb; device vectors that were moved in come back. *Cancellation*:
/// terminal, with `device::vector` and owned buffers: the awaiter leaves, MPI goes on with the
/// pinned memory, and no result is written. A borrowed `device::span` must stay, so then it is
/// ignored. *Errors*: those of the verb; errc::not_supported with `device_memory::refused`;
/// errc::device_ordered with `cuda_aware` while NCCL has the device; CUDA's codes. What fails on
/// this rank before MPI has its data leaves the other ranks waiting, as any failing post does.
/// *Cost*: pinned memory of the buffers' sizes, two copies, and two waits for the device.
/// *Source*: docs/design/gpu.md.
/// *Example*: `co_await cohort::all_reduce(world, gradient, cohort::op::sum);`
template <class... Arguments>
requires staging::takes<staging::all_reduce_call, Arguments...>
auto all_reduce(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::all_reduce_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::reduce_call, Arguments...>
auto reduce(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::reduce_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::scan_call, Arguments...>
auto scan(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::scan_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::exclusive_scan_call, Arguments...>
auto exclusive_scan(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::exclusive_scan_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::broadcast_call, Arguments...>
auto broadcast(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::broadcast_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::all_gather_call, Arguments...>
auto all_gather(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::all_gather_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::all_gather_v_call, Arguments...>
auto all_gather_v(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::all_gather_v_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::gather_call, Arguments...>
auto gather(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::gather_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::gather_v_call, Arguments...>
auto gather_v(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::gather_v_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::scatter_call, Arguments...>
auto scatter(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::scatter_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::scatter_v_call, Arguments...>
auto scatter_v(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::scatter_v_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::all_to_all_call, Arguments...>
auto all_to_all(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::all_to_all_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::all_to_all_v_call, Arguments...>
auto all_to_all_v(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::all_to_all_v_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::reduce_scatter_call, Arguments...>
auto reduce_scatter(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::reduce_scatter_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::reduce_scatter_v_call, Arguments...>
auto reduce_scatter_v(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::reduce_scatter_v_call>(comm, std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::neighbor_all_gather_call, Arguments...>
auto neighbor_all_gather(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::neighbor_all_gather_call>(comm,
                                                         std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::neighbor_all_gather_v_call, Arguments...>
auto neighbor_all_gather_v(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::neighbor_all_gather_v_call>(comm,
                                                           std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::neighbor_all_to_all_call, Arguments...>
auto neighbor_all_to_all(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::neighbor_all_to_all_call>(comm,
                                                         std::forward<Arguments>(arguments)...);
}

template <class... Arguments>
requires staging::takes<staging::neighbor_all_to_all_v_call, Arguments...>
auto neighbor_all_to_all_v(const communicator& comm, Arguments&&... arguments) {
  return staging::run<staging::neighbor_all_to_all_v_call>(comm,
                                                           std::forward<Arguments>(arguments)...);
}

}  // namespace cohort

#endif
