// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Elements, half-precision numbers, and which reductions are defined for which elements.

#include <cohort/core/element.hpp>
#include <cohort/core/reduction.hpp>

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/wrapped.hpp"

namespace test {

struct particle {
  double position[3];
  int id;
};
enum class color : short { red, green };
struct tag {};
class unknown {
 public:
  explicit unknown(int value) : value_(value) {}

 private:
  int value_;
};

}  // namespace test

namespace {

using namespace test;
using cohort::bf16;
using cohort::element;
using cohort::element_type;
using cohort::element_type_of;
using cohort::f16;
using cohort::located;
using cohort::named_element;
using cohort::reduction_for;
namespace op = cohort::op;

static_assert(element<char> && element<bool> && element<long double> && element<std::byte>);
static_assert(element<f16> && element<bf16> && element<std::complex<float>>);
static_assert(element<std::array<std::array<double, 3>, 2>> && !element<std::array<int, 0>>);
static_assert(element<particle> && element<color> && element<located<double>>);
static_assert(element<metres> && element<stamp> && !element<unknown>);
static_assert(!element<tag> && !element<op::sum_t> && !element<std::string> && !element<int*>);
static_assert(!element<const int> && !element<void> && !element<int&> && !element<std::span<int>>);

static_assert(element_type_of<long> == element_type::int64);
static_assert(element_type_of<unsigned char> == element_type::uint8);
static_assert(element_type_of<char16_t> == element_type::uint16);
static_assert(element_type_of<std::complex<double>> == element_type::complex128);
static_assert(element_type_of<metres> == element_type::float64);
static_assert(!named_element<particle> && !named_element<stamp> && !named_element<color>);

// Pairs that MPI defines.
static_assert(reduction_for<op::sum_t, int> && reduction_for<op::sum_t, std::complex<double>>);
static_assert(reduction_for<op::sum_t, char> && reduction_for<op::max_t, f16>);
static_assert(reduction_for<op::product_t, bf16> && reduction_for<op::min_t, metres>);
static_assert(reduction_for<op::average_t, float> && reduction_for<op::average_t, bf16>);
static_assert(reduction_for<op::logical_and_t, bool> && reduction_for<op::logical_xor_t, int>);
static_assert(reduction_for<op::bit_or_t, unsigned> && reduction_for<op::bit_and_t, std::byte>);
static_assert(reduction_for<op::min_loc_t, located<double>>);
static_assert(reduction_for<op::max_loc_t, located<unsigned>>);
static_assert(reduction_for<const op::sum_t&, double>);
static_assert(reduction_for<op::adasum_t, float> && reduction_for<op::adasum_t, bf16>);
static_assert(reduction_for<op::adasum_t, metres> && reduction_for<op::adasum_t, f16>);
static_assert(!cohort::elementwise_reduction_for<op::adasum_t, double>);
static_assert(cohort::elementwise_reduction_for<op::average_t, double>);

// Pairs that MPI leaves undefined.
static_assert(!reduction_for<op::sum_t, bool> && !reduction_for<op::sum_t, std::byte>);
static_assert(!reduction_for<op::sum_t, particle> && !reduction_for<op::sum_t, color>);
static_assert(!reduction_for<op::average_t, int> && !reduction_for<op::bit_or_t, bool>);
static_assert(!reduction_for<op::bit_and_t, double> && !reduction_for<op::logical_and_t, float>);
static_assert(!reduction_for<op::min_t, std::complex<float>> && !reduction_for<op::max_t, bool>);
static_assert(!reduction_for<op::min_loc_t, double> && !reduction_for<op::sum_t, located<double>>);
static_assert(!reduction_for<op::adasum_t, int> && !reduction_for<op::adasum_t, long double>);
static_assert(!reduction_for<op::adasum_t, std::complex<float>>);
static_assert(!reduction_for<int, int> && !cohort::reduction<int>);

constexpr auto join =
    cohort::user_op{[](const particle& a, const particle& b) { return a.id < b.id ? b : a; },
                    cohort::non_commutative};
static_assert(reduction_for<decltype(join), particle> && !reduction_for<decltype(join), double>);
static_assert(!cohort::commutes<std::remove_const_t<decltype(join)>>);
static_assert(cohort::commutes<op::sum_t>);

}  // namespace

TEST_CASE("every f16 survives the way through float") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = f16::from_bits(static_cast<std::uint16_t>(bits));
    const float value = half;
    if (std::isnan(value)) {
      CHECK(std::isnan(static_cast<float>(f16(value))));
    } else if (f16(value).bits != half.bits) {
      FAIL("f16 " << bits);
    }
  }
}

TEST_CASE("every bf16 survives the way through float") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = bf16::from_bits(static_cast<std::uint16_t>(bits));
    const float value = half;
    if (std::isnan(value)) {
      CHECK(std::isnan(static_cast<float>(bf16(value))));
    } else if (bf16(value).bits != half.bits) {
      FAIL("bf16 " << bits);
    }
  }
}

TEST_CASE("known f16 values have their bits") {
  CHECK(f16(1.0F).bits == 0x3C00);
  CHECK(f16(-2.0F).bits == 0xC000);
  CHECK(f16(65504.0F).bits == 0x7BFF);
  CHECK(f16(0x1p-14F).bits == 0x0400);
  CHECK(f16(0x1p-24F).bits == 0x0001);
  CHECK(f16(std::numeric_limits<float>::infinity()).bits == 0x7C00);
}

TEST_CASE("f16 rounds to the nearest, ties to even") {
  CHECK(f16(1.0F + 0x1p-11F).bits == 0x3C00);      // tie, to even below
  CHECK(f16(1.0F + 3 * 0x1p-11F).bits == 0x3C02);  // tie, to even above
  CHECK(f16(1.0F + 0x1.02p-11F).bits == 0x3C01);   // above the tie
  CHECK(f16(65519.0F).bits == 0x7BFF);             // below the tie with infinity
  CHECK(f16(65520.0F).bits == 0x7C00);             // the tie with infinity
  CHECK(f16(0x1p-25F).bits == 0x0000);             // tie with zero
  CHECK(f16(0x1.01p-25F).bits == 0x0001);          // above it
  CHECK(f16(0x1.FFEp-15F).bits == 0x0400);         // a subnormal that rounds up to normal
}

TEST_CASE("between two neighbours f16 takes the nearer, and at the middle the even one") {
  for (std::uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = f16::from_bits(static_cast<std::uint16_t>(bits));
    const float high = f16::from_bits(static_cast<std::uint16_t>(bits + 1));
    const float middle = (low + high) / 2;  // exact
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    const bool right = f16(middle).bits == even && f16(-middle).bits == (even | 0x8000U) &&
                       f16(std::nextafter(middle, low)).bits == bits &&
                       f16(std::nextafter(middle, high)).bits == bits + 1;
    if (!right) FAIL("f16 " << bits);
  }
}

TEST_CASE("bf16 rounds to the nearest, ties to even, and keeps NaN") {
  CHECK(bf16(1.0F).bits == 0x3F80);
  CHECK(bf16(1.0F + 0x1p-8F).bits == 0x3F80);
  CHECK(bf16(1.0F + 3 * 0x1p-8F).bits == 0x3F82);
  CHECK(bf16(std::numeric_limits<float>::max()).bits == 0x7F80);
  CHECK(std::isnan(static_cast<float>(bf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST_CASE("half-precision numbers keep signed zeros and infinities, and overflow to infinity") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(f16(-0.0F).bits == 0x8000);
  CHECK(bf16(-0.0F).bits == 0x8000);
  CHECK(static_cast<float>(f16(-infinity)) == -infinity);
  CHECK(static_cast<float>(bf16(infinity)) == infinity);
  CHECK(static_cast<float>(f16(-1e9F)) == -infinity);
  CHECK(static_cast<float>(bf16(std::numeric_limits<float>::max())) == infinity);
  CHECK(f16(0x1p-26F).bits == 0);                  // below half of the smallest number
  CHECK(f16(0x1.8p-24F).bits == 2);                // a tie between subnormals, to even
  static_assert(f16(1.5F) + f16(2.25F) == 3.75F);  // computed as float
}

TEST_CASE("operations combine two values as MPI does") {
  CHECK(op::sum.combine<char>(40, 2) == 42);
  CHECK(op::product.combine(f16(1.5F), f16(2.0F)) == 3.0F);
  CHECK(op::min.combine(3, 2) == 2);
  CHECK(op::max.combine(bf16(3.0F), bf16(2.0F)) == 3.0F);
  CHECK(op::logical_and.combine(3, 4) == 1);
  CHECK_FALSE(op::logical_xor.combine(true, true));
  CHECK(op::logical_or.combine(0, 7) == 1);
  CHECK(op::bit_and.combine(6, 3) == 2);
  CHECK(op::bit_or.combine(6, 3) == 7);
  CHECK(op::bit_xor.combine(6, 3) == 5);
}

TEST_CASE("equal values give the smaller location") {
  using pair = located<float>;
  CHECK(op::min_loc.combine(pair{1, 5}, pair{1, 3}) == pair{1, 3});
  CHECK(op::min_loc.combine(pair{1, 5}, pair{2, 3}) == pair{1, 5});
  CHECK(op::max_loc.combine(pair{1, 5}, pair{1, 7}) == pair{1, 5});
  CHECK(op::max_loc.combine(pair{1, 5}, pair{2, 7}) == pair{2, 7});
}

TEST_CASE("averages are sums divided by the number of ranks") {
  std::vector<double> sums{4, 8, 12, 16};
  cohort::apply_average(cohort::view_of(sums), 4);
  CHECK(sums == std::vector<double>{1, 2, 3, 4});
  cohort::apply_average(cohort::strided_view<double>(sums.data(), 2, 1, 2).view(), 2);
  CHECK(sums == std::vector<double>{0.5, 2, 1.5, 4});
  std::vector<f16> halves{f16(3.0F)};
  cohort::apply_average(cohort::view_of(halves), 2);
  CHECK(halves[0] == 1.5F);
  std::vector<metres> lengths{metres(6)};
  cohort::apply_average(cohort::view_of(lengths), 4);
  CHECK(lengths[0].value() == 1.5);
}
