// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Who keeps alive what other ranks count on: the context until it has been closed, and the process
/// for ever what MPI still works on.

#include <cohort/core/asio.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cohort::progress {

/// Objects of any type. *Threads*: any.
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

/// What MPI still works on when its context has gone. Never destroyed.
[[nodiscard]] inline kept_objects& left_to_mpi() {
  static kept_objects& instance = *new kept_objects;
  return instance;
}

/// Found with `asio::use_service<kept_until_closed<Instance>>(io)`. An instance may go once it is
/// `closed()`. At the end of the context all that are left are told to `abandon()`, then to
/// `drive()` what can still end, then, where they have tasks, to `settle_tasks()` and
/// `destroy_tasks()`. They stay until the engine has ended, for what MPI works on refers to them.
/// *Threads*: `add` from any.
template <class Instance>
class kept_until_closed final : public asio::execution_context::service {
 public:
  using key_type = kept_until_closed;
  static inline asio::execution_context::id id;
  explicit kept_until_closed(asio::execution_context& context) : service(context) {}

  void add(std::shared_ptr<Instance> one) {
    const std::lock_guard hold(mutex_);
    if (!ends_) std::erase_if(all_, [](const auto& each) { return each->closed(); });
    all_.push_back(std::move(one));
  }

 private:
  void shutdown() override {
    ends_ = true;
    each([](Instance& one) { one.abandon(); });
    each([](Instance& one) { one.drive(); });
    if constexpr (requires(Instance& one) { one.settle_tasks(); }) {
      each([](Instance& one) { one.settle_tasks(); });
      each([](Instance& one) { one.destroy_tasks(); });
    }
  }
  // What they do may add others.
  template <class Call>
  void each(Call call) {
    for (std::size_t i = 0; i < all_.size(); ++i) call(*all_[i]);
  }

  bool ends_ = false;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Instance>> all_;
};

}  // namespace cohort::progress
