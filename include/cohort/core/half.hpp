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

/// Drops the lowest `shift` bits of a magnitude, rounding to the nearest and ties to even.
[[nodiscard]] constexpr std::uint32_t shift_and_round(std::uint32_t magnitude, unsigned shift) {
  const std::uint32_t kept = magnitude >> shift;
  const std::uint32_t rest = magnitude & ((std::uint32_t{1} << shift) - 1);
  const std::uint32_t half = std::uint32_t{1} << (shift - 1);
  return kept + ((rest > half || (rest == half && (kept & 1U) != 0)) ? 1U : 0U);
}

}  // namespace detail

constexpr f16 f16::from_bits(std::uint16_t bits) noexcept {
  f16 result{0.0F};
  result.bits = bits;
  return result;
}

constexpr std::uint16_t f16::encode(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((word >> 16) & 0x8000U);
  const std::uint32_t magnitude = word & 0x7FFFFFFFU;
  std::uint32_t result = 0;
  if (magnitude > 0x7F800000U) {
    result = 0x7E00U;  // every NaN becomes a quiet one
  } else if (magnitude >= 0x47800000U) {
    result = 0x7C00U;  // 65536 and above, infinity included
  } else if (magnitude >= 0x38800000U) {
    // Normal: rebias the exponent from 127 to 15; rounding up may carry into the exponent, which
    // is right, up to infinity.
    result = detail::shift_and_round(magnitude - 0x38000000U, 13);
  } else if (magnitude >= 0x33000000U) {
    // Subnormal: the implicit bit becomes explicit and moves right by the missing exponent.
    const std::uint32_t exponent = magnitude >> 23;
    result = detail::shift_and_round((magnitude & 0x7FFFFFU) | 0x800000U, 126 - exponent);
  }
  return static_cast<std::uint16_t>(sign | result);
}

constexpr float f16::decode(std::uint16_t bits) noexcept {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) {
    return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  // Subnormals are mantissa * 2^-24, exact in float.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

constexpr bf16 bf16::from_bits(std::uint16_t bits) noexcept {
  bf16 result{0.0F};
  result.bits = bits;
  return result;
}

constexpr std::uint16_t bf16::encode(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  if ((word & 0x7FFFFFFFU) > 0x7F800000U) {
    return static_cast<std::uint16_t>((word >> 16) | 0x0040U);  // keep a NaN a NaN
  }
  const std::uint32_t magnitude = detail::shift_and_round(word & 0x7FFFFFFFU, 16);
  return static_cast<std::uint16_t>(((word >> 16) & 0x8000U) | magnitude);
}

}  // namespace cohort
