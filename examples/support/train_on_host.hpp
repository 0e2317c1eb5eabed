// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Trains a network on one core of the host, for others to compare with.

#include <utility>
#include "dense_layer.hpp"

namespace support {

struct score {
  double loss = 0;        ///< of each digit of the training, in the last epoch
  std::size_t known = 0;  ///< digits of the test that are recognised
};

/// Steps of equal shares of the digits, with gradients summed over a share.
inline score train_on_host(std::vector<dense_layer> net, const digits& data, std::size_t epochs,
                           std::size_t steps, float rate) {
  const auto show = [&](batch shown, bool learn, score& seen) {
    std::vector<floats> in(1);
    for (const digit& one : shown)
      for (std::size_t p = 0; p < 64; ++p) in[0].push_back(float(one[p]) / 8 - 1);
    for (const dense_layer& l : net) in.push_back(l.forward(in.back()));
    floats error = judge(std::move(in.back()), shown, seen.loss, seen.known);
    for (std::size_t i = net.size(); learn && i-- > 0;) {
      error = net[i].backward(in[i], error);
      for (std::size_t w = 0; w < net[i].weights.size(); ++w)
        net[i].weights[w] -= rate * std::exchange(net[i].gradient[w], 0.F);
    }
  };
  score training, test;
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    training = {};
    for (std::size_t step = 0; step < steps; ++step)
      show(part(data.training, step, steps), true, training);
  }
  show(data.held_out, false, test);
  return {training.loss / double(data.training.size()), test.known};
}

}  // namespace support
