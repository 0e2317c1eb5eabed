// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The kernels of gpu_train as functions of the host, which the double of CUDA's runtime runs in the
// order of the stream. It is no GPU, and no time it takes says anything about one.

#include "gpu_train_elements.hpp"

#include "support/fake_gpu/control.hpp"

#include <functional>
#include <memory>
#include <stdexcept>

namespace {

/// A kernel: `body` runs on the thread of the stream, where it may touch device memory.
void launch(cudaStream_t on, std::function<void()> body) {
  auto kept = std::make_unique<std::function<void()>>(std::move(body));
  const auto run = [](void* argument) {
    const std::unique_ptr<std::function<void()>> mine(
        static_cast<std::function<void()>*>(argument));
    (*mine)();
  };
  if (fake_gpu::launch(on, run, kept.get()) != cudaSuccess)
    throw std::runtime_error("a kernel: the double takes none");
  static_cast<void>(kept.release());
}

/// Where n elements can be touched; the double breaks the device where that is not so.
template <class T>
T* touch(T* pointer, std::size_t n) {
  void* const address = const_cast<std::remove_const_t<T>*>(pointer);
  void* const found = fake_gpu::access(address, n * sizeof(T));
  if (found == nullptr) throw std::logic_error("a kernel touches what it must not");
  return static_cast<T*>(found);
}

}  // namespace

namespace kernels {

machine::machine(int rank) : note("test double: no GPU figures") {
  fake_gpu::restart(1);
  fake_gpu::set_bus_id(0, 100 + rank);  // each rank has another one
}
machine::~machine() { fake_gpu::restart(0); }

void activate(cudaStream_t on, std::size_t n, const float* from, float* to) {
  if (n == 0) return;
  launch(on, [=] {
    const float* const in = touch(from, n);
    float* const out = touch(to, n);
    for (std::size_t i = 0; i < n; ++i) out[i] = std::tanh(in[i]);
  });
}

void multiply(cudaStream_t on, shape by, const float* in, const float* weights, float* out) {
  if (by.rows == 0) return;
  launch(on, [=] {
    const float* const x = touch(in, by.rows * by.ins);
    const float* const w = touch(weights, by.ins * by.outs);
    float* const y = touch(out, by.rows * by.outs);
    for (std::size_t i = 0; i < by.rows * by.outs; ++i) y[i] = product(by, i, x, w);
  });
}

void judge(cudaStream_t on, std::size_t rows, float* out, const int* labels, float* seen) {
  if (rows == 0) return;
  launch(on, [=] {
    float* const y = touch(out, 10 * rows);
    const int* const right = touch(labels, rows);
    float* const sum = touch(seen, 2);
    for (std::size_t i = 0; i < rows; ++i) {
      const verdict one = judged(y + 10 * i, right[i]);
      sum[0] += one.loss;
      sum[1] += one.hits;
    }
  });
}

void gradient(cudaStream_t on, shape by, const float* in, const float* error, float* result) {
  launch(on, [=] {
    const float* const x = by.rows == 0 ? nullptr : touch(in, by.rows * by.ins);
    const float* const e = by.rows == 0 ? nullptr : touch(error, by.rows * by.outs);
    float* const g = touch(result, by.ins * by.outs);
    for (std::size_t i = 0; i < by.ins * by.outs; ++i) g[i] = slope(by, i, x, e);
  });
}

void propagate(cudaStream_t on, shape by, const float* in, const float* weights, const float* error,
               float* result) {
  if (by.rows == 0) return;
  launch(on, [=] {
    const float* const x = touch(in, by.rows * by.ins);
    const float* const w = touch(weights, by.ins * by.outs);
    const float* const e = touch(error, by.rows * by.outs);
    float* const below = touch(result, by.rows * by.ins);
    for (std::size_t i = 0; i < by.rows * by.ins; ++i) below[i] = blame(by, i, x, w, e);
  });
}

void descend(cudaStream_t on, std::size_t n, float* weights, const float* gradient, float rate) {
  launch(on, [=] {
    float* const w = touch(weights, n);
    const float* const g = touch(gradient, n);
    for (std::size_t i = 0; i < n; ++i) w[i] -= rate * g[i];
  });
}

}  // namespace kernels
