// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Calls that were captured once, and are launched again and again.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/device/stream.hpp>
#include <cohort/device/vector.hpp>
#include <cohort/nccl/backend/extras.hpp>
#include <cohort/nccl/life/state.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// A graph of CUDA, the stream on which it was captured, and the memory that it uses.
class captured_calls final : public call_graph {
 public:
  captured_calls(std::string whose, int device)
      : call_graph(std::move(whose),
                   device::stream(device::stream_options{.device = device, .high_priority = true})),
        generation_(device::state_of(device).generation()) {}
  ~captured_calls() override {
    abandon();
    static_cast<void>(end());
  }

  void begin() override {
    device::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed),
                  "cudaStreamBeginCapture", stream.device());
    capturing_ = true;
  }
  void finish() override {
    if (!capturing_) return;
    capturing_ = false;
    cudaGraph_t graph = nullptr;
    device::check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture",
                  stream.device());
    const cudaError_t code = cudaGraphInstantiate(&native_, graph, 0);
    static_cast<void>(cudaGraphDestroy(graph));
    if (code != cudaSuccess) native_ = nullptr;
    device::check(code, "cudaGraphInstantiate", stream.device());
  }
  /// A capture that has failed.
  void abandon() noexcept override {
    if (!std::exchange(capturing_, false) || !is_there()) return;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess) {
      static_cast<void>(cudaGraphDestroy(graph));
    } else {
      static_cast<void>(cudaGetLastError());
    }
  }
  /// Gives back what it has, unless it is being captured. CUDA finishes what was launched. Whether
  /// there was a graph.
  bool end() noexcept override {
    if (capturing_) return false;
    const bool had = native_ != nullptr;
    if (had && is_there()) {
      if (const cudaError_t code = cudaGraphExecDestroy(native_); code != cudaSuccess) {
        static_cast<void>(cudaGetLastError());  // the user's next look is not at this
        device::detail::note(code, stream.device(), generation_);
      }
    }
    native_ = nullptr;
    memory = device::vector<std::byte>();
    used_.reset();
    leases.clear();
    staging.reset();
    retire_host_calls();
    return had;
  }
  [[nodiscard]] std::shared_ptr<const void> used() override {
    if (!used_) {
      auto all = std::make_shared<std::vector<std::shared_ptr<const void>>>(leases);
      all->insert(all->end(), host_calls.begin(), host_calls.end());
      all->push_back(memory.lease());
      all->push_back(staging);
      used_ = std::move(all);
    }
    return used_;
  }
  [[nodiscard]] cudaGraphExec_t native() const noexcept override { return native_; }

 private:
  // The stream waits for each replay. If the device has gone, nobody can say whether a function
  // still runs.
  void retire_host_calls() noexcept {
    if (host_calls.empty()) return;
    try {
      auto going =
          std::make_unique<std::vector<std::shared_ptr<const void>>>(std::move(host_calls));
      host_calls.clear();
      const auto free_them = [](void* all) {
        delete static_cast<std::vector<std::shared_ptr<const void>>*>(all);
      };
      if (is_there() && cudaLaunchHostFunc(stream.get(), free_them, going.get()) == cudaSuccess) {
        static_cast<void>(going.release());
        return;
      }
      static_cast<void>(cudaGetLastError());
      detail::left_to_nccl().add(std::move(going));
    } catch (...) {  // no memory, and so nothing can be freed in time
    }
  }
  [[nodiscard]] bool is_there() const noexcept {
    return device::state_of(stream.device()).may_free(generation_);
  }
  std::shared_ptr<const void> used_;
  std::uint32_t generation_;
  cudaGraphExec_t native_ = nullptr;
  bool capturing_ = false;
};

}  // namespace cohort::nccl

#endif
