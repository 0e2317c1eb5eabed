// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What is waited for at each look: bodies of `nccl/source.hpp`.

#include <cohort/nccl/source.hpp>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace cohort::nccl {

COHORT_INLINE void issue_source::wait_for(condition_base& one) {
  bool late = false;
  {
    const std::lock_guard hold(mutex_);
    if (ending_ && !one.bounded) one.error = asio::error::operation_aborted;
    late = ending_ && one.in_lap == nullptr;
    if (!late) {
      conditions_.push_back(&one);
      recount();
    }
  }
  if (late) {
    engine_.complete(&one);
  } else {
    engine_.started();
  }
}

class issue_source::call_at_look final : public condition_base {
 public:
  explicit call_at_look(std::function<void()> what) : condition_base(&run), what_(std::move(what)) {
    holds = [] { return true; };
    in_lap = [](condition_base* base) { static_cast<call_at_look*>(base)->deliver(); };
    bounded = true;
  }

 private:
  static void run(progress::operation* base, action what) {
    const std::unique_ptr<call_at_look> self(static_cast<call_at_look*>(base));
    if (what != action::destroy) self->what_();
  }
  std::function<void()> what_;
};

COHORT_INLINE void issue_source::at_next_look(std::function<void()> what) {
  wait_for(*std::make_unique<call_at_look>(std::move(what)).release());
}

COHORT_INLINE void issue_source::end_at_next_look(const std::vector<work*>& ended) {
  if (ended.empty()) return;
  for (work* const op : ended) op->settle();
  {
    const std::lock_guard hold(mutex_);
    ended_in_lap_.insert(ended_in_lap_.end(), ended.begin(), ended.end());
    recount();
  }
  engine_.started();
}

}  // namespace cohort::nccl
