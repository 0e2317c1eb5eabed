// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What waits for a condition: the templates of `nccl/source.hpp`, which includes this.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/source.hpp>

#include <functional>
#include <utility>

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

template <class Token>
auto issue_source::when(std::function<bool()> condition, Token&& token) {
  return asio::async_initiate<Token, void(std::error_code)>(start_condition{}, token, this,
                                                            std::move(condition));
}

}  // namespace cohort::nccl

#endif
