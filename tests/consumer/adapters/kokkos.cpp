// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Views of Kokkos in verbs: managed and not, const, and with strides.
#include "checked.hpp"

#include <cohort/adapters/kokkos.hpp>

#include <Kokkos_Core.hpp>

#include <concepts>
#include <utility>
#include <vector>

namespace {

using checked::expect;
using checked::task;
using cohort::communicator;
using cohort::op::sum;
using Kokkos::HostSpace;
using unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
using matrix = Kokkos::View<double**, Kokkos::LayoutRight, HostSpace>;
using vector = Kokkos::View<double*, HostSpace>;

// Managed views keep their memory, so an rvalue is moved in. They are as const as their elements.
static_assert(cohort::writable_buffer<matrix&> && cohort::writable_buffer<const matrix&>);
static_assert(cohort::owned_buffer<matrix> && !cohort::readable_buffer<matrix>);
static_assert(cohort::readable_buffer<Kokkos::View<const double*, HostSpace>&>);
static_assert(!cohort::writable_buffer<Kokkos::View<const double*, HostSpace>&>);
static_assert(!cohort::input_buffer<Kokkos::View<const double*, HostSpace>>);
static_assert(cohort::writable_buffer<Kokkos::View<double*, HostSpace, unmanaged>>);
static_assert(cohort::readable_buffer<Kokkos::View<const double*, HostSpace, unmanaged>>);
static_assert(std::same_as<cohort::element_of_t<Kokkos::View<const float**, HostSpace>&>, float>);
static_assert(!cohort::input_buffer<Kokkos::View<int**, HostSpace>*&>);

matrix numbers(std::size_t rows, std::size_t columns, double first = 0) {
  matrix result("numbers", rows, columns);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      result(i, j) = first + static_cast<double>(i * columns + j);
    }
  }
  return result;
}

task everything(communicator world) {
  const double ranks = world.size();
  const matrix m = numbers(3, 4);
  co_await cohort::all_reduce(world, m, sum);
  expect(m(2, 3) == 11 * ranks && m(0, 1) == ranks);

  // A column, in place and owned by the operation. What lies between stays.
  const matrix n = numbers(3, 4);
  auto column = co_await cohort::all_reduce(world, Kokkos::subview(n, Kokkos::ALL, 2), sum);
  expect(column.extent(0) == 3 && &column(1) == &n(1, 2));
  expect(n(0, 2) == 2 * ranks && n(2, 2) == 10 * ranks && n(2, 1) == 9 && n(2, 3) == 11);

  // From const to another layout: it is the transpose of the columns.
  const Kokkos::View<const double**, Kokkos::LayoutRight, HostSpace> from = numbers(2, 3);
  const Kokkos::View<double**, Kokkos::LayoutLeft, HostSpace> to("to", 3, 2);
  co_await cohort::all_reduce(world, from, to, sum);
  expect(to(2, 1) == 5 * ranks && to(0, 1) == 3 * ranks);

  // The operation keeps the memory of a view that nobody else has.
  auto kept = co_await cohort::all_reduce(world, numbers(40, 5), sum);
  expect(kept(39, 4) == 199 * ranks);

  std::vector<double> plain{1, 2, 3};
  co_await cohort::all_reduce(
      world, Kokkos::View<double*, HostSpace, unmanaged>(plain.data(), plain.size()), sum);
  expect(plain == std::vector<double>{ranks, 2 * ranks, 3 * ranks});
  expect(kept.use_count() == 1);  // by now: what Kokkos has moved from counts until it is destroyed
  const Kokkos::View<double, HostSpace> one("one");
  one() = 2;
  co_await cohort::all_reduce(world, one, sum);
  expect(one() == 2 * ranks);

  const vector mine("mine", 2);
  mine(1) = world.rank();
  const matrix all("all", static_cast<std::size_t>(world.size()), 2);
  co_await cohort::all_gather(world, mine, all);
  for (int i = 0; i < world.size(); ++i) expect(all(i, 1) == i);
  co_await cohort::broadcast(world, mine, world.size() - 1);
  expect(mine(1) == world.size() - 1);

  const int right = (world.rank() + 1) % world.size();
  const int left = (world.rank() + world.size() - 1) % world.size();
  const matrix other = numbers(3, 4, 100.0 * left);
  auto sent =
      cohort::send(world, Kokkos::subview(numbers(3, 4, 100.0 * world.rank()), Kokkos::ALL, 1),
                   right, 1, cohort::as_future);
  const matrix into("into", 4, 3);
  co_await cohort::recv(world, Kokkos::subview(into, 2, Kokkos::ALL), left, 1);
  for (std::size_t i = 0; i < 3; ++i) expect(into(2, i) == other(i, 1));
  expect(into(1, 2) == 0 && into(3, 0) == 0);
  co_await std::move(sent);
  // Rows of a layout that pads or a rectangle have one stride, a slice through three dimensions
  // two.
  const Kokkos::View<double***, Kokkos::LayoutRight, HostSpace> cube("cube", 4, 4, 4);
  const auto part = Kokkos::make_pair(1, 3);
  const auto slice = Kokkos::subview(cube, part, part, part);
  static_assert(!cohort::input_buffer<decltype(Kokkos::subview(cube, part, part, part))>);
  bool refused = false;
  try {
    co_await cohort::all_reduce(world, slice, sum);
  } catch (const cohort::error& failed) {
    refused = failed.code() == cohort::errc::not_supported;
  }
  expect(refused);
}

}  // namespace

int main(int argc, char** argv) {
  Kokkos::initialize();
  const int result = checked::run(argc, argv, everything);
  Kokkos::finalize();
  return result;
}
