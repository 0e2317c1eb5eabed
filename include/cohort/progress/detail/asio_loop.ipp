// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The loop of an `asio::io_context` that carries an engine. A template that the engine's
/// constructor instantiates, which is one too: so files that only await do not compile it.

#include <cohort/core/asio.hpp>
#include <cohort/progress/detail/event_loop.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/pool.hpp>

#include <asio/posix/stream_descriptor.hpp>

#include <chrono>
#include <optional>
#include <system_error>

namespace cohort::progress::detail {

template <class Engine, class Context>
class asio_loop final : public event_loop {
  /// The memory of what is posted comes from the pool.
  struct pooled {
    using allocator_type = pool_allocator<void>;
    [[nodiscard]] allocator_type get_allocator() const noexcept { return {}; }
  };
  struct lap_handler : pooled {
    explicit lap_handler(Engine& of) noexcept : owner(&of) {}
    void operator()() const { owner->lap(); }
    Engine* owner;
  };
  struct nap_handler : pooled {
    nap_handler(asio_loop* of, bool holds) noexcept : self(of), holds_work(holds) {}
    void operator()(const std::error_code& cancelled) const {
      if (!holds_work) self->io_.get_executor().on_work_started();
      if (!cancelled) self->owner_.nap_over();
    }
    asio_loop* self;
    bool holds_work;
  };
  struct readable_handler : pooled {
    readable_handler(asio_loop* of, readable_function call, void* with) noexcept
        : self(of), ready(call), argument(with) {}
    void operator()(const std::error_code& cancelled) const {
      self->io_.get_executor().on_work_started();
      if (!cancelled) ready(argument);
    }
    asio_loop* self;
    readable_function ready;
    void* argument;
  };

 public:
  asio_loop(Context& context, Engine& owner)
      : io_(static_cast<asio::io_context&>(context)), owner_(owner) {}

  void post_lap() override { asio::post(io_.get_executor(), lap_handler(owner_)); }
  void defer_lap() override { asio::defer(io_.get_executor(), lap_handler(owner_)); }
  void post(operation& op) override {
    asio::post(io_.get_executor(), carrier<operation::action::deliver>(op));
  }
  void dispatch(asio::any_io_executor where, operation& op) override {
    asio::dispatch(where, hop(op));
  }
  void start_nap(std::chrono::nanoseconds duration, bool holds_work) override {
    if (!timer_) timer_.emplace(io_);
    timer_->expires_after(duration);
    timer_->async_wait(nap_handler(this, holds_work));
    // Taken back first thing in the handler. Inside a handler the count cannot fall to zero here.
    if (!holds_work) io_.get_executor().on_work_finished();
  }
  void cancel_nap() override { timer_->cancel(); }
  void wait_readable(int socket, readable_function ready, void* argument) override {
    if (!socket_) socket_.emplace(io_, socket);
    socket_->async_wait(asio::posix::stream_descriptor::wait_read,
                        readable_handler(this, ready, argument));
    io_.get_executor().on_work_finished();  // taken back first thing in the handler
  }
  void forget_socket() noexcept override {
    if (socket_) socket_->release();
    socket_.reset();
  }

 private:
  asio::io_context& io_;
  Engine& owner_;
  // Constructed when first needed: their existence makes every turn of the loop dearer.
  std::optional<asio::steady_timer> timer_;
  std::optional<asio::posix::stream_descriptor> socket_;
};

}  // namespace cohort::progress::detail
