// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// An operation with its handler: the templates of `nccl/operation.hpp`, which includes this.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/operation.hpp>
#include <cohort/progress/associated_future.hpp>
#include <cohort/progress/deadline_record.hpp>
#include <cohort/progress/handler_executor.hpp>
#include <cohort/progress/pool.hpp>

#include <algorithm>
#include <memory>
#include <new>

namespace cohort::nccl::detail {

// See detail/operation.ipp.
std::error_code prepare(work& op, const request& asked);
void fill(work& op, request& asked);
bool borrows_memory(const std::vector<buffer_use>& uses);
/// Makes the parts of an operation and checks each. Returns what is wrong, and says it.
std::error_code join(work& whole, std::vector<request>& parts);

template <class Handler, class Owned>
class typed_work final : public work {
  using associated = asio::associated_allocator_t<Handler, progress::pool_allocator<void>>;
  using allocator = typename std::allocator_traits<associated>::template rebind_alloc<typed_work>;
  using memory = std::allocator_traits<allocator>;

 public:
  typed_work(Handler& handler, Owned&& owned)
      : work(&run), handler_(std::move(handler)), owned_(std::move(owned)) {}

  static typed_work* make(Handler& handler, Owned&& owned) {
    allocator from(asio::get_associated_allocator(handler, progress::pool_allocator<void>()));
    typed_work* block = memory::allocate(from, 1);
    return ::new (static_cast<void*>(block)) typed_work(handler, std::move(owned));
  }

  /// After that the operation may be gone.
  void start(request&& asked) {
    fill(*this, asked);
    progress::engine& engine = comm->source.engine();
    executor_.set(handler_, engine.get_executor());
    auto slot = asio::get_associated_cancellation_slot(handler_);
    if (slot.is_connected()) slot.template emplace<on_cancel>(on_cancel{this});
    if constexpr (progress::fills_future<Handler>) {
      auto* const future = progress::associated_future<Handler>::get(handler_);
      const bool borrows =
          borrows_memory(uses) ||
          std::any_of(asked.parts.begin(), asked.parts.end(),
                      [](const request& part) { return borrows_memory(part.uses); });
      future->belongs_to(engine, *this, borrows);
      if (future->slot() != slot) future->slot().template emplace<on_cancel>(on_cancel{this});
    }
    try {
      const bool has_parts = !asked.parts.empty();
      const std::error_code bad = has_parts ? join(*this, asked.parts) : prepare(*this, asked);
      if (bad) fail(bad);
    } catch (const std::bad_alloc&) {
      fail(std::make_error_code(std::errc::not_enough_memory));
    }
    if (tools::watched()) watched.begin(tools::category::verb, tools::literal(verb), bytes);
    if (joined) {
      comm->source.submit_parts(*this);
    } else {
      comm->source.submit(*this);
    }
  }

 private:
  /// The peers count on it, so it cannot be withdrawn. A deadline is reported.
  struct on_cancel {
    typed_work* op;
    void operator()(asio::cancellation_type) const {
      if (progress::emitting_deadline()) op->comm->source.deadline_passed(*op);
    }
  };

  void forget_cancellation() {
    auto slot = asio::get_associated_cancellation_slot(handler_);
    if constexpr (progress::fills_future<Handler>) {
      auto* const future = progress::associated_future<Handler>::get(handler_);
      future->clear_cancellation();
      if (slot == future->slot()) return;
    }
    if (slot.is_connected()) slot.clear();
  }

  static void run(operation* base, action what) {
    auto* const self = static_cast<typed_work*>(base);
    if (what == action::deliver && self->executor_.is_foreign()) {
      self->executor_.dispatch(self->comm->source.engine().loop(), *self);
      return;
    }
    if (what != action::destroy) self->forget_cancellation();
    const std::error_code error = self->error();
    allocator from(
        asio::get_associated_allocator(self->handler_, progress::pool_allocator<void>()));
    Handler handler(std::move(self->handler_));
    Owned owned(std::move(self->owned_));
    self->~typed_work();
    memory::deallocate(from, self, 1);  // before the handler runs
    if (what == action::destroy) return;
    std::apply([&](auto&... vectors) { std::move(handler)(error, std::move(vectors)...); }, owned);
  }

  Handler handler_;
  progress::handler_executor<Handler> executor_;
  Owned owned_;
};

template <class Handler, class Owned>
void start_work::operator()(Handler&& handler, request&& asked, Owned&& owned) const {
  using handler_type = std::decay_t<Handler>;
  using owned_type = std::decay_t<Owned>;
  if (!asked.comm) {
    const auto executor = executor_of(handler);
    asio::post(executor, [mine = handler_type(std::forward<Handler>(handler)),
                          back = owned_type(std::forward<Owned>(owned))]() mutable {
      const std::error_code none = errc::invalid_communicator;
      std::apply([&](auto&... vectors) { std::move(mine)(none, std::move(vectors)...); }, back);
    });
    return;
  }
  handler_type mine(std::forward<Handler>(handler));
  owned_type back(std::forward<Owned>(owned));
  typed_work<handler_type, owned_type>::make(mine, std::move(back))->start(std::move(asked));
}

}  // namespace cohort::nccl::detail

#endif
