// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `core/process.hpp`.

#include <cohort/core/process.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <vector>

namespace cohort::process {

namespace detail {

struct registry {
  // Recursive, because draining destroys handlers, which may own the last handle of an engine.
  std::recursive_mutex mutex;
  std::vector<hooks*> entries;

  [[nodiscard]] bool contains(const hooks* wanted) const noexcept {
    for (const hooks* entry : entries) {
      if (entry == wanted) return true;
    }
    return false;
  }
  /// Calls the function for each entry, newest first, skipping those that were removed meanwhile.
  template <class Function>
  void for_each(Function function) {
    const std::lock_guard guard(mutex);
    const std::vector<hooks*> snapshot(entries);
    for (std::size_t left = snapshot.size(); left-- > 0;) {
      if (contains(snapshot[left])) function(*snapshot[left]);
    }
  }
};

COHORT_INLINE registry& the_registry() noexcept {
  // Never destroyed: an engine in a static object may unregister after it would be gone.
  static registry& instance = *new registry;
  return instance;
}

inline std::atomic<std::chrono::steady_clock::rep> failing_since{0};

COHORT_INLINE std::string& the_leftovers() {
  static std::string& text = *new std::string;
  return text;
}

}  // namespace detail

COHORT_INLINE std::string line_prefix() {
  const int known = rank.load(std::memory_order_relaxed);
  return known < 0 ? "[cohort] " : "[cohort rank " + std::to_string(known) + "] ";
}

COHORT_INLINE std::uint64_t host_id() {
  std::array<char, 256> name{};
  std::string text;
  if (std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "r")) {
    text.assign(name.data(), std::fread(name.data(), 1, name.size(), file));
    std::fclose(file);
    name = {};
  }
  if (::gethostname(name.data(), name.size() - 1) == 0) text += name.data();
  std::uint64_t hash = 1469598103934665603U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

COHORT_INLINE std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

COHORT_INLINE std::chrono::nanoseconds failure_time_left(std::chrono::nanoseconds bound) noexcept {
  using clock = std::chrono::steady_clock;
  const auto now = clock::now().time_since_epoch().count();
  clock::rep since = 0;
  if (detail::failing_since.compare_exchange_strong(since, now)) since = now;
  const std::chrono::nanoseconds left = bound - clock::duration(now - since);
  return left.count() > 0 ? left : std::chrono::nanoseconds::zero();
}

COHORT_INLINE void failure_over() noexcept {
  if (detail::failing_since.load(std::memory_order_relaxed) == 0 || failed.load()) return;
  detail::failing_since.store(0);
}

COHORT_INLINE void add_leftovers(const std::string& text) {
  const std::lock_guard guard(detail::the_registry().mutex);
  detail::the_leftovers() += text;
}

COHORT_INLINE std::string leftovers() {
  const std::lock_guard guard(detail::the_registry().mutex);
  return detail::the_leftovers();
}

COHORT_INLINE void write_last_words(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  timespec pause{};
  pause.tv_nsec = 100'000'000;
  ::nanosleep(&pause, nullptr);
}

COHORT_INLINE void end_job(const std::string& text) {
  write_last_words(line_prefix() + text + "\n");
  if (const auto function = end_job_function.load()) function();
  std::abort();
}

COHORT_INLINE void add_hooks(hooks* entry) {
  auto& registry = detail::the_registry();
  const std::lock_guard guard(registry.mutex);
  registry.entries.push_back(entry);
}

COHORT_INLINE void remove_hooks(hooks* entry) noexcept {
  auto& registry = detail::the_registry();
  const std::lock_guard guard(registry.mutex);
  std::erase(registry.entries, entry);
}

COHORT_INLINE std::string describe_in_flight() {
  std::string text;
  detail::the_registry().for_each([&](hooks& entry) { entry.describe(text); });
  return text;
}

COHORT_INLINE void leave_all() noexcept {
  detail::the_registry().for_each([](hooks& entry) { entry.leave(); });
}

COHORT_INLINE void look_at_all() {
  auto& registry = detail::the_registry();
  const std::unique_lock held(registry.mutex, std::try_to_lock);  // its holder looks already
  if (held) registry.for_each([](hooks& entry) { entry.look(); });
}

COHORT_INLINE bool drain_all(std::chrono::nanoseconds bound) {
  using clock = std::chrono::steady_clock;
  const auto end = clock::now() + bound;
  bool all_drained = true;
  detail::the_registry().for_each([&](hooks& entry) {
    const clock::duration left = end - clock::now();
    all_drained = entry.drain(left.count() > 0 ? left : clock::duration::zero()) && all_drained;
  });
  return all_drained;
}

namespace detail {

/// The lines of a text, without blanks before them, behind one another; the first `most` of them.
COHORT_INLINE std::string in_one_line(std::string_view text, std::size_t most) {
  std::string line;
  std::size_t lines = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t first = whole.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || ++lines > most) continue;
    if (!line.empty()) line += "; ";
    line += whole.substr(first);
  }
  if (lines > most) line += "; and " + std::to_string(lines - most) + " more";
  return line;
}

}  // namespace detail

COHORT_INLINE std::string message_of(const std::exception_ptr& why) {
  try {
    std::rethrow_exception(why);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

COHORT_INLINE int give_up(const std::exception_ptr& why) noexcept {
  std::fflush(stdout);  // ending the job loses what is in the buffer
  if (!failed.exchange(true)) {
    try {
      std::string line = line_prefix() + detail::in_one_line(message_of(why), 64);
      const std::string in_flight = describe_in_flight();
      if (!in_flight.empty()) line += "; in flight: " + detail::in_one_line(in_flight, 16);
      write_last_words(line + '\n');
    } catch (...) {
      std::fputs("[cohort] the program has failed, and there is no memory to say why\n", stderr);
    }
  }
  if (const auto function = end_job_function.load()) function();
  return EXIT_FAILURE;
}

}  // namespace cohort::process
