// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"
#include "support/statistics.hpp"

#include <cstdio>
#include <cstring>
#include <numeric>

using cohort::device::check;

pack::pack(const std::vector<std::size_t>& sizes, const cohort::device::stream& on) : on_(on) {
  const std::size_t all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  whole_ = cohort::device::vector<std::byte>(all, on);
  buffer_ = cohort::device::vector<std::byte>(all, on);
  std::byte* to = buffer_.data();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto& one = tensors_.emplace_back(sizes[i], on);
    check(cudaMemsetAsync(tensors_.back().data(), static_cast<int>(i % 251), sizes[i], on.get()),
          "cudaMemsetAsync", on.device());
    parts_.push_back({to, one.data(), sizes[i]});
    elements_.push_back({one.data(), to, sizes[i] / sizeof(float)});
    to += sizes[i];
  }
  check(cudaMemsetAsync(whole_.data(), 0, all, on.get()), "cudaMemsetAsync", on.device());
  check(cudaEventCreateWithFlags(&first_, cudaEventDefault), "an event", on.device());
  check(cudaEventCreateWithFlags(&last_, cudaEventDefault), "an event", on.device());
  try {
    kernels_ = cohort::nccl::pack_kernels::of_device(on.device(), {});
  } catch (const cohort::error& why) {
    std::printf("no kernels: %s\n", why.what());
  }
}

pack::~pack() {
  cudaEventDestroy(first_);
  cudaEventDestroy(last_);
}

template <class Function>
copy_times pack::timed(Function queue) {
  copy_times result;
  check(cudaEventRecord(first_, on_.get()), "cudaEventRecord", on_.device());
  const auto start = bench::clock::now();
  queue();
  result.host = bench::nanoseconds_since(start);
  check(cudaEventRecord(last_, on_.get()), "cudaEventRecord", on_.device());
  check(cudaStreamSynchronize(on_.get()), "cudaStreamSynchronize", on_.device());
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, first_, last_), "cudaEventElapsedTime", on_.device());
  result.device = static_cast<double>(milliseconds) * 1e6;
  return result;
}

copy_times pack::at_once() {
  return timed([this] {
    check(cudaMemcpyAsync(buffer_.data(), whole_.data(), bytes(), cudaMemcpyDeviceToDevice,
                          on_.get()),
          "cudaMemcpyAsync", on_.device());
  });
}

copy_times pack::one_by_one() {
  return timed([this] {
    for (const auto& part : parts_) {
      check(cudaMemcpyAsync(part.to, part.from, part.bytes, cudaMemcpyDeviceToDevice, on_.get()),
            "cudaMemcpyAsync", on_.device());
    }
  });
}

copy_times pack::in_one_call() {
  return timed([this] { cohort::device::copy_batch(on_, parts_); });
}

copy_times pack::by_kernel() {
  return timed([this] { kernels_->run(on_, {ncclFloat32, ncclFloat32}, elements_); });
}

copy_times pack::to_half() {
  return timed([this] { kernels_->run(on_, {ncclFloat32, ncclBfloat16}, elements_); });
}

bool pack::is_packed_by(copy_times (pack::*way)()) {
  check(cudaMemsetAsync(buffer_.data(), 255, bytes(), on_.get()), "cudaMemsetAsync", on_.device());
  (this->*way)();
  cohort::device::pinned_vector<std::byte> found(bytes(), on_);
  cohort::device::copy(on_, buffer_, found);
  check(cudaStreamSynchronize(on_.get()), "cudaStreamSynchronize", on_.device());
  const std::byte* at = found.data();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::byte* const end = at + parts_[i].bytes;
    for (; at != end; ++at) {
      if (*at != static_cast<std::byte>(i % 251)) return false;
    }
  }
  return true;
}
