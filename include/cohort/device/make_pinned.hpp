// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `co_await cohort::device::make_pinned<T>(size, stream)`: pinned memory without blocking a loop.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/core/asio.hpp>
#include <cohort/device/completion.hpp>
#include <cohort/device/pinned_vector.hpp>
#include <cohort/progress/handler_operation.hpp>

#include <cstddef>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::device::detail {

/// The part of a request that its context knows, and drops when it ends.
class abandonable {
 public:
  virtual ~abandonable() = default;
  /// Drops the handler: nobody could call it any more.
  virtual void abandon() = 0;
};

/// The requests of a context that still have a thread.
class pinned_requests : public asio::execution_context::service {
 public:
  using key_type = pinned_requests;
  static inline asio::execution_context::id id;

  explicit pinned_requests(asio::execution_context& context)
      : asio::execution_context::service(context) {}

  void add(std::weak_ptr<abandonable> request) {
    const std::lock_guard hold(mutex_);
    std::erase_if(all_, [](const auto& one) { return one.expired(); });
    all_.push_back(std::move(request));
  }

 private:
  void shutdown() override {
    std::vector<std::weak_ptr<abandonable>> all;
    {
      const std::lock_guard hold(mutex_);
      all.swap(all_);
    }
    for (const auto& one : all) {
      if (const auto request = one.lock()) request->abandon();
    }
  }

  std::mutex mutex_;
  std::vector<std::weak_ptr<abandonable>> all_;
};

/// A thread asks CUDA for the block. It is not waited for: a request that is given up ends at once,
/// and the block goes into the pool when it comes.
template <class Handler>
class pinned_request final : public abandonable,
                             public std::enable_shared_from_this<pinned_request<Handler>> {
 public:
  pinned_request(Handler&& handler, progress::engine& by) {
    handler_.emplace(std::move(handler), by);
  }

  void start(asio::io_context& io, std::size_t bytes, int device) {
    asio::use_service<pinned_requests>(io).add(this->weak_from_this());
    if (auto slot = handler_->slot(); slot.is_connected()) {
      slot.assign([weak = this->weak_from_this()](asio::cancellation_type) {
        if (const auto self = weak.lock()) self->finish(aborted(), pooled_block());
      });
    }
    try {
      std::thread([self = this->shared_from_this(), bytes, device] {
        std::exception_ptr why;
        pooled_block block;
        try {
          block = pooled_block(pinned_pool::of_process().take(bytes, device));
        } catch (...) {
          why = std::current_exception();
        }
        self->finish(std::move(why), std::move(block));  // this thread keeps nothing of it
      }).detach();
    } catch (const std::system_error&) {  // no more threads
      finish(std::current_exception(), pooled_block());
    }
  }

  void abandon() override {
    std::unique_lock hold(mutex_);
    const auto handler = std::exchange(handler_, std::nullopt);
    hold.unlock();
  }

 private:
  static std::exception_ptr aborted() {
    return std::make_exception_ptr(
        std::system_error(std::error_code(asio::error::operation_aborted)));
  }

  /// The first one counts. Posts while it holds the lock, so that the context cannot end meanwhile.
  void finish(std::exception_ptr why, pooled_block block) {
    const std::lock_guard hold(mutex_);
    if (!handler_) return;
    handler_->post(std::move(why), std::move(block));
    handler_.reset();
  }

  std::mutex mutex_;
  std::optional<progress::posted_handler<Handler>> handler_;
};

struct start_pinned_request {
  template <class Handler>
  void operator()(Handler&& handler, asio::io_context* io, std::size_t bytes, int device) const {
    using request = pinned_request<std::decay_t<Handler>>;
    std::make_shared<request>(std::forward<Handler>(handler), use_engine(*io))
        ->start(*io, bytes, device);
  }
};

/// A block of the pool at once, or one from CUDA later. *Cancellation*: ends with
/// `operation_aborted`.
inline asio::awaitable<pooled_block> request_pinned(std::size_t bytes, int device) {
  if (auto found = pinned_pool::of_process().find(bytes, device)) {
    co_return pooled_block(*found);
  }
  const auto executor = co_await asio::this_coro::executor;
  asio::io_context* const io = loop_of(executor);
  if (io == nullptr) throw error(errc::invalid_argument, "an executor of no asio::io_context");
  co_return co_await asio::async_initiate<const asio::use_awaitable_t<>,
                                          void(std::exception_ptr, pooled_block)>(
      start_pinned_request(), asio::use_awaitable, io, bytes, device);
}

}  // namespace cohort::device::detail

namespace cohort::device {

/// A `pinned_vector<T>` of `size` elements on `on`, from the pool, or from CUDA by a thread where
/// the pool has no such block: `cudaHostAlloc` may wait for the device.
///
/// An awaitable for a coroutine of an `asio::io_context`. *Cancellation*: ends with
/// `operation_aborted`. *Errors*: error(errc::count_too_large), CUDA's codes.
template <class T>
[[nodiscard]] asio::awaitable<pinned_vector<T>> make_pinned(std::size_t size, stream on) {
  if (size > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) {
    throw error(errc::count_too_large, "a pinned vector of so many elements");
  }
  if (size == 0) co_return pinned_vector<T>(0, std::move(on));
  auto asked = detail::request_pinned(size * sizeof(T), on.device());
  auto block = co_await std::move(asked);
  co_return pinned_vector<T>(block.release(), size, std::move(on));
}

}  // namespace cohort::device

#endif
