// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The two half-precision number types, stored in 2 bytes and computed with as float.

#include <bit>
#include <cstdint>

namespace cohort {

/// IEEE 754 binary16: 5 exponent bits, 10 mantissa bits. Converts to float exactly; from float by
/// rounding to the nearest, ties to even. Arithmetic happens in float.
struct f16 {
  f16() = default;
  explicit constexpr f16(float value) noexcept : bits(encode(value)) {}
  constexpr operator float() const noexcept { return decode(bits); }  // NOLINT(*-explicit-*)

  [[nodiscard]] static constexpr f16 from_bits(std::uint16_t bits) noexcept;

  std::uint16_t bits;

 private:
  [[nodiscard]] static constexpr std::uint16_t encode(float value) noexcept;
  [[nodiscard]] static constexpr float decode(std::uint16_t bits) noexcept;
};

/// bfloat16: the upper half of a float (8 exponent bits, 7 mantissa bits). Converts to float
/// exactly; from float by rounding to the nearest, ties to even. Arithmetic happens in float.
struct bf16 {
  bf16() = default;
  explicit constexpr bf16(float value) noexcept : bits(encode(value)) {}
  constexpr operator float() const noexcept {  // NOLINT(*-explicit-*)
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }

  [[nodiscard]] static constexpr bf16 from_bits(std::uint16_t bits) noexcept;

  std::uint16_t bits;

 private:
  [[nodiscard]] static constexpr std::uint16_t encode(float value) noexcept;
};

static_assert(sizeof(f16) == 2 && sizeof(bf16) == 2);

namespace detail {

/// All bits where a < b; of magnitudes, which have no highest bit.
[[nodiscard]] constexpr std::uint32_t mask_if_less(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(a - b) >> 31);
}

/// Drops the lowest `shift` bits of a magnitude, rounding to the nearest and ties to even.
[[nodiscard]] constexpr std::uint32_t shift_and_round(std::uint32_t magnitude, unsigned shift) {
  const std::uint32_t below_half = (std::uint32_t{1} << (shift - 1)) - 1;
  return (magnitude + below_half + ((magnitude >> shift) & 1U)) >> shift;
}

}  // namespace detail

// The conversions choose by masks: where there are conditions, compilers make branches of them and
// do not vectorise loops.

constexpr f16 f16::from_bits(std::uint16_t bits) noexcept {
  f16 result{0.0F};
  result.bits = bits;
  return result;
}

constexpr std::uint16_t f16::encode(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (word >> 16) & 0x8000U;
  const std::uint32_t magnitude = word & 0x7FFFFFFFU;
  const std::uint32_t is_small = detail::mask_if_less(magnitude, 0x38800000U);
  const std::uint32_t is_large = detail::mask_if_less(0x477FFFFFU, magnitude);
  // Normal: rebias the exponent from 127 to 15; rounding up may carry into the exponent, which is
  // right, up to infinity.
  const std::uint32_t normal = detail::shift_and_round(magnitude - 0x38000000U, 13);
  // Subnormal: the lowest bit of 0.5F is that of the smallest f16, so the addition rounds.
  const float rounded = std::bit_cast<float>(magnitude & is_small) + 0.5F;
  const std::uint32_t small = std::bit_cast<std::uint32_t>(rounded) - 0x3F000000U;
  // 65536 and above, infinity included; every NaN becomes a quiet one.
  const std::uint32_t large = 0x7C00U | (detail::mask_if_less(0x7F800000U, magnitude) & 0x0200U);
  return static_cast<std::uint16_t>(sign | small | (large & is_large) |
                                    (normal & ~(is_small | is_large)));
}

constexpr float f16::decode(std::uint16_t bits) noexcept {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  const std::uint32_t magnitude = std::uint32_t{bits & 0x7FFFU} << 13;
  // Rebias the exponent. A subnormal gets the leading bit that it lacks, and it is taken off again,
  // exactly.
  const std::uint32_t is_small = detail::mask_if_less(magnitude, 0x00800000U);
  const std::uint32_t rebiased = magnitude + 0x38000000U + (is_small & 0x00800000U);
  const float finite =
      std::bit_cast<float>(rebiased) - std::bit_cast<float>(is_small & 0x38800000U);
  // Infinity and NaN: all bits of the exponent.
  const std::uint32_t above = detail::mask_if_less(0x0F7FFFFFU, magnitude) & 0x7F800000U;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(finite) | above);
}

constexpr bf16 bf16::from_bits(std::uint16_t bits) noexcept {
  bf16 result{0.0F};
  result.bits = bits;
  return result;
}

constexpr std::uint16_t bf16::encode(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t is_nan = detail::mask_if_less(0x7F800000U, word & 0x7FFFFFFFU);
  const std::uint32_t nan = (word >> 16) | 0x0040U;  // keeps a NaN a NaN
  return static_cast<std::uint16_t>((nan & is_nan) | (detail::shift_and_round(word, 16) & ~is_nan));
}

}  // namespace cohort
