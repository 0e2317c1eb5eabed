// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What is waited for at each look: bodies of `nccl/source.hpp`.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace cohort::nccl {

template <class Handler>
class issue_source::condition_operation final : public condition_base {
 public:
  explicit condition_operation(Handler&& handler)
      : condition_base(&run), handler_(std::move(handler)) {}

 private:
  static void run(progress::operation* base, action what) {
    auto* const self = static_cast<condition_operation*>(base);
    Handler handler(std::move(self->handler_));
    const std::error_code error = self->error;
    delete self;
    if (what != action::destroy) std::move(handler)(error);
  }
  Handler handler_;
};

struct issue_source::start_condition {
  template <class Handler>
  void operator()(Handler&& handler, issue_source* source, std::function<bool()> holds) const {
    using operation = condition_operation<std::decay_t<Handler>>;
    auto* const op = new operation(std::decay_t<Handler>(std::forward<Handler>(handler)));
    op->holds = std::move(holds);
    source->wait_for(*op);
  }
};

inline void issue_source::wait_for(condition_base& one) {
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

inline void issue_source::at_next_look(std::function<void()> what) {
  wait_for(*std::make_unique<call_at_look>(std::move(what)).release());
}

inline void issue_source::end_at_next_look(const std::vector<work*>& ended) {
  if (ended.empty()) return;
  for (work* const op : ended) op->settle();
  {
    const std::lock_guard hold(mutex_);
    ended_in_lap_.insert(ended_in_lap_.end(), ended.begin(), ended.end());
    recount();
  }
  engine_.started();
}

template <class Token>
auto issue_source::when(std::function<bool()> condition, Token&& token) {
  return asio::async_initiate<Token, void(std::error_code)>(start_condition{}, token, this,
                                                            std::move(condition));
}

}  // namespace cohort::nccl
