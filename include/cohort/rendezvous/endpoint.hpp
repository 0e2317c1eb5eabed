// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the verbs need of one rank of a rendezvous: the interface that they submit to.

#include <cohort/comm/communicator.hpp>
#include <cohort/rendezvous/receiver.hpp>
#include <cohort/rendezvous/vocabulary.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace cohort {

/// How a rendezvous behaves on one rank. The ranks may differ, but for `chunk`.
class rendezvous_options {
 public:
  rendezvous_options() noexcept {}  // user-provided: g++ 12, see tests/compilers/gcc12.cpp

  /// Values of at most so many bytes are pushed to their destination before it asks; 0: only
  /// empty ones.
  rendezvous_options& push_limit(std::size_t bytes) noexcept {
    node.push_limit = bytes;
    return *this;
  }
  /// Bytes pushed to one rank that it has not received yet; what exceeds them waits to be pulled.
  rendezvous_options& credit(std::uint64_t bytes) noexcept {
    node.credit = bytes;
    return *this;
  }
  /// Larger values travel by request and grant, straight from and to their memory.
  rendezvous_options& inline_limit(std::size_t bytes) noexcept {
    node.inline_limit = bytes;
    return *this;
  }
  /// No memory is made for a value larger than this; its receive ends with errc::count_too_large.
  rendezvous_options& largest_value(std::uint64_t bytes) noexcept {
    node.largest = bytes;
    return *this;
  }
  /// The most bytes in one MPI message. Equal on all ranks, otherwise everything ends with
  /// mismatch_error.
  rendezvous_options& chunk(std::uint64_t bytes) noexcept {
    chunk_bytes = bytes;
    return *this;
  }
  /// Large transfers to this rank at a time.
  rendezvous_options& transfers(int most) noexcept {
    node.tags = most;
    return *this;
  }
  /// A second send or receive of a key within a step is errc::duplicate_key.
  rendezvous_options& single_use(bool yes = true) noexcept {
    node.single_use = yes;
    return *this;
  }
  /// Steps that nobody holds or waits in and that were last used so long ago are cleaned up; zero:
  /// never.
  rendezvous_options& step_ttl(std::chrono::nanoseconds time) noexcept {
    ttl = time;
    return *this;
  }
  /// How long `close` and a destructor wait for the other ranks.
  rendezvous_options& leave_deadline(std::chrono::nanoseconds time) noexcept {
    leave_time = time;
    return *this;
  }
  /// Everything waits until `initialize`.
  rendezvous_options& deferred(bool yes = true) noexcept {
    is_deferred = yes;
    return *this;
  }

  meeting::node_options node;
  std::uint64_t chunk_bytes = 1U << 30U;
  std::chrono::nanoseconds ttl{0};
  std::chrono::nanoseconds leave_time = std::chrono::seconds(30);
  bool is_deferred = false;
};

namespace meeting {

/// One rank of a rendezvous. An interface, so that only who makes one compiles what is behind it.
class endpoint {
 public:
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;
  virtual ~endpoint() = default;

  [[nodiscard]] progress::engine& engine() const noexcept { return engine_; }
  /// -1 before the initialisation.
  [[nodiscard]] int rank() const noexcept { return rank_.load(std::memory_order_acquire); }
  /// Counts receivers that have been handed to the engine by this thread.
  static void count_ended() noexcept { ++ended_; }

  virtual void initialize(const communicator& world) = 0;
  [[nodiscard]] virtual std::uint64_t incarnation(int rank) = 0;
  [[nodiscard]] virtual step_ptr step(step_id id) = 0;
  /// The last handle of a lease is gone.
  virtual void release(step_state& step) noexcept = 0;
  [[nodiscard]] virtual std::vector<waiting_key> waiting(const step_state& step) = 0;
  virtual void send(step_state& step, const rendezvous_key& key, packet_ptr value) = 0;
  /// The step need not outlive the end of the receiver, which may come at once.
  virtual void receive(step_state& step, const rendezvous_key& key, receiver& one) = 0;
  virtual void cancel(step_state& step, receiver& one, const std::exception_ptr& why) = 0;
  virtual void drain(step_state& step, receiver& one) = 0;
  virtual void stop_draining(step_state& step, receiver& one, const std::exception_ptr& why) = 0;
  virtual void abort(step_state& step, const std::exception_ptr& why) = 0;
  virtual void cleanup(step_id id) = 0;
  virtual void cleanup_all() = 0;
  virtual void sweep() = 0;
  [[nodiscard]] virtual std::vector<step_id> steps() = 0;
  virtual void wait_closed(receiver& one) = 0;
  virtual void stop_waiting(receiver& one, const std::exception_ptr& why) = 0;
  [[nodiscard]] virtual std::vector<leaked_value> leaks() = 0;
  [[nodiscard]] virtual rendezvous_statistics statistics() = 0;
  /// Leaves and waits in place, for destructors.
  virtual void leave_in_place() noexcept = 0;

  // At the end of the context: see progress::kept_until_closed.
  [[nodiscard]] virtual bool closed() const noexcept = 0;
  virtual void abandon() = 0;
  virtual void drive() = 0;

 protected:
  explicit endpoint(progress::engine& engine) : engine_(engine) {}

  progress::engine& engine_;
  std::atomic<int> rank_{-1};
  std::uint64_t incarnation_ = 0;
  static inline constinit thread_local std::size_t ended_ = 0;  // of all endpoints
};

/// What the handles share: with the last of them the rank leaves.
class endpoint_handle {
 public:
  explicit endpoint_handle(std::shared_ptr<endpoint> where) : where_(std::move(where)) {}
  endpoint_handle(const endpoint_handle&) = delete;
  endpoint_handle& operator=(const endpoint_handle&) = delete;
  ~endpoint_handle() { where_->leave_in_place(); }
  [[nodiscard]] endpoint& operator*() const noexcept { return *where_; }

 private:
  std::shared_ptr<endpoint> where_;
};
using handle_ptr = std::shared_ptr<endpoint_handle>;

/// A template with one instance, so that only who makes a rendezvous compiles what is behind it.
/// Initialises it over `world`, if there is one.
template <class Any>
[[nodiscard]] handle_ptr open_endpoint(progress::engine& engine, const rendezvous_options& options,
                                       const communicator& world);

}  // namespace meeting
}  // namespace cohort
