// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a function that is called from another process can know of its call.
///
/// ```
/// double total(cluster::call_context& context, double mine) {  // context.world(): all that run it
///   return context.cancelled() ? 0 : mine * context.size();
/// }
/// auto all = co_await workers.call_all<&total>(2.5);
/// ```

#include <cohort/comm/operation.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

namespace cohort::cluster {

class peers;

/// Where calls are run.
struct call_place {
  int id = -1;            ///< as the manager calls this process
  communicator world;     ///< the workers
  communicator everyone;  ///< the workers and, in an adopted job, the manager
  std::shared_ptr<const cluster::peers> peers;
};

/// A function that wants it takes it by reference as its first parameter; it is no argument of the
/// call. Valid until the function, or the coroutine it returned, has ended.
class call_context {
 public:
  using clock = std::chrono::steady_clock;

  call_context(asio::io_context& io, std::shared_ptr<const call_place> where,
               const communicator& world, std::optional<clock::time_point> deadline)
      : io_(&io), where_(std::move(where)), world_(world), deadline_(deadline) {}
  call_context(const call_context&) = delete;
  call_context& operator=(const call_context&) = delete;

  /// By what the manager and other workers call this process: its rank in the job.
  [[nodiscard]] int id() const noexcept { return where_->id; }
  /// Of `world()`; a process without MPI is rank 0 of 1.
  [[nodiscard]] int rank() const noexcept { return world_ ? world_.rank() : 0; }
  [[nodiscard]] int size() const noexcept { return world_ ? world_.size() : 1; }
  /// The processes that run a call_all, for collectives and messages among them: the workers, and
  /// the manager if it is included. In an adopted job rank 0 is the manager, so worker `id` has
  /// rank id - 1 here if it is not included.
  [[nodiscard]] const communicator& world() const noexcept { return world_; }
  /// For calls to other workers, and to the manager. Throws errc::not_supported where there are
  /// none.
  [[nodiscard]] const cluster::peers& peers() const {
    if (!where_->peers) throw error(errc::not_supported, "calls from this process to others");
    return *where_->peers;
  }
  [[nodiscard]] asio::io_context& context() const noexcept { return *io_; }
  /// When the caller stops waiting, if it ever does.
  [[nodiscard]] std::optional<clock::time_point> deadline() const noexcept { return deadline_; }
  /// Whether the caller has given up. A coroutine learns of it by its cancellation; a function that
  /// computes for long may ask. May be called from any thread.
  [[nodiscard]] bool cancelled() const noexcept {
    return cancelled_.load(std::memory_order_relaxed) || (deadline_ && clock::now() >= *deadline_);
  }
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  /// Before the function is called.
  void world(const communicator& which) { world_ = which; }

 private:
  asio::io_context* io_;
  std::shared_ptr<const call_place> where_;
  communicator world_;
  std::optional<clock::time_point> deadline_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace cohort::cluster
