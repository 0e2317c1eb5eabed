// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The sources of an engine.

#include <cohort/progress/polled_source.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace cohort::progress {

/// The sources of an engine. It only grows while the engine lives, and what is in it stays where it
/// is, so a lap can go through it while another thread adds a source.
class source_list {
 public:
  static constexpr std::size_t most = 16;

  /// Borrows the source. Throws std::length_error when there is no room.
  void add(polled_source& one) {
    const std::lock_guard hold(adding_);
    const std::size_t size = size_.load(std::memory_order_relaxed);
    if (size == most) throw std::length_error("an engine has at most 16 sources");
    all_[size] = &one;
    size_.store(size + 1, std::memory_order_release);
  }
  /// The same for what stands for a class without that base.
  void add(const void* stands_for, std::unique_ptr<polled_source> one) {
    add(*one);
    const std::lock_guard hold(adding_);
    adapters_.push_back({stands_for, std::move(one)});
  }
  /// At the end, when no lap runs. Looks into none of them: others may have gone without a word.
  void remove(const void* attached) noexcept {
    const std::lock_guard hold(adding_);
    const auto is_of = [=](const adapter& one) { return one.stands_for == attached; };
    const auto found = std::find_if(adapters_.begin(), adapters_.end(), is_of);
    const void* const gone = found == adapters_.end() ? attached : found->source.get();
    const auto end = all_.begin() + static_cast<std::ptrdiff_t>(size_.load());
    const auto kept =
        std::remove_if(all_.begin(), end, [=](const void* one) { return one == gone; });
    size_.store(static_cast<std::size_t>(kept - all_.begin()));
    if (found != adapters_.end()) adapters_.erase(found);
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }
  [[nodiscard]] polled_source* const* begin() const noexcept { return all_.data(); }
  [[nodiscard]] polled_source* const* end() const noexcept { return all_.data() + size(); }
  [[nodiscard]] polled_source* operator[](std::size_t i) const noexcept { return all_[i]; }

 private:
  std::array<polled_source*, most> all_{};
  std::atomic<std::size_t> size_{0};
  struct adapter {
    const void* stands_for;
    std::unique_ptr<polled_source> source;
  };
  std::vector<adapter> adapters_;
  std::mutex adding_;
};

}  // namespace cohort::progress
