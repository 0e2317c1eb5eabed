// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Whether the loop of a context has a thread of its own, a `progress_thread`.

#include <cohort/core/asio.hpp>

#include <atomic>
#include <cstdint>

namespace cohort::progress {

/// A service, so that a context knows it before it has an engine.
class own_thread final : public asio::execution_context::service {
 public:
  using key_type = own_thread;
  static inline asio::execution_context::id id;
  explicit own_thread(asio::execution_context& context) : service(context) {}

  void set(bool runs) noexcept {
    runs_.store(runs);
    if (auto* const disturbed = disturbed_.load()) disturbed->store(true);
    auto* const turns = turns_.load();
    if (turns == nullptr) return;
    turns->fetch_add(1);
    turns->notify_all();
  }
  /// Who waits for a turn of the loop there also hears of the end of the thread.
  void tell(std::atomic<std::uint32_t>& turns, std::atomic<bool>& disturbed) noexcept {
    turns_.store(&turns);
    disturbed_.store(&disturbed);
  }
  [[nodiscard]] bool runs() const noexcept { return runs_.load(std::memory_order_relaxed); }

 private:
  void shutdown() override {}
  std::atomic<bool> runs_{false};
  std::atomic<std::atomic<std::uint32_t>*> turns_{nullptr};
  std::atomic<std::atomic<bool>*> disturbed_{nullptr};
};

}  // namespace cohort::progress
