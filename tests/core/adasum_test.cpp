// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Adasum without messages: the formula, and the stages of any number of ranks. Part of the
// executable core.vocabulary.
#include <cohort/core/adasum.hpp>
#include <cohort/core/element.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "support/adasum.hpp"
#include "support/catch.hpp"

namespace {

using cohort::adasum_stage;
using cohort_test::adasum_of_two;
using cohort_test::gradient_of;
using cohort_test::same_bits;

template <class T>
std::vector<T> combined(const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out(a.size());
  cohort::adasum_of(out.data(), a.data(), b.data(), a.size());
  std::vector<T> in_a = a;
  cohort::adasum_of(in_a.data(), in_a.data(), b.data(), a.size());
  std::vector<T> in_b = b;
  cohort::adasum_of(in_b.data(), a.data(), in_b.data(), a.size());
  CHECK(same_bits(in_a, out));
  CHECK(same_bits(in_b, out));
  return out;
}

/// What each rank has when all have done their stages. Whoever waits for what nobody sends fails.
std::vector<std::vector<double>> after_all_steps(int ranks, std::size_t count) {
  std::vector<std::vector<double>> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(gradient_of<double>(rank, count));
  for (int stage = 0; stage < cohort::adasum_stages(ranks); ++stage) {
    const auto before = all;
    for (int rank = 0; rank < ranks; ++rank) {
      const adasum_stage mine = cohort::adasum_stage_of(stage, rank, ranks);
      if (mine.partner < 0) {
        CHECK_FALSE((mine.sends || mine.receives || mine.combines));
        continue;
      }
      REQUIRE(mine.partner < ranks);
      REQUIRE(mine.partner != rank);
      const adasum_stage other = cohort::adasum_stage_of(stage, mine.partner, ranks);
      CHECK(other.partner == rank);
      CHECK(other.sends == mine.receives);
      CHECK(other.receives == mine.sends);
      if (!mine.receives) continue;
      const auto& here = before[static_cast<std::size_t>(rank)];
      const auto& come = before[static_cast<std::size_t>(mine.partner)];
      const bool is_lower = rank < mine.partner;
      all[static_cast<std::size_t>(rank)] =
          mine.combines ? combined(is_lower ? here : come, is_lower ? come : here) : come;
    }
  }
  return all;
}

}  // namespace

TEMPLATE_TEST_CASE("an Adasum of two vectors is what numpy calculates", "[core]", float, double,
                   cohort::f16, cohort::bf16) {
  using T = TestType;
  // Around the ends of blocks and lanes, and through several levels of the sum.
  for (const std::size_t count : {0, 1, 7, 8, 9, 127, 128, 129, 136, 255, 256, 257, 1000, 10'007}) {
    CAPTURE(count);
    const auto a = gradient_of<T>(0, count);
    const auto b = gradient_of<T>(1, count);
    CHECK(same_bits(combined(a, b), adasum_of_two(a, b)));
    CHECK(same_bits(combined(b, a), combined(a, b)));
  }
}

TEMPLATE_TEST_CASE("what is orthogonal is added, what is parallel is averaged", "[core]", float,
                   double, cohort::f16, cohort::bf16) {
  using T = TestType;
  const std::size_t count = 300;
  std::vector<T> a(count, T(0.0F));
  std::vector<T> b(count, T(0.0F));
  std::vector<T> sum(count, T(0.0F));
  for (std::size_t i = 0; i < count; ++i) {
    (i % 2 == 0 ? a : b)[i] = sum[i] = T(static_cast<float>(i % 31) - 15.5F);
  }
  CHECK(same_bits(combined(a, b), sum));

  const auto one = gradient_of<T>(3, count);
  CHECK(same_bits(combined(one, one), one));
  std::vector<T> thrice(count);
  std::vector<T> twice(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(static_cast<int>(i % 9) - 4);
    sum[i] = T(value);
    thrice[i] = T(3 * value);
    twice[i] = T(2 * value);
  }
  const auto mean = combined(sum, thrice);  // 1 - 3/2 and 1 - 1/6: not exact
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(static_cast<double>(static_cast<float>(mean[i])) ==
          Approx(static_cast<double>(static_cast<float>(twice[i]))).margin(1e-6));
  }
}

TEST_CASE("zero, and what is too small to be told from it, is added", "[core]") {
  const std::vector<double> zero(20, 0.0);
  const auto some = gradient_of<double>(0, 20);
  CHECK(same_bits(combined(zero, some), some));
  CHECK(combined(some, zero) == some);
  CHECK(combined(zero, zero) == zero);
  // |a|² underflows, or is smaller than the bound: no division by it.
  for (const double tiny : {std::numeric_limits<double>::denorm_min(), 1e-200, 1e-80}) {
    const std::vector<double> small(20, tiny);
    CHECK(combined(small, small) == std::vector<double>(20, 2 * tiny));
    CHECK(combined(small, some) == some);
  }
  const std::vector<double> above(20, 1e-76);
  CHECK(combined(above, above) == above);
  const std::vector<float> denormal(20, std::numeric_limits<float>::denorm_min());
  CHECK(combined(denormal, denormal) == denormal);  // the squares are in double
  CHECK(combined(std::vector<double>(), std::vector<double>()).empty());
}

TEST_CASE("sums of products do not overflow in the types of elements", "[core]") {
  const std::vector<cohort::f16> half(5000, cohort::f16(65504.0F));
  CHECK(same_bits(combined(half, half), half));
  const std::vector<float> single(5000, std::numeric_limits<float>::max());
  CHECK(combined(single, single) == single);
  const std::vector<double> large(5000, 1e150);
  CHECK(combined(large, large) == large);
}

TEST_CASE("what is not finite makes all of the vector NaN", "[core]") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto all_nan = [](const std::vector<double>& of) {
    for (const double each : of) CHECK(std::isnan(each));
  };
  const auto fine = gradient_of<double>(0, 30);
  for (const double bad : {std::nan(""), infinity, -infinity, 1e200}) {
    CAPTURE(bad);
    auto wrong = gradient_of<double>(1, 30);
    wrong[17] = bad;
    const bool overflows = bad == 1e200;  // with what is finite the other weight stays so
    if (!overflows) all_nan(combined(wrong, fine));
    if (!overflows) all_nan(combined(fine, wrong));
    all_nan(combined(wrong, wrong));
    if (!overflows) all_nan(combined(wrong, std::vector<double>(30, 0.0)));
  }
}

TEST_CASE("the stages of any number of ranks come to the same on all", "[core]") {
  for (int ranks = 1; ranks <= 130; ++ranks) {
    CAPTURE(ranks);
    const auto expected = cohort_test::adasum_of_gradients<double>(ranks, 11);
    for (const auto& each : after_all_steps(ranks, 11)) CHECK(same_bits(each, expected));
  }
}
