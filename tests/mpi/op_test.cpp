// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Reduction operations: every pair of operation and element gives what MPI promises.

#include <cohort/core/reduction.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/op.hpp>

#include <array>
#include <complex>
#include <cstdint>
#include <numeric>
#include <vector>

#include "support/catch.hpp"

namespace test {

/// Affine maps x -> a x + b; composition does not commute.
struct affine {
  std::int64_t a;
  std::int64_t b;
  friend bool operator==(const affine&, const affine&) = default;
};
struct metres {
  double value;
};
struct halves {
  cohort::f16 value;
};

}  // namespace test

template <>
struct cohort::element_traits<test::metres> {
  using as = double;
};
template <>
struct cohort::element_traits<test::halves> {
  using as = cohort::f16;
};

namespace {

namespace mpi = cohort::mpi;
namespace op = cohort::op;
using cohort::bf16;
using cohort::f16;
using cohort::located;
using namespace test;

int rank() { return mpi::comm_ref::world().rank(); }
int size() { return mpi::comm_ref::world().size(); }

template <class Op, class T>
T all_reduce(const Op&, T value) {
  T result{};
  mpi::check(MPI_Allreduce(&value, &result, 1, mpi::reduction_type_of<T>(), mpi::op_of<Op, T>(),
                           MPI_COMM_WORLD),
             "MPI_Allreduce");
  return result;
}

template <class T>
void check_numbers() {
  const T mine = static_cast<T>(static_cast<float>(rank() + 1));
  const auto n = static_cast<float>(size());
  CHECK(static_cast<float>(all_reduce(op::sum, mine)) == n * (n + 1) / 2);
  CHECK(static_cast<float>(all_reduce(op::max, mine)) == n);
  CHECK(static_cast<float>(all_reduce(op::min, mine)) == 1.0F);
  float factorial = 1;
  for (int i = 2; i <= size(); ++i) factorial *= static_cast<float>(i);
  CHECK(static_cast<float>(all_reduce(op::product, mine)) == factorial);
}

template <class T>
void check_truth() {
  CHECK(all_reduce(op::logical_and, T(1)) == T(1));
  CHECK(all_reduce(op::logical_and, T(rank() != 0)) == T(0));
  CHECK(all_reduce(op::logical_or, T(rank() == 0)) == T(1));
  CHECK(all_reduce(op::logical_xor, T(1)) == T(size() % 2));
}

template <class T>
void check_bits() {
  const T mine = static_cast<T>(1 << rank());
  CHECK(all_reduce(op::bit_or, mine) == static_cast<T>((1 << size()) - 1));
  CHECK(all_reduce(op::bit_xor, mine) == static_cast<T>((1 << size()) - 1));
  CHECK(all_reduce(op::bit_and, mine) == static_cast<T>(size() == 1 ? 1 : 0));
}

template <class T>
void check_locations() {
  using pair = located<T>;
  const pair mine{static_cast<T>(static_cast<float>(10 - rank() / 2)), rank()};
  const pair least = all_reduce(op::min_loc, mine);
  const int last_pair = (size() - 1) / 2 * 2;  // the lower rank of the last pair of equals
  CHECK(static_cast<float>(least.value) == static_cast<float>(10 - (size() - 1) / 2));
  CHECK(least.location == last_pair);
  const pair most = all_reduce(op::max_loc, mine);
  CHECK(static_cast<float>(most.value) == 10.0F);
  CHECK(most.location == 0);
}

}  // namespace

TEST_CASE("numbers of every type are added, multiplied and compared") {
  check_numbers<char>();
  check_numbers<signed char>();
  check_numbers<unsigned char>();
  check_numbers<short>();
  check_numbers<unsigned short>();
  check_numbers<int>();
  check_numbers<unsigned>();
  check_numbers<long>();
  check_numbers<unsigned long>();
  check_numbers<long long>();
  check_numbers<unsigned long long>();
  check_numbers<wchar_t>();
  check_numbers<char16_t>();
  check_numbers<float>();
  check_numbers<double>();
  check_numbers<long double>();
  check_numbers<f16>();
  check_numbers<bf16>();
}

TEST_CASE("complex numbers are added and multiplied") {
  using number = std::complex<double>;
  const auto n = static_cast<double>(size());
  CHECK(all_reduce(op::sum, number(1, rank())) == number(n, n * (n - 1) / 2));
  number power = 1;
  for (int i = 0; i < size(); ++i) power *= number(0, 1);
  CHECK(all_reduce(op::product, number(0, 1)) == power);
}

TEST_CASE("truth is combined for integers and bool") {
  check_truth<int>();
  check_truth<unsigned char>();
  check_truth<long>();
  check_truth<bool>();
  check_truth<char>();
}

TEST_CASE("bits are combined for integers and bytes") {
  check_bits<unsigned>();
  check_bits<long long>();
  check_bits<char>();
  check_bits<std::byte>();
}

TEST_CASE("the smallest and the largest value know where they are") {
  check_locations<float>();
  check_locations<double>();
  check_locations<long double>();
  check_locations<short>();
  check_locations<int>();
  check_locations<long>();
  check_locations<long long>();  // these have no pair type in MPI
  check_locations<unsigned>();
  check_locations<f16>();
}

TEST_CASE("an average is a sum until it is divided") {
  CHECK(mpi::op_of<op::average_t, double>() == MPI_SUM);
  double value = all_reduce(op::average, static_cast<double>(rank()));
  cohort::apply_average(cohort::view_of(value), size());
  CHECK(value == (size() - 1) / 2.0);
  f16 half = all_reduce(op::average, f16(static_cast<float>(rank())));
  cohort::apply_average(cohort::view_of(half), size());
  CHECK(half == static_cast<float>(size() - 1) / 2.0F);
}

TEST_CASE("types that stand for a number reduce as that number") {
  CHECK(mpi::op_of<op::sum_t, metres>() == MPI_SUM);
  CHECK(all_reduce(op::sum, metres{2}).value == 2 * size());
  CHECK(all_reduce(op::sum, halves{f16(2.0F)}).value == 2.0F * static_cast<float>(size()));
  CHECK(mpi::op_of<op::sum_t, halves>() == mpi::op_of<op::sum_t, f16>());
}

TEST_CASE("a commutative function of the user's reduces") {
  const cohort::user_op either{[](double a, double b) { return a + b - a * b; },
                               cohort::commutative};
  CHECK(all_reduce(either, 1.0) == 1.0);
  double expected = 0;
  for (int i = 0; i < size(); ++i) expected = expected + 0.5 - expected * 0.5;
  CHECK(all_reduce(either, 0.5) == Approx(expected));
}

TEST_CASE("a non-commutative function of the user's keeps the order of the ranks") {
  const cohort::user_op then{
      [](const affine& f, const affine& g) { return affine{f.a * g.a, f.b * g.a + g.b}; },
      cohort::non_commutative};
  affine expected{1, 0};
  for (int i = 0; i < size(); ++i) {
    expected = then.combine(expected, affine{i + 2, i + 1});
  }
  CHECK(all_reduce(then, affine{rank() + 2, rank() + 1}) == expected);
  int commutes = -1;
  MPI_Op_commutative(mpi::op_of<decltype(then), affine>(), &commutes);
  CHECK(commutes == 0);
}

TEST_CASE("a user function sees every element of a long array of aggregates") {
  const cohort::user_op add{
      [](const affine& f, const affine& g) { return affine{f.a + g.a, f.b + g.b}; },
      cohort::commutative};
  std::vector<affine> values(10007);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = {static_cast<std::int64_t>(i), rank()};
  }
  mpi::check(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()),
                           mpi::reduction_type_of<affine>(), mpi::op_of<decltype(add), affine>(),
                           MPI_COMM_WORLD),
             "MPI_Allreduce");
  bool right = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    right = right &&
            values[i] == affine{static_cast<std::int64_t>(i) * size(), size() * (size() - 1) / 2};
  }
  CHECK(right);
}

TEST_CASE("operations of the library's own are made once per operation and element") {
  CHECK(mpi::op_of<op::sum_t, f16>() == mpi::op_of<op::sum_t, f16>());
  CHECK(mpi::op_of<op::sum_t, f16>() != mpi::op_of<op::sum_t, bf16>());
  CHECK(mpi::op_of<op::sum_t, f16>() != mpi::op_of<op::product_t, f16>());
}
