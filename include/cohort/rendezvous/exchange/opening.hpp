// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How a rendezvous is opened, and what its ranks compare.

#include <cohort/comm/joint.hpp>
#include <cohort/core/crypto.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/progress/look_task.hpp>
#include <cohort/rendezvous/exchange/messenger.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace cohort::meeting {

inline constexpr const char* option_ranges = "chunk is at least 1, transfers are 1 to 32767";

/// Of this process: random, never 0.
[[nodiscard]] inline std::uint64_t process_incarnation() {
  static const std::uint64_t value = random_number() | 1U;
  return value;
}

/// What ranks tell each other first.
struct opening_facts {
  std::uint64_t incarnation;
  std::uint64_t chunk;  // 0: the rank refuses its options
};

/// What ranks do not agree on, null if there is nothing.
template <class Any = void>
[[nodiscard]] std::exception_ptr differing(int rank, const std::vector<opening_facts>& all) {
  std::vector<std::uint64_t> chunks;
  rank_set refusing;
  for (const opening_facts& each : all) {
    if (each.chunk == 0) refusing.insert(static_cast<int>(chunks.size()));
    chunks.push_back(each.chunk);
  }
  if (!refusing.empty()) {
    return std::make_exception_ptr(
        refused_options(rank, "rendezvous", {{option_ranges, refusing}}));
  }
  const auto same = static_cast<std::size_t>(std::count(chunks.begin(), chunks.end(), chunks[0]));
  if (same == chunks.size()) return nullptr;
  return std::make_exception_ptr(
      differing_options(rank, "rendezvous", {"chunk"}, chunks,
                        [](const auto&, auto chunk) { return std::to_string(chunk); }));
}

/// Makes the two communicators over `all.parent`, then tells all ranks of the incarnations and
/// compares what must be equal.
template <class Any>
progress::look_task<> open_with_others(exchange_core<Any>& all, messenger<Any>& by,
                                       opening_facts own) {
  communicator made;
  auto making = comm::joint::create(all.parent, [&](mpi::comm fresh) {
    mpi::comm second = fresh.dup();
    made = communicator::adopt(all.parent, std::move(fresh), std::move(second));
  });
  co_await making;
  std::vector<opening_facts> told(static_cast<std::size_t>(made.size()));
  auto telling = comm::joint::all_gather(made, own, told);
  co_await telling;
  const typename exchange_core<Any>::look_lock hold(all);
  if (const std::exception_ptr why = differing(all.node.rank(), told)) {
    by.break_down(why);
    co_return;
  }
  std::vector<std::uint64_t> incarnations;
  for (const opening_facts& each : told) incarnations.push_back(each.incarnation);
  all.node.know(std::move(incarnations));
  by.open(std::move(made));
  by.flush(true);
}

}  // namespace cohort::meeting
