// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What an engine polls: MPI requests, shared-memory flags, CUDA events, or a test's own source.
///
/// A source says what is pending and looks when it is asked; what it has in common with others, the
/// report of what is in flight and the warning about what takes long, is written here:
///
///     class ring_source final : public progress::polled_source {
///       std::size_t test(progress::ready_queue& ready) override { ... ready.push(op); ... }
///       [[nodiscard]] std::size_t pending() const noexcept override { return pending_; }
///       void list(progress::pending_lines& lines) override {
///         const std::lock_guard hold(mutex_);
///         for (ring_operation* op : all_) {
///           if (lines.names(op->age)) lines.add("ring " + std::to_string(op->id), op->age);
///         }
///       }
///     };                                      // and then: engine.attach(source)

#include <cohort/core/log.hpp>
#include <cohort/core/time.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/pending_age.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::progress {

/// Names what has been pending for longer than `COHORT_STALL_WARNING` says, once each; nothing
/// where the variable is not set, or zero.
class stall_watch {
 public:
  /// Throws error(errc::invalid_argument) if the variable is no duration.
  stall_watch() {
    if (const auto limit = duration_from_environment("COHORT_STALL_WARNING")) limit_ = *limit;
  }

  /// Whether anything is named.
  [[nodiscard]] bool is_on() const noexcept { return limit_ > limit_.zero(); }
  /// At a tick, for each that is pending: whether it is to be named now.
  [[nodiscard]] bool is_due(pending_age& age, steady_clock::time_point now) const noexcept {
    if (!age.has_begun()) age.begin(now);
    if (!is_on() || age.reported || age.length(now) < limit_) return false;
    age.reported = true;
    return true;
  }
  /// After a tick, and without a lock. `lines` begin with a line break each.
  static void warn(const std::string& lines) {
    if (!lines.empty()) log::write(log::level::warning, "stalled:" + lines);
  }

 private:
  std::chrono::nanoseconds limit_{0};
};

/// A line for each operation that is pending: for a report on all that is in flight, or for a
/// warning about what has been pending for too long.
class pending_lines {
 public:
  /// Of all that is pending.
  explicit pending_lines(steady_clock::time_point now) noexcept : now_(now) {}
  /// Of what `watch` is to name now.
  pending_lines(steady_clock::time_point now, const stall_watch& watch) noexcept
      : now_(now), watch_(&watch) {}

  /// Whether there is to be a line about what has this age. To be asked once for each.
  [[nodiscard]] bool names(pending_age& age) const noexcept {
    return watch_ == nullptr || watch_->is_due(age, now_);
  }
  void add(std::string_view what) {
    text_.append(watch_ == nullptr ? "  " : "\n  ").append(what);
    if (watch_ == nullptr) text_ += '\n';
  }
  void add(std::string_view what, const pending_age& age) {
    add(std::string(what).append(", ").append(age.text(now_)));
  }
  [[nodiscard]] steady_clock::time_point now() const noexcept { return now_; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  steady_clock::time_point now_;
  const stall_watch* watch_ = nullptr;
  std::string text_;
};

// ---- the source -----------------------------------------------------------------------------

/// Whether an engine with nothing pending may sleep although control messages may arrive: receives
/// that are posted but that nobody waits for.
enum class park_result : std::uint8_t {
  nothing,  ///< no such receive is posted
  quiet,    ///< posted, a last look found nothing, and a doorbell will ring
  busy,     ///< the last look found something
  no_bell   ///< posted, but nothing announces a message: keep looking now and then
};

/// Something that knows whether operations have finished, but only when asked.
///
/// A lap is `begin_lap`, any number of `test`, `end_lap`, all on one thread. *Threads*: the engine
/// calls the rest from any; a source brings its own lock.
class polled_source {
 public:
  polled_source(const polled_source&) = delete;
  polled_source& operator=(const polled_source&) = delete;
  virtual ~polled_source() = default;

  /// False where this thread may not look; the source has then failed its own operations into the
  /// queue.
  virtual bool begin_lap(ready_queue&) { return true; }
  /// Looks once, moves what has finished to the queue and returns how many; runs no handler.
  virtual std::size_t test(ready_queue& ready) = 0;
  virtual void end_lap() {}

  /// Operations that somebody waits for. Read at any time, as `bytes` is.
  [[nodiscard]] virtual std::size_t pending() const = 0;
  /// What they move in total: the more it is, the longer an engine spins.
  [[nodiscard]] virtual std::size_t bytes() const { return 0; }
  /// Its look costs far more than one at memory. It is looked at once a lap while another source
  /// has something pending, and else a few times a lap.
  [[nodiscard]] bool is_dear() const noexcept { return is_dear_; }
  /// While something of it is pending, no nap is longer than that.
  [[nodiscard]] virtual std::chrono::nanoseconds longest_nap() const {
    return std::chrono::nanoseconds::max();
  }

  /// Called when nothing is pending. `unpark` undoes it.
  virtual park_result park(ready_queue&) { return park_result::nothing; }
  virtual void unpark() {}
  /// Whether all that is pending waits for control messages, so that the source can be parked all
  /// the same.
  [[nodiscard]] virtual bool only_announced() { return pending() == 0; }

  /// The engine ends: cancel what can be cancelled.
  virtual void leave() {}
  /// Waiting has not helped: end what nothing outside the program works on.
  virtual void end() {}
  /// What is still pending now will never be looked at again.
  virtual void abandon() {}

  /// Appends a line for each operation that is pending.
  virtual void describe(std::string& text) {
    pending_lines lines(steady_clock::now());
    list(lines);
    text += lines.text();
  }
  /// About every 50 us while the engine looks, and at the end of each nap: a source whose library
  /// works on other things only inside calls of it makes one.
  virtual void make_progress() {}
  /// Now and then while something is pending: warns about what takes long.
  virtual void tick(steady_clock::time_point now) {
    pending_lines lines(now, stalls_);
    list(lines);
    stall_watch::warn(lines.text());
  }

 protected:
  enum class cost : bool { usual, dear };
  /// Throws error(errc::invalid_argument) if COHORT_STALL_WARNING is no duration.
  explicit polled_source(cost of_a_look = cost::usual) : is_dear_(of_a_look == cost::dear) {}

  /// Adds what is pending, with the lock of the source held.
  virtual void list(pending_lines&) {}

 private:
  stall_watch stalls_;
  bool is_dear_;
};

// ---- sources without that base --------------------------------------------------------------

/// What an engine polls too: a class of its own kind with the functions that a `polled_source`
/// must have, and perhaps `static constexpr bool is_dear` and others of its functions.
template <class Source>
concept poll_source = requires(Source& source, ready_queue& ready) {
  { source.begin_lap(ready) } -> std::same_as<bool>;
  { source.test(ready) } -> std::same_as<std::size_t>;
  { source.end_lap() };
  { source.pending() } -> std::convertible_to<std::size_t>;
  { source.bytes() } -> std::convertible_to<std::size_t>;
};

/// Such a class as the engine knows it, borrowed.
template <poll_source Source>
class source_adapter final : public polled_source {
 public:
  explicit source_adapter(Source& source) : polled_source(cost_of()), source_(source) {}

  bool begin_lap(ready_queue& ready) override { return source_.begin_lap(ready); }
  std::size_t test(ready_queue& ready) override { return source_.test(ready); }
  void end_lap() override { source_.end_lap(); }
  [[nodiscard]] std::size_t pending() const override {
    return static_cast<std::size_t>(source_.pending());
  }
  [[nodiscard]] std::size_t bytes() const override {
    return static_cast<std::size_t>(source_.bytes());
  }
  [[nodiscard]] std::chrono::nanoseconds longest_nap() const override {
    if constexpr (requires { source_.longest_nap(); }) return source_.longest_nap();
    return polled_source::longest_nap();
  }
  park_result park(ready_queue& ready) override {
    if constexpr (requires { source_.park(ready); }) return source_.park(ready);
    return polled_source::park(ready);
  }
  void unpark() override {
    if constexpr (requires { source_.unpark(); }) source_.unpark();
  }
  [[nodiscard]] bool only_announced() override {
    if constexpr (requires { source_.only_announced(); }) return source_.only_announced();
    return polled_source::only_announced();
  }
  void leave() override {
    if constexpr (requires { source_.leave(); }) source_.leave();
  }
  void end() override {
    if constexpr (requires { source_.end(); }) source_.end();
  }
  void abandon() override {
    if constexpr (requires { source_.abandon(); }) source_.abandon();
  }
  void describe(std::string& text) override {
    if constexpr (requires { source_.describe(text); }) source_.describe(text);
  }
  void make_progress() override {
    if constexpr (requires { source_.make_progress(); }) source_.make_progress();
  }
  void tick(steady_clock::time_point now) override {
    if constexpr (requires { source_.tick(now); }) source_.tick(now);
  }

 private:
  static constexpr cost cost_of() noexcept {
    if constexpr (requires { Source::is_dear; }) return Source::is_dear ? cost::dear : cost::usual;
    return cost::usual;
  }
  Source& source_;
};

}  // namespace cohort::progress
