// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Measures what a collective costs here, and sets the options that follow from it.

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/coordinator/options.hpp>
#include <cohort/core/copy.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/deadline.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace cohort {

/// What an all_reduce of n bytes costs, `latency + n * per_byte`, and copying; in nanoseconds.
struct operation_costs {
  double latency = 0;
  double per_byte = 0;
  double copy_per_byte = 0;
};

/// Sets what follows from the costs; the rest stays. Powers of two, and always in range:
/// - `fusion_threshold`: packing copies a tensor twice, which must cost less than the latency that
///   it saves; 4 KiB to 1 MiB;
/// - `piece` and `fusion_buffer`: so large that the latency is 1/64 of the time on the way; 64 KiB
///   to 16 MiB, and the buffer holds at least four tensors;
/// - `bytes_in_flight`: two such buffers.
[[nodiscard]] coordinator_options fit_to(const operation_costs& costs,
                                         coordinator_options options = {});

/// Measures the costs through the verbs of `world`: 24 all_reduces, some milliseconds. *Collective
/// over* `world`; all ranks get the same, the costs of the slowest. Cannot be cancelled.
// A template, as `tune` is, so that who does not call it does not compile its collectives.
template <std::same_as<communicator> Communicator>
asio::awaitable<operation_costs> measure_costs(Communicator world);

/// `options` with the three numbers that fit the machine. *Collective over* `world`, the same on
/// all ranks; rank 0 logs them. No coordinator does this on its own: the result differs from run to
/// run, and with it the order of summation. `save_options` keeps it.
/// \code
/// cohort::coordinator coord(world, co_await cohort::tune(world));
/// co_await coord.shutdown();
/// \endcode
template <std::same_as<communicator> Communicator>
asio::awaitable<coordinator_options> tune(Communicator world, coordinator_options options = {});

// ---- implementation --------------------------------------------------------------------------

inline coordinator_options fit_to(const operation_costs& costs, coordinator_options options) {
  // A clock may not see what is too short for it.
  const auto quotient = [](double a, double b, std::uint64_t low, std::uint64_t high) {
    const double exact = std::max(a, 0.0) / std::max(b, 1e-6);
    if (!(exact > static_cast<double>(low))) return low;
    if (exact >= static_cast<double>(high)) return high;
    return std::bit_floor(static_cast<std::uint64_t>(exact));
  };
  constexpr std::uint64_t kib = 1024;
  options.fusion_threshold = quotient(costs.latency, 2 * costs.copy_per_byte, 4 * kib, 1024 * kib);
  options.piece = quotient(64 * costs.latency, costs.per_byte, 64 * kib, 16 * 1024 * kib);
  options.fusion_buffer = std::max(options.piece, 4 * options.fusion_threshold);
  options.bytes_in_flight = 2 * options.fusion_buffer;  // so that one is packed meanwhile
  return options;
}

namespace detail {

template <std::same_as<communicator> Communicator>
asio::awaitable<operation_costs> measure_together(Communicator world) {
  using clock = std::chrono::steady_clock;
  const auto since = [](clock::time_point begin) {
    return std::chrono::duration<double, std::nano>(clock::now() - begin).count();
  };
  constexpr std::size_t bytes = 256 * 1024;
  const std::vector<float> from(bytes / sizeof(float));
  std::vector<float> large(from.size());
  std::vector<float> small(1);
  operation_costs best;
  best.latency = best.per_byte = best.copy_per_byte = std::numeric_limits<double>::max();
  // The least of several: what disturbs a measurement makes it longer. The first warms up.
  for (int i = 0; i < 16; ++i) {
    const auto begin = clock::now();
    co_await cohort::all_reduce(world, small, op::sum);
    if (i != 0) best.latency = std::min(best.latency, since(begin));
  }
  for (int i = 0; i < 7; ++i) {
    auto begin = clock::now();
    copy_bytes(large.data(), from.data(), bytes);
    if (i != 0) best.copy_per_byte = std::min(best.copy_per_byte, since(begin) / bytes);
    begin = clock::now();
    co_await cohort::all_reduce(world, large, op::sum);
    if (i != 0) best.per_byte = std::min(best.per_byte, since(begin));
  }
  best.per_byte = std::max(best.per_byte - best.latency, 0.0) / bytes;
  std::vector<double> slowest{best.latency, best.per_byte, best.copy_per_byte};
  co_await cohort::all_reduce(world, slowest, op::max);
  co_return operation_costs{slowest[0], slowest[1], slowest[2]};
}

}  // namespace detail

template <std::same_as<communicator> Communicator>
asio::awaitable<operation_costs> measure_costs(Communicator world) {
  return progress::uncancelled(detail::measure_together(std::move(world)));
}

template <std::same_as<communicator> Communicator>
asio::awaitable<coordinator_options> tune(Communicator world, coordinator_options options) {
  const operation_costs costs = co_await measure_costs(world);
  options = fit_to(costs, std::move(options));
  if (world.rank() == 0) {
    char text[160];
    std::snprintf(text, sizeof(text),
                  "tune: all_reduce %.3g us and %.3g ns per byte, copy %.3g ns per byte; ",
                  costs.latency / 1000, costs.per_byte, costs.copy_per_byte);
    log::write(log::level::debug,
               text + ("fusion_threshold=" + std::to_string(options.fusion_threshold)) +
                   " fusion_buffer=" + std::to_string(options.fusion_buffer) +
                   " piece=" + std::to_string(options.piece));
  }
  co_return options;
}

}  // namespace cohort
