// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What this benchmark compares on a device: ways to copy many tensors into one buffer, NCCL called
/// by hand and awaited, and what a device that is waited for costs the loop.

#include <cohort/gpu.hpp>
#include <cohort/nccl/extra/pack_kernels.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace bench {

/// On the double each process has a device of its own while this lives.
struct machine {
  explicit machine(int rank);
  ~machine();
  machine(const machine&) = delete;
  std::string name;    ///< of the device
  const char* prefix;  ///< of every line: "", or that it is no figure
};

/// Work on a stream that does not end before it is let go; it takes no multiprocessor.
class held_stream {
 public:
  explicit held_stream(cohort::device::stream on);
  ~held_stream() { let_go(); }
  held_stream(const held_stream&) = delete;
  void let_go();

 private:
  struct gate;
  gate* gate_;  // the host function frees it
};

}  // namespace bench

/// Nanoseconds: on the device, between two events, and of the host's calls.
struct copy_times {
  double device = 0;
  double host = 0;
};

/// Tensors of so many bytes in allocations of their own, and one buffer that holds them all.
class pack {
 public:
  pack(const std::vector<std::size_t>& sizes, const cohort::device::stream& on);
  ~pack();
  pack(const pack&) = delete;

  [[nodiscard]] std::size_t bytes() const noexcept { return buffer_.size(); }
  [[nodiscard]] std::size_t tensors() const noexcept { return tensors_.size(); }

  copy_times at_once();      ///< one copy of as many bytes, from one place: what copies can reach
  copy_times one_by_one();   ///< a cudaMemcpyAsync for each tensor
  copy_times in_one_call();  ///< cohort::device::copy_batch, with which packs are made
  /// Whether these two can be asked for: NVRTC is there. Sizes are multiples of 4.
  [[nodiscard]] bool has_kernels() const noexcept { return kernels_ != nullptr; }
  copy_times by_kernel();
  copy_times to_half();  ///< floats become 16 bits on the way

  /// Empties the buffer, and looks whether a way puts every byte in its place.
  [[nodiscard]] bool is_packed_by(copy_times (pack::*way)());

 private:
  template <class Function>
  copy_times timed(Function queue);

  cohort::device::stream on_;
  std::vector<cohort::device::vector<std::byte>> tensors_;
  cohort::device::vector<std::byte> whole_;
  cohort::device::vector<std::byte> buffer_;
  std::vector<cohort::device::batch_part> parts_;
  std::vector<cohort::nccl::pack_kernels::part> elements_;  // the same, as floats
  std::shared_ptr<const cohort::nccl::pack_kernels> kernels_;
  cudaEvent_t first_ = nullptr;
  cudaEvent_t last_ = nullptr;
};

namespace raw_nccl {

/// A non-blocking communicator of a program that knows neither cohort nor coroutines.
class communicator {
 public:
  /// Collective over `world`. Throws std::runtime_error with NCCL's text.
  communicator(MPI_Comm world, int device);
  ~communicator();
  communicator(const communicator&) = delete;

  /// Sums, and asks for the state and then for an event in a bare loop. Returns nanoseconds.
  double all_reduce(const float* in, float* out, std::size_t count, cudaStream_t on);

 private:
  ncclResult_t settled(ncclResult_t answer);
  ncclComm_t comm_ = nullptr;
  cudaEvent_t done_ = nullptr;
};

}  // namespace raw_nccl

namespace with_cohort {

/// Nanoseconds of an awaited all_reduce on devices.
asio::awaitable<double> all_reduce(cohort::nccl::communicator gpus, cohort::device::stream on,
                                   const cohort::device::vector<float>& in,
                                   cohort::device::vector<float>& out);

/// Nanoseconds on the device, one of each for each operation.
struct fused_times {
  std::vector<double> pack, reduce, unpack;
  std::size_t packed = 0;  ///< bytes; tensors of 4 MiB and more are not copied
};

/// A bundle of tensors of so many bytes that a coordinator packs, reduces and unpacks.
asio::awaitable<fused_times> fused(cohort::communicator world, std::vector<std::size_t> sizes,
                                   int chunks);

/// Nanoseconds of an awaited all_reduce of 8 bytes over MPI.
asio::awaitable<double> over_mpi(cohort::communicator world);

/// Percent of a core that the thread of the loop has, and that the process has with the threads of
/// CUDA and NCCL.
struct load {
  double loop = 0;
  double process = 0;
};

enum class pending { nothing, event, collective };

/// Waits for a timer while that is pending.
asio::awaitable<load> idle(cohort::nccl::communicator gpus, pending what, double seconds);

}  // namespace with_cohort
