// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Test double of the part of CUDA's header that tests use: numbers that are exact.

#include <cmath>

namespace fake_gpu {

template <int ExponentBits, int MantissaBits>
struct number_of_8_bits {
  static constexpr int bias = (1 << (ExponentBits - 1)) - 1;

  [[nodiscard]] static unsigned char bits_of(float value) {
    if (value == 0) return 0;
    int exponent = 0;
    const float mantissa = 2 * std::frexp(std::abs(value), &exponent) - 1;
    const int magnitude = ((exponent - 1 + bias) << MantissaBits) +
                          static_cast<int>(std::ldexp(mantissa, MantissaBits));
    return static_cast<unsigned char>(magnitude + (value < 0 ? 128 : 0));
  }
  [[nodiscard]] static float value_of(unsigned char bits) {
    const int magnitude = bits & 127;
    if (magnitude == 0) return 0;
    const int mantissa = magnitude & ((1 << MantissaBits) - 1);
    const float value = std::ldexp(1 + std::ldexp(static_cast<float>(mantissa), -MantissaBits),
                                   (magnitude >> MantissaBits) - bias);
    return bits > 127 ? -value : value;
  }
};

}  // namespace fake_gpu

struct __nv_fp8_e4m3 {
  __nv_fp8_e4m3() = default;
  explicit __nv_fp8_e4m3(float value) : bits(fake_gpu::number_of_8_bits<4, 3>::bits_of(value)) {}
  explicit operator float() const { return fake_gpu::number_of_8_bits<4, 3>::value_of(bits); }
  unsigned char bits;
};
struct __nv_fp8_e5m2 {
  __nv_fp8_e5m2() = default;
  explicit __nv_fp8_e5m2(float value) : bits(fake_gpu::number_of_8_bits<5, 2>::bits_of(value)) {}
  explicit operator float() const { return fake_gpu::number_of_8_bits<5, 2>::value_of(bits); }
  unsigned char bits;
};
