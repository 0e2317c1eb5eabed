// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Memory of operations, and the end of a handler whose operation goes on without it.

#include <cohort/core/asio.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/handler_executor.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/pool.hpp>

#include <exception>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

namespace cohort::comm::detail {

/// Calls a handler of `Signature` with an error and nothing else worth having.
template <class Signature>
struct with_defaults;
template <class... Values>
struct with_defaults<void(std::error_code, Values...)> {
  template <class Handler>
  static void call(Handler&& handler, std::error_code error) {
    std::forward<Handler>(handler)(error, Values()...);
  }
};
template <class... Values>
struct with_defaults<void(std::exception_ptr, Values...)> {
  template <class Handler>
  static void call(Handler&& handler, std::error_code error) {
    std::forward<Handler>(handler)(std::make_exception_ptr(std::system_error(error)), Values()...);
  }
};

/// Memory of an operation from its handler's allocator.
template <class Operation, class Handler>
struct operation_memory {
  using associated = asio::associated_allocator_t<Handler, progress::pool_allocator<void>>;
  using allocator = typename std::allocator_traits<associated>::template rebind_alloc<Operation>;
  using traits = std::allocator_traits<allocator>;

  static allocator of(const Handler& handler) noexcept {
    return allocator(asio::get_associated_allocator(handler, progress::pool_allocator<void>()));
  }
  template <class... Args>
  static Operation* make(Handler& handler, Args&&... args) {
    allocator memory = of(handler);
    Operation* block = traits::allocate(memory, 1);
    try {
      return ::new (static_cast<void*>(block)) Operation(handler, std::forward<Args>(args)...);
    } catch (...) {
      traits::deallocate(memory, block, 1);
      throw;
    }
  }
};

/// Delivers `operation_aborted` to the handler of an operation that goes on alone.
template <class Handler, class Signature>
class aborted_delivery final : public progress::operation {
  using memory = operation_memory<aborted_delivery, Handler>;

 public:
  aborted_delivery(Handler& handler, progress::handler_executor<Handler>&& executor,
                   progress::engine& owner)
      : operation(&run),
        handler_(std::move(handler)),
        executor_(std::move(executor)),
        engine_(owner) {}

 private:
  static void run(operation* base, action what) {
    auto* self = static_cast<aborted_delivery*>(base);
    if (what == action::deliver && self->executor_.is_foreign()) {
      self->executor_.dispatch(self->engine_.loop(), *self);
    } else {
      self->release(what != action::destroy);
    }
  }
  void release(bool deliver) {
    auto allocator = memory::of(handler_);
    Handler handler(std::move(handler_));
    this->~aborted_delivery();
    memory::traits::deallocate(allocator, this, 1);
    const std::error_code aborted = asio::error::operation_aborted;
    if (deliver) with_defaults<Signature>::call(std::move(handler), aborted);
  }

  Handler handler_;
  progress::handler_executor<Handler> executor_;
  progress::engine& engine_;
};

}  // namespace cohort::comm::detail
