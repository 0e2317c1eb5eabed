// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What an engine polls: MPI requests, shared-memory flags, CUDA events, or a test's own source.

#include <cohort/progress/operation.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>

namespace cohort::progress {

/// Something that knows whether operations have finished, but only when asked.
///
/// A lap is `begin_lap`, any number of `test`, `end_lap`, all on one thread. `test` looks once,
/// moves what has finished to the queue and returns how many; it runs no handler. `begin_lap`
/// returns false where this thread may not look; the source has then failed its own operations into
/// the queue. `pending` counts the operations that somebody waits for, `bytes` is what they move in
/// total: both may be read at any time, from any thread.
template <class Source>
concept poll_source = requires(Source& source, ready_queue& ready) {
  { source.begin_lap(ready) } -> std::same_as<bool>;
  { source.test(ready) } -> std::same_as<std::size_t>;
  {source.end_lap()};
  { source.pending() } -> std::convertible_to<std::size_t>;
  { source.bytes() } -> std::convertible_to<std::size_t>;
};

/// Whether an engine with nothing pending may sleep although control messages may arrive: receives
/// that are posted but that nobody waits for.
enum class park_result : std::uint8_t {
  nothing,  ///< no such receive is posted
  quiet,    ///< posted, a last look found nothing, and a doorbell will ring
  busy,     ///< the last look found something
  no_bell   ///< posted, but nothing announces a message: keep looking now and then
};

/// What a source may offer besides.
///
/// - `park_result park(ready)`: called when nothing is pending, see \ref park_result. `unpark()`
///   undoes it.
/// - `bool only_announced()`: whether all that is pending waits for control messages, so that the
///   source can be parked all the same.
/// - `static constexpr bool is_dear`: its look costs far more than one at memory. It is looked at
///   once a lap while another source has something pending, and else a few times a lap.
/// - `nanoseconds longest_nap()`: while something of it is pending, no nap is longer than that.
/// - `void leave()`: cancel what can be cancelled, because the engine ends.
/// - `void end()`: waiting has not helped: end what nothing outside the program works on.
/// - `void abandon()`: what is still pending now will never be looked at again.
/// - `void describe(std::string&)`: append one line for each pending operation.
/// - `void tick(time_point now)`: called now and then while something is pending.
template <class Source>
concept parking_source = requires(Source& source, ready_queue& ready) {
  { source.park(ready) } -> std::same_as<park_result>;
  {source.unpark()};
};

/// A borrowed source behind a table of functions, so that sources need no base class.
class source_ref {
 public:
  source_ref() noexcept = default;  // of nothing
  template <poll_source Source>
  explicit source_ref(Source& source) noexcept : self_(&source), table_(&table_of<Source>) {}

  bool begin_lap(ready_queue& ready) const { return table_->begin_lap(self_, ready); }
  std::size_t test(ready_queue& ready) const { return table_->test(self_, ready); }
  void end_lap() const { table_->end_lap(self_); }
  [[nodiscard]] bool is_dear() const noexcept { return table_->is_dear; }
  [[nodiscard]] std::size_t pending() const { return table_->pending(self_); }
  [[nodiscard]] std::size_t bytes() const { return table_->bytes(self_); }
  [[nodiscard]] park_result park(ready_queue& ready) const { return table_->park(self_, ready); }
  [[nodiscard]] bool only_announced() const { return table_->only_announced(self_); }
  void unpark() const { table_->unpark(self_); }
  [[nodiscard]] std::chrono::nanoseconds longest_nap() const { return table_->longest_nap(self_); }
  void leave() const { table_->leave(self_); }
  void end() const { table_->end(self_); }
  void abandon() const { table_->abandon(self_); }
  void tick(std::chrono::steady_clock::time_point now) const { table_->tick(self_, now); }
  void describe(std::string& text) const { table_->describe(self_, text); }
  [[nodiscard]] bool is(const void* source) const noexcept { return self_ == source; }

 private:
  struct table {
    bool is_dear;
    bool (*begin_lap)(void*, ready_queue&);
    std::size_t (*test)(void*, ready_queue&);
    void (*end_lap)(void*);
    std::size_t (*pending)(void*);
    std::size_t (*bytes)(void*);
    park_result (*park)(void*, ready_queue&);
    bool (*only_announced)(void*);
    void (*unpark)(void*);
    std::chrono::nanoseconds (*longest_nap)(void*);
    void (*leave)(void*);
    void (*end)(void*);
    void (*abandon)(void*);
    void (*describe)(void*, std::string&);
    void (*tick)(void*, std::chrono::steady_clock::time_point);
  };

  template <class Source>
  static Source& as(void* self) noexcept {
    return *static_cast<Source*>(self);
  }

  template <class Source>
  static constexpr bool dear() noexcept {
    if constexpr (requires { Source::is_dear; }) return Source::is_dear;
    return false;
  }

  template <class Source>
  static constexpr table table_of{
      dear<Source>(),
      [](void* self, ready_queue& ready) { return as<Source>(self).begin_lap(ready); },
      [](void* self, ready_queue& ready) { return as<Source>(self).test(ready); },
      [](void* self) { as<Source>(self).end_lap(); },
      [](void* self) -> std::size_t { return as<Source>(self).pending(); },
      [](void* self) -> std::size_t { return as<Source>(self).bytes(); },
      [](void* self, ready_queue& ready) {
        if constexpr (parking_source<Source>) return as<Source>(self).park(ready);
        return park_result::nothing;
      },
      [](void* self) -> bool {
        if constexpr (requires(Source & s) { s.only_announced(); }) {
          return as<Source>(self).only_announced();
        }
        return as<Source>(self).pending() == 0;
      },
      [](void* self) {
        if constexpr (parking_source<Source>) as<Source>(self).unpark();
      },
      [](void* self) -> std::chrono::nanoseconds {
        if constexpr (requires(Source & s) { s.longest_nap(); }) {
          return as<Source>(self).longest_nap();
        }
        return std::chrono::nanoseconds::max();
      },
      [](void* self) {
        if constexpr (requires(Source & s) { s.leave(); }) as<Source>(self).leave();
      },
      [](void* self) {
        if constexpr (requires(Source & s) { s.end(); }) as<Source>(self).end();
      },
      [](void* self) {
        if constexpr (requires(Source & s) { s.abandon(); }) as<Source>(self).abandon();
      },
      [](void* self, std::string& text) {
        if constexpr (requires(Source & s) { s.describe(text); }) as<Source>(self).describe(text);
      },
      [](void* self, std::chrono::steady_clock::time_point now) {
        if constexpr (requires(Source & s) { s.tick(now); }) as<Source>(self).tick(now);
      },
  };

  void* self_ = nullptr;
  const table* table_ = nullptr;
};

/// The sources of an engine. It only grows while the engine lives, and what is in it stays where it
/// is, so a lap can go through it while another thread adds a source.
class source_list {
 public:
  static constexpr std::size_t most = 16;

  /// Throws std::length_error when it is full.
  void add(const source_ref& one) {
    const std::lock_guard hold(adding_);
    const std::size_t size = size_.load(std::memory_order_relaxed);
    if (size == most) throw std::length_error("an engine has at most 16 sources");
    all_[size] = one;
    size_.store(size + 1, std::memory_order_release);
  }
  /// At the end, when no lap runs.
  void remove(const void* source) {
    const std::lock_guard hold(adding_);
    const auto end = all_.begin() + static_cast<std::ptrdiff_t>(size_.load());
    const auto kept =
        std::remove_if(all_.begin(), end, [&](const source_ref& ref) { return ref.is(source); });
    size_.store(static_cast<std::size_t>(kept - all_.begin()));
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }
  [[nodiscard]] const source_ref* begin() const noexcept { return all_.data(); }
  [[nodiscard]] const source_ref* end() const noexcept { return all_.data() + size(); }
  [[nodiscard]] const source_ref& operator[](std::size_t i) const noexcept { return all_[i]; }

 private:
  std::array<source_ref, most> all_;
  std::atomic<std::size_t> size_{0};
  std::mutex adding_;
};

}  // namespace cohort::progress
