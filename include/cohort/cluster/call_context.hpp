// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a function that is called from another process can know of its call.

#include <cohort/comm/communicator.hpp>
#include <cohort/core/asio.hpp>

#include <atomic>
#include <chrono>
#include <optional>

namespace cohort::cluster {

/// Taken by reference as first parameter by functions that want it; it is no argument of the call.
/// Valid until the function, or the coroutine it returned, has ended.
class call_context {
 public:
  using clock = std::chrono::steady_clock;

  call_context(asio::io_context& io, const communicator& world, int rank, int size,
               std::optional<clock::time_point> deadline)
      : io_(&io), world_(world), rank_(rank), size_(size), deadline_(deadline) {}
  call_context(const call_context&) = delete;
  call_context& operator=(const call_context&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// The workers, for collectives and messages among them. A duplicate of their MPI_COMM_WORLD.
  [[nodiscard]] const communicator& world() const noexcept { return world_; }
  [[nodiscard]] asio::io_context& context() const noexcept { return *io_; }
  /// When the caller stops waiting, if it ever does.
  [[nodiscard]] std::optional<clock::time_point> deadline() const noexcept { return deadline_; }
  /// Whether the caller has given up. A coroutine learns of it by its cancellation; a function that
  /// computes for long may ask. May be called from any thread.
  [[nodiscard]] bool cancelled() const noexcept {
    return cancelled_.load(std::memory_order_relaxed) || (deadline_ && clock::now() >= *deadline_);
  }
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }

 private:
  asio::io_context* io_;
  communicator world_;
  int rank_;
  int size_;
  std::optional<clock::time_point> deadline_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace cohort::cluster
