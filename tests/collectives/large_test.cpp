// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// More than 2^31 elements, of one byte each. Needs up to 5 GB per rank and minutes, so these cases
// are hidden: run `collectives_large_test "[large]"` under mpirun. What is not hidden does the same
// with few elements.

#include <cohort/collectives/all_gather.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/broadcast.hpp>
#include <cohort/collectives/gather.hpp>
#include <cohort/collectives/reduce_scatter.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>

#include <cstdint>
#include <vector>

#include "collectives/support.hpp"
#include "support/catch.hpp"
#include "support/world.hpp"

namespace {

using namespace collectives_test;
using cohort::communicator;
using cohort_test::on_world;

constexpr std::size_t few = 10007;
constexpr std::size_t many = (std::size_t{1} << 31) + 4099;
// Where counts and displacements of blocks must have a common unit (MPI 3.1).
constexpr std::size_t unit = 100;
constexpr std::size_t many_units = ((std::size_t{1} << 31) / unit + 100) * unit;

// Small, so that sums of four ranks do not overflow: Open MPI 4.1 saturates bytes where it adds
// them with AVX.
std::uint8_t at(std::size_t place) { return static_cast<std::uint8_t>(place % 61); }

/// Looks at the ends, at both sides of 2^31, and in between.
bool looks_right(const std::vector<std::uint8_t>& data, int factor) {
  const auto good = [&](std::size_t i) {
    return data[i] == static_cast<std::uint8_t>(factor * at(i));
  };
  for (std::size_t i = 0; i < data.size(); i += 65521) {
    if (!good(i)) return false;
  }
  for (std::size_t i = data.size() - 8200; i < data.size(); ++i) {
    if (!good(i)) return false;
  }
  return true;
}

std::vector<std::uint8_t> filled(std::size_t count, bool with_values) {
  std::vector<std::uint8_t> data(count);
  if (with_values) {
    for (std::size_t i = 0; i < count; ++i) data[i] = at(i);
  }
  return data;
}

task broadcast(communicator world, std::size_t count) {
  auto data = filled(count, world.rank() == 0);
  co_await cohort::broadcast(world, data, 0);
  CHECK(looks_right(data, 1));
}

task all_reduce(communicator world, std::size_t count) {
  auto data = filled(count, true);
  co_await cohort::all_reduce(world, data, cohort::op::sum);
  CHECK(looks_right(data, world.size()));
}

/// In place, because MPI needs as much again. `count` elements in all, in equal blocks.
task reduce_scatter(communicator world, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::size_t block = count / ranks;
  auto data = filled(block * ranks, true);
  co_await cohort::reduce_scatter(world, data, cohort::op::sum);
  const std::size_t first = block * static_cast<std::size_t>(world.rank());
  bool right = true;
  for (std::size_t i = 0; i < block && right; ++i) {
    right = data[i] == static_cast<std::uint8_t>(world.size() * at(first + i));
  }
  CHECK(right);
}

/// The first rank gives `count` elements, each other one the shared unit of all counts.
task all_gather_v(communicator world, std::size_t count) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(world.size()), unit);
  counts.front() = count;
  const auto in = filled(counts[static_cast<std::size_t>(world.rank())], true);
  std::vector<std::uint8_t> out(count + (counts.size() - 1) * unit);
  co_await cohort::all_gather_v(world, in, out, counts);
  const std::vector<std::uint8_t> others(out.begin() + static_cast<std::ptrdiff_t>(count),
                                         out.end());
  out.resize(count);
  CHECK(looks_right(out, 1));
  for (std::size_t i = 0; i < others.size(); ++i) CHECK(others[i] == at(i % unit));
}

/// The last rank gives `count` elements, each other one the shared unit of all counts.
task gather_v(communicator world, std::size_t count) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(world.size()), unit);
  counts.back() = count;
  const auto in = filled(counts[static_cast<std::size_t>(world.rank())], true);
  const std::size_t before = (counts.size() - 1) * unit;
  std::vector<std::uint8_t> out(world.rank() == 0 ? before + count : 0);
  co_await cohort::gather_v(world, in, out, counts, 0);
  if (world.rank() != 0) co_return;
  for (std::size_t i = 0; i < before; ++i) CHECK(out[i] == at(i % unit));
  out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(before));
  CHECK(looks_right(out, 1));
}

task message(communicator world, std::size_t count) {
  if (world.size() < 2 || world.rank() > 1) co_return;
  auto data = filled(count, world.rank() == 0);
  if (world.rank() == 0) {
    co_await cohort::send(world, data, 1, 3);
  } else {
    const auto st = co_await cohort::recv(world, data, 0, 3);
    CHECK(st.bytes() == count);
    CHECK(looks_right(data, 1));
  }
}

}  // namespace

TEST_CASE("few elements") {
  on_world([](communicator world) { return broadcast(world, few); });
  on_world([](communicator world) { return all_reduce(world, few); });
  on_world([](communicator world) { return reduce_scatter(world, few); });
  on_world([](communicator world) { return all_gather_v(world, few - few % unit); });
  on_world([](communicator world) { return gather_v(world, few - few % unit); });
  on_world([](communicator world) { return message(world, few); });
}

TEST_CASE("broadcast of more than 2^31 elements", "[.][large]") {
  on_world([](communicator world) { return broadcast(world, many); });
}

TEST_CASE("all_reduce of more than 2^31 elements", "[.][large]") {
  on_world([](communicator world) { return all_reduce(world, many); });
}

TEST_CASE("reduce_scatter of more than 2^31 elements", "[.][large]") {
  on_world([](communicator world) { return reduce_scatter(world, many); });
}

TEST_CASE("all_gather_v with a block of more than 2^31 elements", "[.][large]") {
  on_world([](communicator world) { return all_gather_v(world, many_units); });
}

TEST_CASE("gather_v with a block of more than 2^31 elements", "[.][large]") {
  on_world([](communicator world) { return gather_v(world, many_units); });
}

TEST_CASE("a message of more than 2^31 elements", "[.][large]") {
  on_world([](communicator world) { return message(world, many); });
}
