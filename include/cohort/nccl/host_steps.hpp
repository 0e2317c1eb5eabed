// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::nccl::host_steps`: host code that works on device memory in the order of a stream.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/error.hpp>
#include <cohort/device/pinned_vector.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/nccl/captured_graph.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace cohort::nccl {

/// Copies pieces to pinned memory, has a function called there, and copies back: slow, and always
/// possible. Functions call nothing of CUDA.
class host_steps {
 public:
  /// Through `staging`, whose other uses have an order with `on`. What is captured in `graph`, if
  /// it is not null, goes through the graph's staging, and its functions live as long as the graph.
  host_steps(const device::stream& on, device::pinned_vector<std::byte>& staging,
             captured_calls* graph)
      : on_(on), graph_(graph), staging_(graph != nullptr ? *graph->staging : staging) {}

  /// `count` elements. Without `from` nothing is read.
  struct range {
    void* to;
    std::size_t to_size;  ///< of an element
    const void* from;
    std::size_t from_size;
    std::size_t count;
  };
  /// `function(to, from, elements)`, both in pinned memory: in one place if their sizes are equal.
  template <class Function>
  void apply(const range& over, Function function);

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind way) const {
    device::check(cudaMemcpyAsync(to, from, bytes, way, on_.get()), "cudaMemcpyAsync",
                  on_.device());
  }
  template <class Function>
  struct job {
    Function function;
    void* to;
    const void* from;
    std::size_t count;
    void run() { function(to, from, count); }
  };

  const device::stream& on_;
  captured_calls* graph_;
  device::pinned_vector<std::byte>& staging_;
};

template <class Function>
void host_steps::apply(const range& over, Function function) {
  constexpr std::size_t alignment = 64;
  const bool in_place = over.from == nullptr || over.from_size == over.to_size;
  const std::size_t width = in_place ? over.to_size : over.from_size + over.to_size;
  const std::size_t lost = in_place ? 0 : alignment;
  if (staging_.size() < width + lost) {  // it was left to MPI after a failure, or a huge element
    throw cohort::error(errc::aborted, "elements of " + std::to_string(width) + " bytes, and " +
                                           std::to_string(staging_.size()) +
                                           " bytes of pinned memory on their way");
  }
  const std::size_t most = (staging_.size() - lost) / width;
  for (std::size_t first = 0; first < over.count; first += most) {
    const std::size_t part = std::min(most, over.count - first);
    std::byte* const in = staging_.data();
    const std::size_t begin = (part * over.from_size + alignment - 1) / alignment * alignment;
    std::byte* const out = in_place ? in : in + begin;
    if (over.from != nullptr) {
      copy(in, static_cast<const std::byte*>(over.from) + first * over.from_size,
           part * over.from_size, cudaMemcpyDeviceToHost);
    }
    auto todo = std::make_unique<job<Function>>(job<Function>{function, out, in, part});
    if (graph_ != nullptr) {
      job<Function>* const kept = todo.get();
      graph_->jobs.emplace_back(std::move(todo));
      device::check(cudaLaunchHostFunc(
                        on_.get(),
                        [](void* argument) { static_cast<job<Function>*>(argument)->run(); }, kept),
                    "cudaLaunchHostFunc", on_.device());
    } else {
      device::check(
          cudaLaunchHostFunc(
              on_.get(),
              [](void* argument) {
                const std::unique_ptr<job<Function>> one(static_cast<job<Function>*>(argument));
                one->run();
              },
              todo.get()),
          "cudaLaunchHostFunc", on_.device());
      static_cast<void>(todo.release());
    }
    copy(static_cast<std::byte*>(over.to) + first * over.to_size, out, part * over.to_size,
         cudaMemcpyHostToDevice);
  }
}

}  // namespace cohort::nccl

#endif
