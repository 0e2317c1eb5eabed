// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One layer of a small network, forward and backward.

#include <cmath>
#include <random>
#include <vector>

namespace support {

using floats = std::vector<float>;

/// A fully connected layer behind tanh; its gradient sums up until somebody uses it.
struct dense_layer {
  std::size_t ins, outs;
  floats weights, gradient;
  dense_layer(std::size_t i, std::size_t o, unsigned seed)
      : ins{i}, outs{o}, weights(i * o), gradient(i * o) {
    for (std::mt19937 random{seed}; float& w : weights) w = float(random()) * 0x1p-33F - 0.25F;
  }
  floats forward(floats& in) const {
    floats out(in.size() / ins * outs);
    for (float& x : in) x = std::tanh(x);
    for (std::size_t x = 0; x < in.size(); ++x)
      for (std::size_t o = 0; o < outs; ++o)
        out[x / ins * outs + o] += in[x] * weights[x % ins * outs + o];
    return out;
  }
  floats backward(const floats& in, const floats& error) {
    floats below(in.size());
    for (std::size_t x = 0; x < in.size(); ++x) {
      for (std::size_t o = 0; o < outs; ++o) {
        gradient[x % ins * outs + o] += in[x] * error[x / ins * outs + o];
        below[x] += weights[x % ins * outs + o] * error[x / ins * outs + o];
      }
      below[x] *= 1 - in[x] * in[x];
    }
    return below;
  }
};

}  // namespace support
