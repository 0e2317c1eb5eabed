// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One layer of a small network, forward and backward, and what the last one is judged by.

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>
#include "digits.hpp"

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

/// Turns the outputs for some digits into the error there (softmax less label), and adds to the
/// loss and to the hits.
inline floats judge(floats out, batch shown, double& loss, std::size_t& hits) {
  for (std::size_t i = 0; i < shown.size(); ++i) {
    float* const y = out.data() + 10 * i;
    float sum = 0;
    hits += std::max_element(y, y + 10) - y == shown[i].back();
    for (std::size_t c = 0; c < 10; ++c) sum += y[c] = std::exp(y[c]);
    for (std::size_t c = 0; c < 10; ++c) y[c] /= sum;
    loss -= std::log(y[shown[i].back()]);
    y[shown[i].back()] -= 1;
  }
  return out;
}

}  // namespace support
