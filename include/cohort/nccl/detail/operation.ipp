// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `nccl/operation.hpp`.

#include <cohort/progress/associated_future.hpp>
#include <cohort/progress/deadline_record.hpp>
#include <cohort/progress/handler_executor.hpp>
#include <cohort/progress/pool.hpp>

#include <algorithm>
#include <memory>
#include <new>

namespace cohort::nccl::detail {

inline bool overlap(const buffer_use& a, const buffer_use& b) noexcept {
  const auto* const x = static_cast<const std::byte*>(a.data);
  const auto* const y = static_cast<const std::byte*>(b.data);
  return a.bytes != 0 && b.bytes != 0 && x < y + b.bytes && y < x + a.bytes;
}

// 1. What is wrong with the arguments. 2. What the streams have queued so far is marked: the
// caller's, and those of the buffers.
inline std::error_code prepare(work& op, const request& asked) {
  communicator_state& comm = *op.comm;
  failure_text text(comm.rank, std::string("nccl ") + op.verb);
  const auto wrong = [&](errc code) {
    comm.remember(text.with_code(code));
    return make_error_code(code);
  };
  if (asked.bad != errc{}) {
    text.note(asked.facts);
    return wrong(asked.bad);
  }
  for (const buffer_use& use : op.uses) {
    if (!use.unusable) continue;
    comm.remember({use.unusable, text.with("field", use.field).str() + ": " +  //
                                     use.unusable.message()});
    return use.unusable;
  }
  if (op.user->device() != comm.device) {
    text.with("stream.device", op.user->device()).with("communicator.device", comm.device);
    return wrong(errc::wrong_device);
  }
  // Its handle means another stream on the thread that laps.
  const auto of_thread = [](const device::stream& one) { return one.get() == cudaStreamPerThread; };
  if (of_thread(*op.user)) {
    text.note("stream: cudaStreamPerThread cannot be waited for from another thread");
    return wrong(errc::invalid_argument);
  }
  for (const buffer_use& use : op.uses) {
    if (use.bytes == 0 || !use.producer || !of_thread(*use.producer)) continue;
    text.with("field", use.field).note("is made on cudaStreamPerThread");
    return wrong(errc::invalid_argument);
  }
  for (const buffer_use& use : op.uses) {
    if (use.bytes == 0 || use.device == comm.device) continue;
    text.with("field", use.field).with("device", use.device);
    text.with("communicator.device", comm.device);
    return wrong(errc::wrong_device);
  }
  if ((op.more.empty() || asked.never_in_place) && op.uses.size() == 2 &&
      overlap(op.uses[0], op.uses[1])) {
    const bool in_place =
        asked.may_be_in_place && !asked.never_in_place && op.one.from == asked.in_place_at;
    if (!in_place) {
      text.note("the input and the output overlap");
      return wrong(errc::invalid_argument);
    }
  }
  try {
    device::check_usable(comm.device);
    op.after.push_back(op.user->record());
    for (std::size_t i = 0; i < op.uses.size(); ++i) {
      const auto& producer = op.uses[i].producer;
      const auto same = [&](const buffer_use& other) { return other.producer == producer; };
      const auto here = op.uses.begin() + static_cast<std::ptrdiff_t>(i);
      if (!producer || *producer == *op.user || std::any_of(op.uses.begin(), here, same)) continue;
      op.after.push_back(producer->record());
    }
  } catch (const std::system_error& failed) {
    comm.remember({failed.code(), text.str() + ": " + failed.what()});
    return failed.code();
  }
  return {};
}

inline void fill(work& op, request& asked) {
  op.comm = std::move(asked.comm);
  op.verb = asked.verb;
  op.ends = asked.ends;
  op.one = asked.one;
  op.more = std::move(asked.more);
  op.uses = std::move(asked.uses);
  op.user = std::move(asked.user);
  op.bytes = asked.bytes;
  op.everybody = asked.everybody;
}

inline bool borrows_memory(const std::vector<buffer_use>& uses) {
  return std::any_of(uses.begin(), uses.end(),
                     [](const buffer_use& use) { return use.bytes != 0 && !use.lease; });
}

/// Makes the parts of an operation and checks each. Returns what is wrong, and says it.
inline std::error_code join(work& whole, std::vector<request>& parts) {
  whole.joined = std::make_shared<work_set>(whole);
  const auto wrong = [&](errc code, const std::string& fact) {
    failure_text text(whole.comm->rank, std::string("nccl ") + whole.verb);
    whole.comm->remember(text.note(fact).with_code(code));
    return make_error_code(code);
  };
  std::vector<int> devices;
  for (request& asked : parts) {
    const std::string which = std::string(asked.verb) + ": ";
    if (!asked.comm) return wrong(errc::invalid_communicator, which + "no communicator");
    if (&asked.comm->source != &whole.comm->source) {
      return wrong(errc::invalid_argument, which + "a communicator of another io_context");
    }
    const int device = asked.comm->device;
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
      return wrong(errc::invalid_argument,
                   which + "device " + std::to_string(device) + " has two parts");
    }
    devices.push_back(device);
    asked.ends = whole.ends;
    partial_work& part = whole.joined->parts.emplace_back();
    fill(part, asked);
    part.part_of = whole.joined.get();
    whole.bytes += part.bytes;
    if (const std::error_code bad = prepare(part, asked)) return bad;
  }
  return {};
}

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
