// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The kernels of gpu_train: a small network in device memory. There are two files of them:
/// gpu_train_kernels.cu for CUDA's compiler, and gpu_train_kernels_host.cpp for the test double.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace kernels {

/// What the kernels run on, while it lives.
struct machine {
  explicit machine(int rank);  // of this process
  ~machine();
  machine(const machine&) = delete;
  std::string note;  // to be printed beside results
};

/// Of one layer and a batch. Matrices lie row by row: in[rows][ins], weights[ins][outs],
/// out[rows][outs].
struct shape {
  std::size_t rows, ins, outs;
};

// Each queues a kernel on a stream whose device is the current one, and returns. All pointers are
// to device memory. Throws std::runtime_error if CUDA takes no kernel.

/// to = tanh(from)
void activate(cudaStream_t on, std::size_t n, const float* from, float* to);
/// out = in * weights
void multiply(cudaStream_t on, shape by, const float* in, const float* weights, float* out);
/// Turns outputs for ten classes into the error there, softmax less label. Adds to seen[0] the
/// loss, and to seen[1] how many digits are recognised.
void judge(cudaStream_t on, std::size_t rows, float* out, const int* labels, float* seen);
/// gradient = in^T * error
void gradient(cudaStream_t on, shape by, const float* in, const float* error, float* result);
/// The error at the inputs, before their tanh.
void propagate(cudaStream_t on, shape by, const float* in, const float* weights, const float* error,
               float* result);
/// weights -= rate * gradient
void descend(cudaStream_t on, std::size_t n, float* weights, const float* gradient, float rate);

}  // namespace kernels
