// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What one thread of a kernel of gpu_train computes, so that both files of kernels compute
/// the same.

#include "gpu_train_kernels.hpp"

#include <cmath>

#if defined(__CUDACC__)
#define GPU_TRAIN_THREAD __host__ __device__ inline
#else
#define GPU_TRAIN_THREAD inline
#endif

namespace kernels {

GPU_TRAIN_THREAD float product(shape by, std::size_t i, const float* in, const float* weights) {
  const std::size_t row = i / by.outs, column = i % by.outs;
  float sum = 0;
  for (std::size_t x = 0; x < by.ins; ++x)
    sum += in[row * by.ins + x] * weights[x * by.outs + column];
  return sum;
}

GPU_TRAIN_THREAD float slope(shape by, std::size_t i, const float* in, const float* error) {
  const std::size_t x = i / by.outs, column = i % by.outs;
  float sum = 0;
  for (std::size_t row = 0; row < by.rows; ++row)
    sum += in[row * by.ins + x] * error[row * by.outs + column];
  return sum;
}

GPU_TRAIN_THREAD float blame(shape by, std::size_t i, const float* in, const float* weights,
                             const float* error) {
  const std::size_t row = i / by.ins, x = i % by.ins;
  float sum = 0;
  for (std::size_t o = 0; o < by.outs; ++o)
    sum += weights[x * by.outs + o] * error[row * by.outs + o];
  return sum * (1 - in[i] * in[i]);
}

struct verdict {
  float loss, hits;
};

/// `y`: the ten outputs for a digit, which become the error there.
GPU_TRAIN_THREAD verdict judged(float* y, int label) {
  int best = 0;
  float sum = 0;
  for (int c = 1; c < 10; ++c) best = y[c] > y[best] ? c : best;
  for (int c = 0; c < 10; ++c) sum += y[c] = std::exp(y[c]);
  for (int c = 0; c < 10; ++c) y[c] /= sum;
  const verdict one{-std::log(y[label]), best == label ? 1.0F : 0.0F};
  y[label] -= 1;
  return one;
}

}  // namespace kernels
