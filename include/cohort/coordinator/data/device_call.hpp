// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a backend for devices is told of an operation.

#include <cohort/comm/device_backend.hpp>
#include <cohort/coordinator/task.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace cohort::coordination {

[[nodiscard]] constexpr comm::collective collective_of(op_kind kind) noexcept {
  switch (kind) {
    case op_kind::all_reduce:
      return comm::collective::all_reduce;
    case op_kind::all_gather:
      return comm::collective::all_gather;
    case op_kind::broadcast:
      return comm::collective::broadcast;
    case op_kind::all_to_all:
      return comm::collective::all_to_all;
    case op_kind::reduce_scatter:
      return comm::collective::reduce_scatter;
    case op_kind::reduce:
      return comm::collective::reduce;
    case op_kind::gather:
      return comm::collective::gather;
    case op_kind::scatter:
      return comm::collective::scatter;
    case op_kind::message:
      return comm::collective::message;
    case op_kind::arena_add:
      return comm::collective::arena;
    case op_kind::barrier:
    case op_kind::group_create:
    case op_kind::group_remove:
    case op_kind::set_add:
      break;
  }
  return comm::collective::barrier;
}

[[nodiscard]] constexpr comm::device_reduction device_reduction_of(reduction_code code) noexcept {
  using comm::device_reduction;
  for (int i = 0; i < static_cast<int>(device_reduction::own); ++i) {
    const auto one = static_cast<device_reduction>(i);
    if (code_of(one) == code) return one;
  }
  return device_reduction::own;
}

/// Devices have no bitwise and logical reductions, and none of the user's.
[[nodiscard]] constexpr bool devices_have(reduction_code code) noexcept {
  return device_reduction_of(code) <= comm::device_reduction::max;
}

/// One tensor of an operation on this rank, which is `rank` of the set.
[[nodiscard]] inline comm::device_tensor device_tensor_of(const tensor& what, const task& of,
                                                          int rank) {
  comm::device_tensor one;
  const bool is_root = of.root == rank;
  const bool moves = of.kind == op_kind::message;
  const bool reads =
      (of.kind != op_kind::broadcast && of.kind != op_kind::scatter && !moves) || is_root;
  const bool writes =
      moves ? !is_root : (of.kind != op_kind::reduce && of.kind != op_kind::gather) || is_root;
  if (reads) one.in = what.in;
  if (writes) one.out = what.out;
  one.named = what.kernels->element != 255;
  if (one.named) one.element = static_cast<element_type>(what.kernels->element);
  if (one.named || of.code != reduction_code::no_reduction) {
    one.size = what.kernels->size;
    one.count = what.count;
  } else {
    one.count = what.bytes();
  }
  one.math = &what.kernels->math;
  one.operation = what.operation;
  if (one.operation == MPI_OP_NULL && what.kernels->operation != nullptr) {
    one.operation = what.kernels->operation(of.code);  // neutral elements, by a number
  }
  one.cast = what.wire;
  one.rounded = (of.flags & protocol::signature_flag::half_on_wire) != 0 && one.named &&
                (one.element == element_type::float16 || one.element == element_type::bfloat16);
  one.prescale = of.prescale;
  one.postscale = of.postscale;
  one.place = what.place;
  return one;
}

/// Of the operation of a task alone, without what is known when it is elected.
inline void describe(comm::device_call& call, const task& of, int rank) {
  call.kind = collective_of(of.kind);
  call.reduction = device_reduction_of(of.code);
  call.root = std::max(of.kind == op_kind::message ? of.peer : of.root, 0);
  call.verb = of.verb().data();
  if (of.kind == op_kind::arena_add) call.reserves = of.row_bytes;
  for (std::size_t i = 0; i < of.tensors(); ++i) {
    if (of[i].kernels != nullptr) call.tensors.push_back(device_tensor_of(of[i], of, rank));
  }
}

/// What the backend has made, once the operation has ended.
inline void hand_over_arena(task& of, comm::device_call& made) {
  auto arena = std::move(made.arena);
  if (of.kind != op_kind::arena_add || of.context == nullptr) return;
  *static_cast<std::shared_ptr<comm::device_arena>*>(of.context) = std::move(arena);
}

}  // namespace cohort::coordination
