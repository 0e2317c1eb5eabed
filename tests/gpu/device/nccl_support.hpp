// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the tests of NCCL's double share.

#include "support/catch.hpp"
#include "support/fake_gpu/control.hpp"
#include "support/fake_gpu/nccl_control.hpp"
#include "support/patience.hpp"

#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

namespace cohort_test {

/// Whether it becomes true within a time that no machine needs.
template <class Predicate>
bool becomes(Predicate until) {
  const auto end =
      std::chrono::steady_clock::now() + cohort_test::patient(std::chrono::seconds(20));
  while (!until()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

inline ncclResult_t state(ncclComm_t comm) {
  ncclResult_t now = ncclInternalError;
  REQUIRE(ncclCommGetAsyncError(comm, &now) == ncclSuccess);
  return now;
}

/// The state of a communicator when its call is no longer in progress.
inline ncclResult_t settle(ncclComm_t comm) {
  REQUIRE(becomes([&] { return state(comm) != ncclInProgress; }));
  return state(comm);
}

inline ncclConfig_t non_blocking(const char* name = nullptr) {
  ncclConfig_t made = NCCL_CONFIG_INITIALIZER;
  made.blocking = 0;
  made.commName = name;
  return made;
}

inline bool idle(cudaStream_t stream) {
  const cudaError_t code = cudaStreamQuery(stream);
  static_cast<void>(cudaGetLastError());
  return code == cudaSuccess;
}

/// Values of a device that the host can have and give.
template <class T>
class array {
 public:
  explicit array(std::size_t size, cudaStream_t stream) : size_(size), stream_(stream) {
    REQUIRE(cudaMallocAsync(&memory_, size * sizeof(T), stream) == cudaSuccess);
  }
  array(const std::vector<T>& values, cudaStream_t stream) : array(values.size(), stream) {
    REQUIRE(cudaMemcpyAsync(memory_, values.data(), size_ * sizeof(T), cudaMemcpyDefault, stream) ==
            cudaSuccess);
  }
  array(const array&) = delete;
  array& operator=(const array&) = delete;

  [[nodiscard]] T* data() const { return static_cast<T*>(memory_); }

  /// Behind what is in the stream.
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> made(size_);
    REQUIRE(cudaMemcpyAsync(made.data(), memory_, size_ * sizeof(T), cudaMemcpyDefault, stream_) ==
            cudaSuccess);
    return made;
  }

 private:
  std::size_t size_;
  cudaStream_t stream_;
  void* memory_ = nullptr;
};

inline cudaStream_t make_stream(int device) {
  int before = 0;
  cudaStream_t made = nullptr;
  REQUIRE(cudaGetDevice(&before) == cudaSuccess);
  REQUIRE(cudaSetDevice(device) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaSetDevice(before) == cudaSuccess);
  return made;
}

}  // namespace cohort_test
