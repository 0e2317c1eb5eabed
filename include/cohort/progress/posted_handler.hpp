// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A completion handler of something that has no operation in the engine.

#include <cohort/core/asio.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/handler_executor.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/pool.hpp>

#include <asio/executor_work_guard.hpp>

#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::progress {

namespace detail {

/// A handler with its executor, which it keeps from running out of work.
template <class Handler>
class handler_at_work {
 public:
  handler_at_work(Handler handler, engine& by)
      : handler_(std::move(handler)), engine_(&by), work_(by.get_executor()) {
    executor_.set(handler_, by.get_executor());
    if (executor_.is_foreign()) work_.reset();
  }

  [[nodiscard]] auto slot() const { return asio::get_associated_cancellation_slot(handler_); }
  [[nodiscard]] Handler& handler() noexcept { return handler_; }
  [[nodiscard]] engine& by() const noexcept { return *engine_; }
  [[nodiscard]] handler_executor<Handler>& executor() noexcept { return executor_; }

 private:
  Handler handler_;
  engine* engine_;
  handler_executor<Handler> executor_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
};

/// Where a delivery lies: in the pool, but for what the pool does not align.
template <std::size_t Alignment>
struct delivery_memory {
  static void* operator new(std::size_t bytes) { return pool::allocate(bytes); }
  static void operator delete(void* block, std::size_t bytes) noexcept {
    pool::deallocate(block, bytes);
  }
};
template <std::size_t Alignment>
requires(Alignment > __STDCPP_DEFAULT_NEW_ALIGNMENT__) struct delivery_memory<Alignment> {
};

/// One that is on its way, with what it will be told.
template <class Handler, class... Arguments>
class handler_delivery final
    : public operation,
      public delivery_memory<alignof(std::tuple<handler_at_work<Handler>, Arguments...>)> {
 public:
  template <class... Given>
  explicit handler_delivery(handler_at_work<Handler>&& whose, Given&&... arguments)
      : operation(&run), whose_(std::move(whose)), arguments_(std::forward<Given>(arguments)...) {}

 private:
  static void run(operation* base, action what) {
    std::unique_ptr<handler_delivery> self(static_cast<handler_delivery*>(base));
    if (what == action::deliver && self->whose_.executor().is_foreign()) {
      handler_delivery& all = *self.release();
      all.whose_.executor().dispatch(all.whose_.by().loop(), all);
    } else if (what != action::destroy) {
      auto whose = std::move(self->whose_);
      auto arguments = std::move(self->arguments_);
      self.reset();  // its memory is there for what the handler does next
      std::apply(std::move(whose.handler()), std::move(arguments));
    }
  }

  handler_at_work<Handler> whose_;
  std::tuple<Arguments...> arguments_;
};

}  // namespace detail

/// Waits for something that the loop does, and is then called on its executor, by
/// \ref engine::post: never inside the caller.
template <class Handler>
class posted_handler {
 public:
  posted_handler(Handler handler, engine& by) : handler_(std::move(handler), by) {}

  [[nodiscard]] auto slot() const { return handler_.slot(); }

  /// Once. The cancellation slot is let go of.
  template <class... Arguments>
  void post(Arguments&&... arguments) {
    if (auto mine = slot(); mine.is_connected()) mine.clear();
    using delivery = detail::handler_delivery<Handler, std::decay_t<Arguments>...>;
    engine& by = handler_.by();
    by.post(new delivery(std::move(handler_), std::forward<Arguments>(arguments)...));
  }

 private:
  detail::handler_at_work<Handler> handler_;
};

}  // namespace cohort::progress
