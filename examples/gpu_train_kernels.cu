// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The kernels of gpu_train for a GPU: one thread for each number of the result.

#include "gpu_train_elements.hpp"

#include <stdexcept>
#include <string>

namespace {

template <class Thread>
__global__ void each(std::size_t n, Thread thread) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) thread(i);
}

template <class Thread>
void launch(cudaStream_t on, std::size_t n, Thread thread) {
  constexpr unsigned block = 128;
  if (n == 0) return;  // no grid is empty
  each<<<static_cast<unsigned>((n + block - 1) / block), block, 0, on>>>(n, thread);
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess)
    throw std::runtime_error(std::string("a kernel: ") + cudaGetErrorString(code));
}

// No lambdas: they would need an option of nvcc.
using kernels::shape;

struct activate_thread {
  const float* from;
  float* to;
  __device__ void operator()(std::size_t i) const { to[i] = std::tanh(from[i]); }
};
struct multiply_thread {
  shape by;
  const float *in, *weights;
  float* out;
  __device__ void operator()(std::size_t i) const { out[i] = product(by, i, in, weights); }
};
struct judge_thread {
  float* out;
  const int* labels;
  float* seen;
  __device__ void operator()(std::size_t i) const {
    const kernels::verdict one = kernels::judged(out + 10 * i, labels[i]);
    atomicAdd(seen, one.loss);
    atomicAdd(seen + 1, one.hits);
  }
};
struct gradient_thread {
  shape by;
  const float *in, *error;
  float* result;
  __device__ void operator()(std::size_t i) const { result[i] = slope(by, i, in, error); }
};
struct propagate_thread {
  shape by;
  const float *in, *weights, *error;
  float* result;
  __device__ void operator()(std::size_t i) const { result[i] = blame(by, i, in, weights, error); }
};
struct descend_thread {
  float* weights;
  const float* gradient;
  float rate;
  __device__ void operator()(std::size_t i) const { weights[i] -= rate * gradient[i]; }
};

}  // namespace

namespace kernels {

machine::machine(int /*rank*/) {
  cudaDeviceProp found{};
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaGetDeviceProperties(&found, device) == cudaSuccess)
    note = found.name;
}
machine::~machine() {}

void activate(cudaStream_t on, std::size_t n, const float* from, float* to) {
  launch(on, n, activate_thread{from, to});
}
void multiply(cudaStream_t on, shape by, const float* in, const float* weights, float* out) {
  launch(on, by.rows * by.outs, multiply_thread{by, in, weights, out});
}
void judge(cudaStream_t on, std::size_t rows, float* out, const int* labels, float* seen) {
  launch(on, rows, judge_thread{out, labels, seen});
}
void gradient(cudaStream_t on, shape by, const float* in, const float* error, float* result) {
  launch(on, by.ins * by.outs, gradient_thread{by, in, error, result});
}
void propagate(cudaStream_t on, shape by, const float* in, const float* weights, const float* error,
               float* result) {
  launch(on, by.rows * by.ins, propagate_thread{by, in, weights, error, result});
}
void descend(cudaStream_t on, std::size_t n, float* weights, const float* gradient, float rate) {
  launch(on, n, descend_thread{weights, gradient, rate});
}

}  // namespace kernels
