// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What lets the copies of staged operations go on in the looks of an engine.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/comm/request_source.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/stall_watch.hpp>
#include <cohort/staging/transfer.hpp>

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cohort::staging {

/// The source of an engine for operations that wait for copies. One per context that has had such
/// an operation, found with `asio::use_service<transfer_source>(io)`.
///
/// *Threads*: the list is guarded by the source of MPI, which is looked at in the same lap and
/// before, so that an operation is posted inside the look that finds its data.
class transfer_source : public asio::execution_context::service {
 public:
  using key_type = transfer_source;
  static inline asio::execution_context::id id;

  /// For `asio::use_service`. Throws error(errc::invalid_argument) if COHORT_STALL_WARNING is no
  /// duration.
  template <std::derived_from<asio::execution_context> Context>
  explicit transfer_source(Context& context)
      : asio::execution_context::service(context),
        requests_(asio::use_service<comm::request_source>(context)) {
    requests_.engine().attach(*this);
  }
  ~transfer_source() override { requests_.engine().detach(this); }

  /// With the guard held.
  void add(std::shared_ptr<transfer> one) {
    transfers_.push_back(std::move(one));
    count();
    requests_.engine().started();
  }

  // poll_source and its options: called by the engine.
  static constexpr bool is_dear = true;
  bool begin_lap(progress::ready_queue&) const noexcept { return true; }
  inline std::size_t test(progress::ready_queue&);
  void end_lap() const noexcept {}
  [[nodiscard]] std::size_t pending() const noexcept {
    return pending_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  /// As for everything that a device does.
  [[nodiscard]] std::chrono::nanoseconds longest_nap() const noexcept {
    return pending() == 0 ? std::chrono::nanoseconds::max() : requests_.engine().options().nap;
  }
  void leave() {
    const comm::request_source::guard hold(requests_);
    for (const auto& one : transfers_) one->leave();
  }
  void abandon() {
    const comm::request_source::guard hold(requests_);
    for (const auto& one : transfers_) one->abandon();
    transfers_.clear();
    count();
  }
  void describe(std::string& text) {
    const auto now = progress::engine::clock::now();
    const comm::request_source::guard hold(requests_);
    for (const auto& one : transfers_) text.append("  ").append(one->line(now)).append("\n");
  }
  inline void tick(progress::engine::clock::time_point now);

 private:
  inline void shutdown() override {}  // the engine ends the operations
  void count() noexcept { pending_.store(transfers_.size(), std::memory_order_relaxed); }

  comm::request_source& requests_;
  std::vector<std::shared_ptr<transfer>> transfers_;  // in the order in which they have begun
  std::atomic<std::size_t> pending_{0};
  progress::stall_watch stalls_;
};

inline std::size_t transfer_source::test(progress::ready_queue&) {
  if (pending() == 0) return 0;
  const comm::request_source::guard hold(requests_);
  std::size_t found = 0;
  for (std::size_t i = 0; i < transfers_.size();) {
    const std::shared_ptr<transfer> one = transfers_[i];
    if (!one->step()) {
      ++i;
      continue;
    }
    transfers_.erase(transfers_.begin() + static_cast<std::ptrdiff_t>(i));
    one->go_on();  // may begin the way back of this one or of another
    ++found;
  }
  // What was posted is counted by now: an engine must not find nothing pending in between.
  count();
  if (found != 0) requests_.engine().started();
  return found;
}

inline void transfer_source::tick(progress::engine::clock::time_point now) {
  std::string lines;
  {
    const comm::request_source::guard hold(requests_);
    for (const auto& one : transfers_) {
      if (stalls_.is_due(one->age, now)) lines.append("\n  ").append(one->line(now));
    }
  }
  stalls_.warn(lines);
}

inline void transfer::begin() {
  under_way_.store(true, std::memory_order_release);
  age = {};
  source_.add(shared_from_this());
}

}  // namespace cohort::staging

#endif
