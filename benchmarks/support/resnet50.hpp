// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The tensors of a model that people know.

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace bench {

struct tensor_shape {
  std::string name;
  std::size_t count;  ///< of floats
};

/// ResNet-50 for 1 000 classes: 161 tensors of 25 557 032 numbers, in the order in which
/// back-propagation makes their gradients.
[[nodiscard]] inline std::vector<tensor_shape> resnet50() {
  std::vector<tensor_shape> all;
  const auto add = [&](const std::string& name, std::size_t count) {
    all.push_back({name, count});
  };
  const auto convolution = [&](const std::string& name, const std::string& norm, std::size_t in,
                               std::size_t out, std::size_t width) {
    add(name + ".weight", in * out * width * width);
    add(norm + ".weight", out);
    add(norm + ".bias", out);
  };
  convolution("conv1", "bn1", 3, 64, 7);
  std::size_t in = 64;
  constexpr std::size_t blocks[] = {3, 4, 6, 3};
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const std::size_t inner = std::size_t{64} << stage;
    for (std::size_t block = 0; block < blocks[stage]; ++block) {
      const std::string at = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      convolution(at + ".conv1", at + ".bn1", in, inner, 1);
      convolution(at + ".conv2", at + ".bn2", inner, inner, 3);
      convolution(at + ".conv3", at + ".bn3", inner, 4 * inner, 1);
      if (block == 0) convolution(at + ".down", at + ".down.bn", in, 4 * inner, 1);
      in = 4 * inner;
    }
  }
  add("fc.weight", in * 1000);
  add("fc.bias", 1000);
  std::reverse(all.begin(), all.end());
  return all;
}

}  // namespace bench
