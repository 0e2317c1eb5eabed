// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the verbs need of one rank of a rendezvous: the interface that they submit to.

#include <cohort/comm/communicator.hpp>
#include <cohort/rendezvous/table.hpp>
#include <cohort/rendezvous/vocabulary.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace cohort {

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
  [[nodiscard]] static std::size_t ended() noexcept { return ended_; }

  virtual void initialize(const communicator& world) = 0;
  [[nodiscard]] virtual std::uint64_t incarnation(int rank) = 0;
  [[nodiscard]] virtual step_ptr step(step_id id) = 0;
  /// The last handle of a lease is gone.
  virtual void release(step_state& step) noexcept = 0;
  [[nodiscard]] virtual std::vector<waiting_key> waiting(const step_state& step) = 0;
  virtual void send(step_state& step, const rendezvous_key& key, packet_ptr value) = 0;
  /// The step need not outlive the end of the receiver, which may come at once.
  virtual void receive(step_state& step, const rendezvous_key& key, receiver& one) = 0;
  /// Asks for the end of a receiver that waits in this step or, if that is null, for the close.
  virtual void cancel(step_state* step, receiver& one, const std::exception_ptr& why) = 0;
  virtual void drain(step_state& step, receiver& one) = 0;
  virtual void abort(step_state& step, const std::exception_ptr& why) = 0;
  virtual void cleanup(step_id id) = 0;
  virtual void sweep() = 0;
  [[nodiscard]] virtual std::vector<step_id> steps() = 0;
  virtual void wait_closed(receiver& one) = 0;
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
