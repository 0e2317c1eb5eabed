// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The planes of one context, and the thread that goes on with them where the engine does not
/// look.

#include <cohort/core/config.hpp>
#include <cohort/core/short_lock.hpp>
#include <cohort/shm/plane/sequence.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cohort::shm::detail {

class plane;
struct plane_list;

/// Goes on with the planes where the engine has not looked for a while: the program computes, or is
/// in a blocking call of MPI, where MPI's own collectives would go on. What ends is told at the
/// next look. It sleeps while nothing is pending.
class late_thread {
 public:
  explicit late_thread(plane_list& planes) noexcept : planes_(planes) {}
  ~late_thread() { stop(); }
  late_thread(const late_thread&) = delete;
  late_thread& operator=(const late_thread&) = delete;

  /// Whether it has to be roused when something is pending again. With the planes locked.
  [[nodiscard]] bool sleeps() const noexcept {
    return state_.load(std::memory_order_relaxed) != state::awake;
  }
  /// The first time starts the thread; without one nothing is late. Not with the planes locked.
  void rouse() noexcept;
  void looked() noexcept { looks_.store(looks() + 1, std::memory_order_relaxed); }
  /// For good. Not with the planes locked.
  void stop() noexcept;

 private:
  enum class state : std::uint8_t { none, awake, asleep, stopped };
  static constexpr auto period = std::chrono::milliseconds(10);

  [[nodiscard]] std::uint64_t looks() const noexcept {
    return looks_.load(std::memory_order_relaxed);
  }
  void run();
  void help(std::uint64_t looks_before);

  plane_list& planes_;
  std::atomic<std::uint64_t> looks_{0};
  // Changed with the mutex locked; it falls asleep with the planes locked too.
  std::atomic<state> state_{state::none};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

/// The planes of one io_context. Planes may outlive it.
struct plane_list {
  short_lock mutex;  // guards the planes too
  std::vector<plane*> all;
  std::vector<ended_call> ended;        // not told yet; room for all that is pending
  std::vector<ended_call> spare;        // takes its place while they are told
  std::atomic<bool> is_telling{false};  // then `spare` is the look's
  // Written with the lock, read without: so no instruction of these is locked.
  std::atomic<std::size_t> pending{0};
  std::atomic<std::size_t> bytes{0};    // started since nothing was pending
  std::string told;                     // for the log, once nothing is locked
  std::atomic<std::size_t> talking{0};  // planes over several nodes, whose looks call MPI
  late_thread late{*this};

  unsigned advance(bool aside);
  /// Not with the lock.
  void log_told();
  /// True if nothing was pending.
  bool began(std::size_t call_bytes) noexcept {
    const std::size_t before = pending.load(std::memory_order_relaxed);
    const std::size_t earlier = before == 0 ? 0 : bytes.load(std::memory_order_relaxed);
    bytes.store(earlier + call_bytes, std::memory_order_relaxed);
    pending.store(before + 1, std::memory_order_relaxed);
    return before == 0;
  }
  void no_longer_pending(std::size_t calls) noexcept {
    pending.store(pending.load(std::memory_order_relaxed) - calls, std::memory_order_relaxed);
  }
  /// For one more.
  void make_room(std::size_t pending_before) {
    const std::size_t room = 2 * pending_before + 8;
    if (ended.capacity() <= pending_before) ended.reserve(room);
    if (!is_telling.load(std::memory_order_acquire) && spare.capacity() <= pending_before)
      spare.reserve(room);
  }
};

}  // namespace cohort::shm::detail

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/shm/plane/late_thread.ipp>
#endif
