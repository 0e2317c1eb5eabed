// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Who keeps instances alive: the context until they are closed, and MPI what it still works
/// on.

#include <cohort/coordinator/instance.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// What MPI still works on. Engines of several threads may put something here at the same time.
class kept_objects {
 public:
  void add(std::shared_ptr<void> one) {
    const std::lock_guard hold(mutex_);
    all_.push_back(std::move(one));
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard hold(mutex_);
    return all_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<void>> all_;
};

/// Never destroyed.
[[nodiscard]] inline kept_objects& left_to_mpi() {
  static kept_objects& instance = *new kept_objects;
  return instance;
}

/// Keeps the instances of a context alive until they are closed, and abandons them at its end.
class registry final : public asio::execution_context::service {
 public:
  using key_type = registry;
  static inline asio::execution_context::id id;
  explicit registry(asio::execution_context& context) : service(context) {}

  void add(std::shared_ptr<instance> one) {
    std::erase_if(all_, [](const auto& each) { return each->closed(); });
    all_.push_back(std::move(one));
  }

 private:
  // They stay in the list: what MPI still works on refers to them until the engine has ended.
  inline void shutdown() override {
    for (const auto& one : all_) one->abandon();
    for (const auto& one : all_) one->drive();
    for (const auto& one : all_) one->settle_tasks();
    for (const auto& one : all_) one->destroy_tasks();
  }
  std::vector<std::shared_ptr<instance>> all_;
};

}  // namespace cohort::coordination
