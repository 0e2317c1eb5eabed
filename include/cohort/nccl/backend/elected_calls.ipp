// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The calls of NCCL that an elected operation is made of: bodies of
/// `nccl/backend/device_plane.hpp`.

#include <cohort/nccl/backend/device_plane.hpp>

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

namespace cohort::nccl {

COHORT_INLINE elected_calls::elected_calls(elected_work& op)
    : op_(op), what_(*op.what_), rank_(op.comm->rank), ranks_(op.comm->size) {}

COHORT_INLINE void elected_calls::make() {
  op_.finals_.clear();
  op_.brought_.clear();
  if (op_.by_host_) return host();
  if (op_.stage_ == elected_work::stage::second_part) {
    return move(op_kind::broadcast, op_.buffer(), op_.buffer(), op_.runs_.bytes());
  }
  switch (what_.kind) {
    case op_kind::all_reduce:
    case op_kind::broadcast:
      return fused();
    case op_kind::reduce:
      return reduce();
    case op_kind::reduce_scatter:
      return reduce_scatter();
    case op_kind::all_gather:
      return all_gather();
    case op_kind::all_to_all:
      return what_.tensors.size() == 1 ? all_to_all() : blocks();
    case op_kind::gather:
    case op_kind::scatter:
      return rooted();
    case op_kind::message:
      return message();
    case op_kind::arena_add:  // is no work of the queue
      return;
    default:  // all ranks come to it, and that is all
      op_.one.what = op_kind::barrier;
      return;
  }
}

COHORT_INLINE void elected_calls::add(op_kind kind, const treatment& how, const void* from,
                                      void* to, std::size_t count, std::size_t size, int root) {
  op_.more.push_back({.what = kind,
                      .from = from,
                      .to = to,
                      .count = count * how.as.width,
                      .type = how.as.type,
                      .width = size / how.as.width,
                      .op = how.op,
                      .root = root});
}

// ---- where NCCL reads and writes -------------------------------------------------------------

/// Whether `data` lies in an arena, which NCCL works on as a whole.
COHORT_INLINE bool elected_calls::is_registered(const void* data) const {
  const arena_maker* const arenas = op_.plane_->extras_.arenas;
  return arenas != nullptr && arenas->is_registered(data);
}

/// Memory for what this rank does not bring, or does not want.
COHORT_INLINE std::byte* elected_calls::take_room(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  device::vector<std::byte> room(bytes, op_.packing());
  op_.uses.push_back({"room", nullptr, 0, op_.plane_->device_, {}, room.lease()});
  return room.data();
}

/// Where NCCL reads.
COHORT_INLINE const void* elected_calls::input_of(const comm::tensor& tensor,
                                                  const treatment& how) {
  const std::size_t size = tensor.bytes();
  if (tensor.in != nullptr && how.scale_before == 1 && tensor.wire == nullptr) {
    return readable(tensor.in, size);
  }
  std::byte* const room = take_room(size);
  op_.memory_.moves.bring(tensor, how, room, what_.reduction);
  return room;
}

/// Where NCCL writes `count` elements of a result, which `finish` takes from there.
COHORT_INLINE void* elected_calls::room_for(const comm::tensor& tensor, std::size_t count) {
  const bool own = tensor.wire != nullptr || tensor.out == nullptr || is_registered(tensor.out);
  return own ? take_room(count * tensor.size()) : tensor.out;
}

/// Memory that NCCL may read: not registered, because it need not be on the other ranks.
COHORT_INLINE const void* elected_calls::readable(const void* data, std::size_t size) {
  if (size == 0 || !is_registered(data)) return data;
  std::byte* const room = take_room(size);
  const device::batch_part whole{room, data, size};
  device::copy_batch(op_.packing(), std::span(&whole, 1));
  return room;
}

/// The same to write; what comes is copied to `data` afterwards.
COHORT_INLINE void* elected_calls::writable(void* data, std::size_t size) {
  if (data == nullptr) return take_room(size);
  if (size == 0 || !is_registered(data)) return data;
  std::byte* const room = take_room(size);
  op_.brought_.push_back({data, room, size});
  return room;
}

/// Notes what is to be done to a result that is not packed.
COHORT_INLINE void elected_calls::finish(const comm::tensor& tensor, const treatment& how,
                                         const void* from, std::size_t count) {
  if (tensor.out == nullptr || (from == tensor.out && !how.finishes())) return;
  op_.finals_.push_back({&tensor, how, from, count});
}

// ---- the kinds -------------------------------------------------------------------------------

COHORT_INLINE void elected_calls::fused() {
  const bool reduces = what_.kind == op_kind::all_reduce;
  const bool in_node = op_.stage_ == elected_work::stage::first_part;
  const op_kind kind = in_node ? op_kind::reduce : what_.kind;
  const int root = in_node ? 0 : what_.root;
  const bool reads = brings_data(what_.kind, rank_ == what_.root);
  for (const elected_runs::run& each : op_.runs_.all()) {
    const comm::tensor& first = what_.tensors[each.first];
    const std::size_t unit = reduces ? first.size() : 1;
    if (each.direct) {
      std::byte* const at = each.direct->begin;
      add(kind, each.how, at, at, each.direct->bytes / unit, unit, root);
      for (std::size_t i = each.first; i < each.first + each.tensors; ++i) {
        const comm::tensor& one = what_.tensors[i];
        finish(one, each.how, one.out, one.count);
      }
    } else if (each.packed) {
      std::byte* const at = op_.buffer() + each.begin;
      add(kind, each.how, at, at, each.bytes / unit, unit, root);
    } else {
      const std::size_t size = first.bytes();
      void* const to = room_for(first, first.count);
      const void* const from = reads ? input_of(first, each.how) : to;
      add(kind, each.how, from, to, size / unit, unit, what_.root);
      finish(first, each.how, to, first.count);
    }
  }
}

/// None of NCCL's. The finals are those of the second part.
COHORT_INLINE void elected_calls::host() {
  if (op_.runs_.bytes() != 0) op_.more.emplace_back().elsewhere = true;
}

COHORT_INLINE void elected_calls::reduce() {
  for (const comm::tensor& tensor : what_.tensors) {
    const treatment how = detail::treatment_of(tensor, what_.reduction, ranks_);
    const void* const from = input_of(tensor, how);
    void* to = nullptr;
    if (rank_ == what_.root) {
      to = room_for(tensor, tensor.count);
      finish(tensor, how, to, tensor.count);
    }
    add(op_kind::reduce, how, from, to, tensor.count, tensor.size(), what_.root);
  }
}

// Parts of two sizes are reduced one by one.
COHORT_INLINE void elected_calls::reduce_scatter() {
  for (const comm::tensor& tensor : what_.tensors) {
    const treatment how = detail::treatment_of(tensor, what_.reduction, ranks_);
    const std::size_t mine = part_of(tensor.count, rank_, ranks_);
    const auto* from = static_cast<const std::byte*>(input_of(tensor, how));
    void* const to = room_for(tensor, mine);
    finish(tensor, how, to, mine);
    if (tensor.count % static_cast<std::size_t>(ranks_) == 0) {
      add(op_kind::reduce_scatter, how, from, to, mine, tensor.size());
      continue;
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::size_t part = part_of(tensor.count, rank, ranks_);
      void* const here = rank == rank_ ? to : nullptr;
      add(op_kind::reduce, how, from, here, part, tensor.size(), rank);
      from += part * tensor.size();
    }
  }
}

COHORT_INLINE void elected_calls::all_gather() {
  const std::size_t members = what_.tensors.size();
  for (std::size_t i = 0; i < members; ++i) {
    const comm::tensor& tensor = what_.tensors[i];
    std::vector<std::size_t> come;
    for (std::size_t at = i; at < what_.received.size(); at += members) {
      come.push_back(what_.received[at]);
    }
    const std::size_t all = std::accumulate(come.begin(), come.end(), std::size_t{0});
    auto* to = static_cast<std::byte*>(writable(tensor.out, all));
    const void* const mine = readable(tensor.in, come[static_cast<std::size_t>(rank_)]);
    if (std::adjacent_find(come.begin(), come.end(), std::not_equal_to<>()) == come.end()) {
      move(op_kind::all_gather, mine, to, come.front());
      continue;
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::size_t part = come[static_cast<std::size_t>(rank)];
      move(op_kind::broadcast, rank == rank_ ? mine : to, to, part, rank);
      to += part;
    }
  }
}

COHORT_INLINE void elected_calls::all_to_all() {
  const comm::tensor& tensor = what_.tensors.front();
  const auto total = [](const std::vector<std::size_t>& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  };
  auto* to = static_cast<std::byte*>(writable(tensor.out, total(what_.received)));
  const auto* from = static_cast<const std::byte*>(readable(tensor.in, total(what_.sent)));
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    const std::size_t sends = i < what_.sent.size() ? what_.sent[i] : 0;
    move(op_kind::send, from, nullptr, sends, rank);
    move(op_kind::recv, nullptr, to, what_.received[i], rank);
    if (sends != 0) from += sends;
    to += what_.received[i];
  }
}

/// Of each member of a bundle one block for each rank.
COHORT_INLINE void elected_calls::blocks() {
  for (const comm::tensor& tensor : what_.tensors) {
    const std::size_t whole = tensor.bytes();
    const std::size_t block = whole / static_cast<std::size_t>(ranks_);
    const auto* from = static_cast<const std::byte*>(readable(tensor.in, whole));
    auto* to = static_cast<std::byte*>(writable(tensor.out, whole));
    for (int rank = 0; block != 0 && rank < ranks_; ++rank) {
      move(op_kind::send, from, nullptr, block, rank);
      move(op_kind::recv, nullptr, to, block, rank);
      from += block;
      to += block;
    }
  }
}

COHORT_INLINE void elected_calls::rooted() {
  const bool gathers = what_.kind == op_kind::gather;
  const bool is_root = rank_ == what_.root;
  const auto ranks = static_cast<std::size_t>(ranks_);
  for (const comm::tensor& tensor : what_.tensors) {
    const std::size_t whole = tensor.bytes();
    const std::size_t part = gathers ? whole : whole / ranks;
    const void* from = nullptr;
    void* to = nullptr;
    if (gathers || is_root) from = input_of(tensor, treatment());
    if (!gathers || is_root) to = writable(tensor.out, gathers ? whole * ranks : part);
    move(gathers ? op_kind::gather : op_kind::scatter, from, to, part, what_.root);
  }
}

// One of a pair of ranks; the others do nothing here. An empty message launches nothing.
COHORT_INLINE void elected_calls::message() {
  const comm::tensor& tensor = what_.tensors.front();
  const std::size_t size = tensor.bytes();
  if (size == 0) return;
  if (tensor.in != nullptr) {
    move(op_kind::send, readable(tensor.in, size), nullptr, size, what_.root);
  } else {
    move(op_kind::recv, nullptr, writable(tensor.out, size), size, what_.root);
  }
}

}  // namespace cohort::nccl
