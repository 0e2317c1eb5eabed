// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Whether the loop of a context has a thread of its own, a `progress_thread`.

#include <cohort/core/asio.hpp>

#include <atomic>

namespace cohort::progress {

/// A service, so that a context knows it before it has an engine.
class own_thread final : public asio::execution_context::service {
 public:
  using key_type = own_thread;
  static inline asio::execution_context::id id;
  explicit own_thread(asio::execution_context& context) : service(context) {}

  void set(bool runs) noexcept { runs_.store(runs); }
  [[nodiscard]] bool runs() const noexcept { return runs_.load(std::memory_order_relaxed); }

 private:
  void shutdown() override {}
  std::atomic<bool> runs_{false};
};

}  // namespace cohort::progress
