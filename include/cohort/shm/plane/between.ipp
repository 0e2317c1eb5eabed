// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The steps between nodes. Where each rank has a block, these lie in the slots of the map:
/// so all that a rail has for another node is one message.

#include <cohort/core/copy.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/shm/plane/sequence.hpp>

#include <algorithm>

namespace cohort::shm::detail {

// ---- shares go between nodes -------------------------------------------------------------------

/// The node that has the root of a reduce.
COHORT_INLINE std::size_t sequence::sum_for(const comm::collective_call& what) const {
  const bool for_one = what.kind == op_kind::reduce;
  return for_one ? between_->map().node_of(static_cast<std::size_t>(what.root)) : SIZE_MAX;
}

/// The share of this rank in a chunk: reduced over this node, or what the root has.
COHORT_INLINE node_share sequence::share_between(const chunk_of& one, std::uint64_t number) {
  const pending_call& call = call_of(one);
  if (call.what.kind == op_kind::barrier) {  // the first ranks wait for each other with a byte
    std::byte* const data = buffer(rank_, number);
    return {data, data, rank_ == 0 ? std::size_t{1} : 0, 1, SIZE_MAX, SIZE_MAX, {}};
  }
  if (call.is_direct) return direct_share(call, one, number);
  if (is_in_slots(call.what.kind)) return slots_between(call, one, number);
  const share own = share_of(rank_, one, call.size);
  const std::size_t begin = own.begin * call.size;
  const std::size_t end = own.end * call.size;
  if (is_reduction(call.what.kind)) {
    std::byte* const data = buffer(rank_, number) + begin;
    return {data, data, end - begin, call.size, SIZE_MAX, sum_for(call.what), call.reduce};
  }
  const std::size_t node = between_->map().node_of(static_cast<std::size_t>(call.what.root));
  const std::size_t from = call.root < ranks_ ? call.root : rank_;
  std::byte* const data = buffer(from, number) + begin;
  return {data, data, end - begin, 1, node, SIZE_MAX, {}};
}
/// The whole chunk, in the caller's memory.
COHORT_INLINE node_share sequence::direct_share(const pending_call& call, const chunk_of& one,
                                                std::uint64_t number) const {
  const comm::collective_call& what = call.what;
  const std::size_t offset = one.begin * call.size;
  const std::size_t bytes = one.count * call.size;
  // A rank that gets no result may have no memory for one.
  const bool has_out = gets_result(what.kind, call.root == rank_);
  std::byte* const out =
      has_out ? static_cast<std::byte*>(what.out) + offset : buffer(rank_, number);
  if (what.kind == op_kind::broadcast) {
    const std::size_t node = between_->map().node_of(static_cast<std::size_t>(what.root));
    return {out, out, bytes, 1, node, SIZE_MAX, {}};
  }
  return {out, own_input(what) + offset, bytes, call.size, SIZE_MAX, sum_for(what), call.reduce};
}

/// Everything between nodes in order of chunks: what has arrived is told to this node.
COHORT_INLINE unsigned sequence::carry() {
  unsigned steps = 0;
  for (; expected_ != laid_; ++expected_) {
    const chunk_of& one = under_way_[expected_ % depth];
    between_->expect(expected_ % depth, share_between(one, expected_));
  }
  for (; sent_ != summed_; ++sent_, ++steps) between_->begin(sent_ % depth);
  steps += between_->look();
  if (between_->failed()) {
    lines_[rank_].failed.store(1, std::memory_order_release);
    return steps;
  }
  for (; reduced_ != sent_ && between_->has_arrived(reduced_ % depth); ++steps) publish_reduced();
  return steps;
}

COHORT_INLINE std::error_code sequence::failure() const noexcept {
  if (!between_) return {};
  if (between_->failed()) return between_->failed();
  for (const progress_line& each : lines_) {
    if (each.failed.load(std::memory_order_acquire) != 0) return make_error_code(errc::closed);
  }
  return {};
}

COHORT_INLINE bool sequence::leave() noexcept {
  if (!between_ || !between_->any_under_way()) return true;
  return mpi::running() && mpi::is_allowed_thread() && between_->leave();
}

// ---- each rank has a block ---------------------------------------------------------------------

/// Sums go over all of a rank's buffer, each rail's share of it in that of the rail. What is only
/// moved lies in the buffers of the rails at once: nobody reads them any more when a chunk is laid.
COHORT_INLINE void sequence::lay_slots(const pending_call& call, const chunk_of& one) const {
  const node_map& map = between_->map();
  const comm::collective_call& what = call.what;
  const std::size_t bytes = one.count * call.size;
  const std::size_t whole = what.count * call.size;
  const std::size_t me = rank_of(rank_);
  const std::byte* const in = own_input(what) + one.begin * call.size;
  const auto put = [&](std::size_t place, std::size_t slot, const std::byte* from) {
    std::byte* const to = buffer(place, laid_) + slot * bytes;
    if (call.forgotten) {  // the others go on
      std::fill_n(to, bytes, std::byte{0});
    } else {
      copy_bytes(to, from, bytes);
    }
  };
  if (what.kind == op_kind::all_gather) {
    const std::size_t rail = map.rail_of(me);
    return put(rail, map.slot_of(me) - map.first_slot(rail, 0),
               in + (what.in == MPI_IN_PLACE ? me * whole : 0));
  }
  for (std::size_t slot = 0; slot < map.ranks(); ++slot) {
    const std::size_t rank = map.rank_at(slot);
    if (what.kind == op_kind::reduce_scatter) {
      put(rank_, slot, in + rank * whole);
    } else if (rank != me) {
      put(map.rail_of(rank), map.pair_at(me, rank), in + rank * whole);
    }
  }
}

COHORT_INLINE sequence::share sequence::own_slots() const noexcept {
  const node_map& map = between_->map();
  if (rank_ >= map.rails()) return {0, 0};
  return {map.first_slot(rank_, 0), map.first_slot(rank_, map.nodes())};
}

COHORT_INLINE node_share sequence::slots_between(const pending_call& call, const chunk_of& one,
                                                 std::uint64_t number) const {
  const share own = own_slots();
  const std::size_t block = one.count * call.size;
  std::byte* const mine = buffer(rank_, number);
  node_share all;
  all.data = mine;
  if (own.begin != own.end) {
    all.block = block;
    all.kind = call.what.kind;
    all.bytes = (own.end - own.begin) * block;
  }
  if (call.what.kind == op_kind::reduce_scatter) {
    all.data += own.begin * block;
    all.size = call.size;
    all.reduce = call.reduce;
  } else if (call.what.kind == op_kind::all_to_all) {
    all.bytes = all.block * blocks(call.what.kind);
  }
  all.own = all.data;
  return all;
}

COHORT_INLINE void sequence::take_slots(const pending_call& call, const chunk_of& one,
                                        std::uint64_t number) const {
  const node_map& map = between_->map();
  const comm::collective_call& what = call.what;
  const std::size_t bytes = one.count * call.size;
  const std::size_t whole = what.count * call.size;
  const std::size_t me = rank_of(rank_);
  const std::size_t rail = map.rail_of(me);
  const std::size_t offset = one.begin * call.size;
  std::byte* const out = static_cast<std::byte*>(what.out) + offset;
  if (what.kind == op_kind::reduce_scatter) {
    return copy_bytes(out, buffer(rail, number) + map.slot_of(me) * bytes, bytes);
  }
  const bool to_all = what.kind == op_kind::all_gather;
  for (std::size_t slot = 0; slot < map.ranks(); ++slot) {
    const std::size_t rank = map.rank_at(slot);
    if (rank != me) {
      const std::size_t place = to_all ? map.rail_of(rank) : rail;
      const std::size_t at = to_all ? slot - map.first_slot(place, 0) : map.pair_at(rank, me);
      copy_bytes(out + rank * whole, buffer(place, number) + at * bytes, bytes);
    } else if (what.in != MPI_IN_PLACE) {
      copy_bytes(out + me * whole,
                 static_cast<const std::byte*>(what.in) + offset + (to_all ? 0 : me * whole),
                 bytes);
    }
  }
}

}  // namespace cohort::shm::detail
