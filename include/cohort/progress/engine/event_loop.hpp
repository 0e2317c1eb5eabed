// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What an engine asks of the loop that carries it.

#include <cohort/core/asio.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/pool.hpp>

#include <chrono>
#include <utility>

namespace cohort::progress::detail {

/// Takes an operation to an executor, its own or the engine's; destroys it if that drops the
/// function.
template <operation::action How>
class carrier {
 public:
  using allocator_type = pool_allocator<void>;
  explicit carrier(operation& op) noexcept : op_(&op) {}
  carrier(carrier&& other) noexcept : op_(std::exchange(other.op_, nullptr)) {}
  carrier& operator=(carrier&&) = delete;
  ~carrier() {
    if (op_ != nullptr) op_->destroy();
  }
  void operator()() {
    operation& op = *std::exchange(op_, nullptr);
    if constexpr (How == operation::action::deliver) {
      op.deliver();
    } else {
      op.deliver_here();
    }
  }
  [[nodiscard]] allocator_type get_allocator() const noexcept { return {}; }

 private:
  operation* op_;
};
using hop = carrier<operation::action::deliver_here>;

/// Behind this interface lies all that the engine uses of Asio's posting and timers: some 1 500
/// functions, which only the files compile that make an engine (progress/engine.ipp).
class event_loop {
 public:
  virtual ~event_loop() = default;
  /// Calls `engine::lap()` soon; from any thread.
  virtual void post_lap() = 0;
  /// The same from inside a lap, behind whatever else the loop has to do.
  virtual void defer_lap() = 0;
  /// Delivers `op` soon; from any thread.
  virtual void post(operation& op) = 0;
  /// Delivers `op` on `where`, in place if that allows it.
  virtual void dispatch(asio::any_io_executor where, operation& op) = 0;
  /// Calls `engine::nap_over()` after `duration`. `holds_work`: keeps `io.run()` from returning.
  virtual void start_nap(std::chrono::nanoseconds duration, bool holds_work) = 0;
  /// Called only after start_nap(). The nap may be over already.
  virtual void cancel_nap() = 0;

  using readable_function = void (*)(void*);
  /// Calls `ready(argument)` once when `socket` can be read. Keeps no `io.run()` from returning.
  /// One socket per loop, which stays the caller's; call from inside a handler.
  virtual void wait_readable(int socket, readable_function ready, void* argument) = 0;
  /// Before the socket is closed.
  virtual void forget_socket() noexcept = 0;
};

template <class Engine, class Context>
class asio_loop;

}  // namespace cohort::progress::detail
