// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of shm/between/nodes.hpp.

#include <cohort/shm/between/nodes.hpp>

#include <bit>
#include <map>

namespace cohort::shm::detail {

COHORT_INLINE node_map::node_map(int rank, int ranks)
    : node_map(rank, std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), 0)) {}

COHORT_INLINE node_map::node_map(int rank, std::span<const std::uint64_t> on)
    : rank_(static_cast<std::size_t>(rank)) {
  std::map<std::uint64_t, std::size_t> number;
  for (std::size_t each = 0; each < on.size(); ++each) {
    const std::size_t node = number.try_emplace(on[each], number.size()).first->second;
    if (node == members_.size()) members_.emplace_back();
    node_.push_back(node);
    place_.push_back(members_[node].size());
    members_[node].push_back(static_cast<int>(each));
  }
  rails_ = on.size();
  for (const auto& each : members_) rails_ = std::min(rails_, each.size());
  slot_.resize(on.size());
  for (std::size_t rail = 0; rail < rails_; ++rail) {
    for (const auto& each : members_) {
      first_slot_.push_back(order_.size());
      for (std::size_t place = rail; place < each.size(); place += rails_) {
        const auto member = static_cast<std::size_t>(each[place]);
        slot_[member] = order_.size();
        order_.push_back(member);
      }
    }
  }
  first_slot_.push_back(order_.size());
  std::size_t before = 0;
  for (const auto& each : members_) {
    others_before_.push_back(before);
    if (&each != &members_[node()]) before += each.size();
  }
}

COHORT_INLINE std::size_t node_map::pair_at(std::size_t source, std::size_t target) const noexcept {
  const std::size_t rail = rail_of(target);
  const std::size_t from = node_of(source);
  const std::size_t size = members_[from].size();
  if (from == node()) return (slot_[target] - first_slot(rail, 0)) * size + place_[source];
  const std::size_t sent = (first_slot(rail, nodes()) - first_slot(rail, 0)) * size_here();
  return sent + slots(rail, node()) * others_before_[from] +
         (slot_[target] - first_slot(rail, node())) * size + place_[source];
}

COHORT_INLINE std::size_t node_map::room(op_kind kind) const noexcept {
  if (kind == op_kind::reduce_scatter) return ranks();
  std::size_t most = 1;
  for (std::size_t rail = 0; rail < rails_; ++rail) {
    const std::size_t all = first_slot(rail, nodes()) - first_slot(rail, 0);
    if (kind == op_kind::all_gather) most = std::max(most, all);
    if (kind != op_kind::all_to_all) continue;
    for (std::size_t node = 0; node < nodes(); ++node) {
      const std::size_t size = members_[node].size();
      most = std::max(most, all * size + slots(rail, node) * (ranks() - size));
    }
  }
  return most;
}

// ---- the shares of all nodes become their sum --------------------------------------------------

/// What a node is among a power of two: where there are more nodes, the first pairs are one.
struct paired_nodes {
  std::size_t pairs;  // the nodes 2 i and 2 i + 1
  std::size_t count;  // a power of two

  explicit paired_nodes(std::size_t nodes) noexcept
      : pairs(nodes - std::bit_floor(nodes)), count(std::bit_floor(nodes)) {}
  /// Who speaks for it.
  [[nodiscard]] std::size_t node(std::size_t number) const noexcept {
    return number < pairs ? 2 * number : number + pairs;
  }
  [[nodiscard]] bool is_second(std::size_t node) const noexcept {
    return node < 2 * pairs && node % 2 == 1;
  }
  [[nodiscard]] bool is_first(std::size_t node) const noexcept {
    return node < 2 * pairs && node % 2 == 0;
  }
  [[nodiscard]] std::size_t number(std::size_t node) const noexcept {
    return node < 2 * pairs ? node / 2 : node - pairs;
  }
};

[[nodiscard]] inline node_step::use combined_with(std::size_t mine, std::size_t theirs) noexcept {
  return mine < theirs ? node_step::use::mine_first : node_step::use::theirs_first;
}

/// Each sends all that it has.
inline void plan_doubling(std::vector<node_step>& steps, std::size_t me, std::size_t count,
                          const paired_nodes& all, std::size_t bytes) {
  for (std::size_t distance = 1; distance < count; distance *= 2) {
    const std::size_t other = all.node(me ^ distance);
    steps.push_back({other, 0, bytes, other, 0, bytes, combined_with(me, me ^ distance)});
  }
}

/// Each ends with a part, which gets longer again on the way back.
inline void plan_halving(std::vector<node_step>& steps, std::size_t me, std::size_t count,
                         const paired_nodes& all, std::size_t bytes, std::size_t line) {
  std::size_t begin = 0;
  std::size_t end = bytes;
  const std::size_t first = steps.size();
  for (std::size_t distance = count / 2; distance != 0; distance /= 2) {
    const std::size_t half = begin + packs::aligned((end - begin + 1) / 2, line);
    const std::size_t middle = std::min(half, end);
    const std::size_t other = all.node(me ^ distance);
    const auto what = combined_with(me, me ^ distance);
    if ((me & distance) == 0) {
      steps.push_back({other, middle, end - middle, other, begin, middle - begin, what});
      end = middle;
    } else {
      steps.push_back({other, begin, middle - begin, other, middle, end - middle, what});
      begin = middle;
    }
  }
  for (std::size_t i = steps.size(); i-- > first;) {  // what was received goes back
    const node_step there = steps[i];
    steps.push_back({there.from, there.in, there.in_bytes, there.to, there.out, there.out_bytes,
                     node_step::use::take});
  }
}

/// Part `n`, which begins at `begin(n)`, begins on node `n` + 1 and comes to node `n` last. From
/// step `nodes` - 1 on all parts go round once more.
template <class Begin>
void plan_ring(std::vector<node_step>& steps, std::size_t me, std::size_t nodes, const Begin& begin,
               std::size_t first, std::size_t last) {
  const std::size_t next = (me + 1) % nodes;
  const std::size_t before = (me + nodes - 1) % nodes;
  for (std::size_t i = first; i < last; ++i) {
    const bool sums = i + 1 < nodes;
    const std::size_t sent = (me + 2 * nodes - 1 - i) % nodes;
    const std::size_t taken = (sent + nodes - 1) % nodes;
    steps.push_back({next, begin(sent), begin(sent + 1) - begin(sent), before, begin(taken),
                     begin(taken + 1) - begin(taken),
                     sums ? node_step::use::theirs_first : node_step::use::take});
  }
}

COHORT_INLINE void plan_sum(std::vector<node_step>& steps, const node_map& map, std::size_t whole,
                            std::size_t bytes, std::size_t size) {
  const std::size_t node = map.node();
  const std::size_t nodes = map.nodes();
  // Whole elements, and whole cache lines where an element is shorter.
  const std::size_t line = size * std::max<std::size_t>(packs::line / size, 1);
  if (nodes > 2 && whole > halved_up_to) {
    const std::size_t each = packs::aligned((bytes + nodes - 1) / nodes, line);
    const auto begin = [&](std::size_t part) { return std::min(part * each, bytes); };
    return plan_ring(steps, node, nodes, begin, 0, 2 * (nodes - 1));
  }
  const paired_nodes all(nodes);
  if (all.is_second(node)) {
    steps.push_back({node - 1, 0, bytes, node_step::nobody, 0, 0, node_step::use::take});
    steps.push_back({node_step::nobody, 0, 0, node - 1, 0, bytes, node_step::use::take});
    return;
  }
  if (all.is_first(node)) {
    steps.push_back({node_step::nobody, 0, 0, node + 1, 0, bytes, node_step::use::mine_first});
  }
  const std::size_t me = all.number(node);
  if ((nodes == 2 && !is_halved_between_two(map, whole)) || whole <= doubled_up_to) {
    plan_doubling(steps, me, all.count, all, bytes);
  } else {
    plan_halving(steps, me, all.count, all, bytes, line);
  }
  if (all.is_first(node)) {
    steps.push_back({node + 1, 0, bytes, node_step::nobody, 0, 0, node_step::use::take});
  }
}

COHORT_INLINE void plan_sum_for_one(std::vector<node_step>& steps, const node_map& map,
                                    std::size_t which, std::size_t bytes) {
  const std::size_t me = map.node();
  const std::size_t other = 1 - me;
  if (me == which) {
    steps.push_back({node_step::nobody, 0, 0, other, 0, bytes, combined_with(me, other)});
  } else {
    steps.push_back({other, 0, bytes, node_step::nobody, 0, 0, node_step::use::take});
  }
}

// What is sent after the first step has been combined. What is combined in doubling or halving lies
// in what the first step has, and in a ring nowhere twice.
COHORT_INLINE void mark_own(std::vector<node_step>& steps) noexcept {
  if (steps.empty()) return;
  const node_step& first = steps.front();
  for (node_step& each : steps) {
    each.sends_own = each.combines_own = &each == &first;
    if (each.in >= first.in + first.in_bytes || first.in >= each.in + each.in_bytes)
      each.combines_own = true;
  }
}

// ---- what one node has comes to all ------------------------------------------------------------

COHORT_INLINE void plan_broadcast(std::vector<node_step>& steps, const node_map& map,
                                  std::size_t root, std::size_t whole, std::size_t bytes) {
  const std::size_t nodes = map.nodes();
  const std::size_t me = (map.node() + nodes - root) % nodes;  // from the root on
  const auto receive = [&](std::size_t from) {
    steps.push_back(
        {node_step::nobody, 0, 0, (from + root) % nodes, 0, bytes, node_step::use::take});
  };
  const auto send = [&](std::size_t to) {
    if (to >= nodes) return;
    steps.push_back({(to + root) % nodes, 0, bytes, node_step::nobody, 0, 0, node_step::use::take});
  };
  if (whole > tree_up_to) {
    if (me != 0) receive(me - 1);
    return send(me + 1);
  }
  // Whoever has it sends it to the node as far away as there are such nodes.
  const std::size_t own = me == 0 ? std::bit_ceil(nodes) : me & (~me + 1);
  if (me != 0) receive(me - own);
  for (std::size_t distance = own / 2; distance != 0; distance /= 2) send(me + distance);
}

// ---- each rank has a block ---------------------------------------------------------------------

COHORT_INLINE void plan_blocks(std::vector<node_step>& steps, const node_map& map, op_kind kind,
                               std::size_t block) {
  const std::size_t nodes = map.nodes();
  const std::size_t me = map.node();
  const std::size_t rail = map.place();
  if (kind != op_kind::all_to_all) {
    const auto begin = [&](std::size_t node) {
      return (map.first_slot(rail, node) - map.first_slot(rail, 0)) * block;
    };
    const std::size_t half = nodes - 1;
    const std::size_t first = kind == op_kind::all_gather ? half : 0;
    return plan_ring(steps, me, nodes, begin, first, first + half);
  }
  const auto at = [&](std::size_t source, std::size_t target) {  // nodes
    return map.pair_at(static_cast<std::size_t>(map.members(source)[0]),
                       map.rank_at(map.first_slot(rail, target))) *
           block;
  };
  for (std::size_t i = 1; i < nodes; ++i) {
    const std::size_t to = (me + i) % nodes;
    const std::size_t from = (me + nodes - i) % nodes;
    steps.push_back({to, at(me, to), map.slots(rail, to) * map.size_here() * block, from,
                     at(from, me), map.slots(rail, me) * map.members(from).size() * block,
                     node_step::use::take});
  }
}

}  // namespace cohort::shm::detail
