// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The steps of collectives where each rank has a block and there are more nodes. Blocks lie
/// in the slots of the map: so all that a rail has for another node is one message.

#include <cohort/core/copy.hpp>
#include <cohort/shm/plane/sequence.hpp>

#include <algorithm>

namespace cohort::shm::detail {

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
