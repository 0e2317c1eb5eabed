// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `device/completion.hpp`.

#include <cohort/progress/handler_operation.hpp>

#include <asio/strand.hpp>

#include <algorithm>
#include <cstdio>
#include <new>
#include <utility>

namespace cohort::device {
// ---- the source ------------------------------------------------------------------------------

template <std::derived_from<asio::execution_context> Context>
completion_source::completion_source(Context& context)
    : dear_source(asio::use_service<progress::engine>(context)),
      asio::execution_context::service(context) {
  engine_.attach(*this);
}

inline void completion_source::add(completion_operation& op) {
  const cudaStream_t native = op.on_.get();
  {
    const std::lock_guard hold(mutex_);
    // The per-thread default streams of two threads have one handle and no common order.
    const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const lane& one) {
      return one.stream == native && one.device == op.on_.device() && native != cudaStreamPerThread;
    });
    if (found == lanes_.end()) {
      lanes_.push_back({op.on_.device(), native, &op, &op});
    } else {
      found->last->next_ = &op;
      found->last = &op;
    }
    op.pending_ = true;
    count(1);
  }
  engine_.started();
}

inline void completion_source::finish(completion_operation& op, std::error_code why,
                                      progress::ready_queue& ready) {
  op.fail(why);
  op.pending_ = false;
  count(-1);
  op.settle();
  ready.push(&op);
}

/// Finishes what has been reached, in order, until CUDA says "not ready".
inline std::size_t completion_source::look_at(lane& one, progress::ready_queue& ready) {
  std::size_t found = 0;
  while (one.head != nullptr) {
    completion_operation& op = *one.head;
    const cudaError_t code = op.mark_.query();
    if (code == cudaErrorNotReady) break;
    std::error_code why;
    if (code != cudaSuccess) [[unlikely]] {
      why = make_error(code);
      // The event was good when it was recorded, so a refusal means that its context has gone.
      if (code == cudaErrorInvalidResourceHandle) {
        state_of(one.device).context_gone(op.mark_.generation());
      }
      detail::note(code, one.device, op.mark_.generation());
    }
    one.head = op.next_;
    ++found;
    finish(op, why, ready);
  }
  return found;
}

/// Ends those whose device was lost or reset, wherever that was noticed.
inline std::size_t completion_source::end_gone(progress::ready_queue& ready) {
  std::size_t found = 0;
  for (lane& one : lanes_) {
    const device_state& state = state_of(one.device);
    const cudaError_t lost = state.lost();
    const auto why = make_error(lost == cudaSuccess ? cudaErrorContextIsDestroyed : lost);
    completion_operation* op = std::exchange(one.head, nullptr);
    while (op != nullptr) {
      completion_operation* const next = std::exchange(op->next_, nullptr);
      if (!state.holds(op->mark_.generation())) {
        ++found;
        finish(*op, why, ready);
      } else if (one.head == nullptr) {
        one.head = one.last = op;
      } else {
        one.last = one.last->next_ = op;
      }
      op = next;
    }
  }
  return found;
}

// 1. Ask for the head of each lane, and for those behind it if it is done.
// 2. If a device was lost or reset, by that or by anybody, end all who wait for it.
// 3. Drop the lanes that are empty now.
inline std::size_t completion_source::test(progress::ready_queue& ready) {
  if (lanes_.empty()) return 0;
  std::size_t found = 0;
  bool gone = false;
  {
    const detail::relaxed_capture may_ask;
    for (lane& one : lanes_) {
      // Also one that was added since the change was seen, by a thread that had not heard of it.
      if (state_of(one.device).holds(one.head->mark_.generation())) {
        found += look_at(one, ready);
      } else {
        gone = true;
      }
    }
  }
  const std::uint32_t changes = device_state::changes().load(std::memory_order_acquire);
  if (gone || changes != seen_changes_) [[unlikely]] {
    seen_changes_ = changes;
    found += end_gone(ready);
  }
  if (found != 0) std::erase_if(lanes_, [](const lane& one) { return one.head == nullptr; });
  return found;
}

inline void completion_source::cancel(completion_operation& op) {
  {
    const std::lock_guard hold(mutex_);
    if (!op.pending_) return;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      lane& one = lanes_[i];
      completion_operation* before = nullptr;
      completion_operation* at = one.head;
      while (at != nullptr && at != &op) before = std::exchange(at, at->next_);
      if (at == nullptr) continue;
      (before == nullptr ? one.head : before->next_) = op.next_;
      if (one.last == &op) one.last = before;
      if (one.head == nullptr) lanes_.erase(lanes_.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    op.pending_ = false;
    op.fail(asio::error::operation_aborted);
    count(-1);
  }
  engine_.complete(&op);
}

/// Nobody's memory is at stake in a wait, so all end at once.
inline void completion_source::leave() {
  std::vector<lane> left;
  {
    const std::lock_guard hold(mutex_);
    left.swap(lanes_);
    for (const lane& one : left) {
      for (completion_operation* op = one.head; op != nullptr; op = op->next_) {
        op->pending_ = false;
        op->fail(asio::error::operation_aborted);
        count(-1);
      }
    }
  }
  for (const lane& one : left) {
    completion_operation* op = one.head;
    while (op != nullptr) engine_.complete(std::exchange(op, op->next_));
  }
}

inline void completion_source::list(progress::pending_lines& lines) {
  const std::lock_guard hold(mutex_);
  for (const lane& one : lanes_) {
    for (completion_operation* op = one.head; op != nullptr; op = op->next_) {
      if (!lines.names(op->age_)) continue;
      char text[128];
      std::snprintf(text, sizeof text, "device %d, stream %p: done", op->on_.device(),
                    static_cast<void*>(op->on_.get()));
      lines.add(text, op->age_);
    }
  }
}

// ---- the operation ---------------------------------------------------------------------------

namespace detail {

template <class Handler>
class done_operation final
    : public progress::handler_operation<done_operation<Handler>, Handler, completion_operation> {
 public:
  done_operation(Handler& handler, completion_source& source, const stream& on)
      : done_operation::handler_operation(handler, on), source_(source) {}

  /// After that the operation may be gone.
  void start() {
    this->connect(owner(), false);
    if (owner().stopped()) {
      this->fail(errc::engine_stopped);
    } else {
      try {
        this->mark_ = this->on_.record();
      } catch (const std::system_error& failed) {
        this->fail(failed.code());
      } catch (const std::bad_alloc&) {
        this->fail(std::make_error_code(std::errc::not_enough_memory));
      }
    }
    if (this->error()) {
      owner().complete(this);
    } else {
      source_.add(*this);
    }
  }

  [[nodiscard]] progress::engine& owner() const { return source_.engine(); }
  void cancel(asio::cancellation_type) { source_.cancel(*this); }
  [[nodiscard]] auto outcome(bool) {
    return [why = this->error()](Handler&& handler) { std::move(handler)(why); };
  }

 private:
  completion_source& source_;
};

/// The context behind an executor if it is an `asio::io_context`, else null.
template <class Executor>
asio::io_context* loop_of(const Executor& executor) {
  using loop = asio::io_context::executor_type;
  if constexpr (std::is_same_v<Executor, loop>) {
    return &executor.context();
  } else if constexpr (requires { executor.get_inner_executor(); }) {  // a strand
    return loop_of(executor.get_inner_executor());
  } else {
    if (const auto* it = executor_inside<loop>(executor)) return &it->context();
    if (const auto* it = executor_inside<asio::strand<loop>>(executor)) return loop_of(*it);
    if (const auto* it = executor_inside<asio::strand<asio::any_io_executor>>(executor)) {
      return loop_of(*it);
    }
    asio::execution_context& context = asio::query(executor, asio::execution::context);
    if (!asio::has_service<progress::engine>(context)) return nullptr;
    return static_cast<asio::io_context*>(&context);  // nothing else has an engine
  }
}

template <class Executor>
inline constexpr bool may_have_loop = requires(const Executor& executor) {
  executor.template target<asio::io_context::executor_type>();  // any_io_executor: known later
};
template <>
inline constexpr bool may_have_loop<asio::io_context::executor_type> = true;
template <class Inner>
inline constexpr bool may_have_loop<asio::strand<Inner>> = may_have_loop<Inner>;

struct start_done {
  template <class Handler>
  void operator()(Handler&& handler, asio::io_context* io, const stream& on) const {
    using handler_type = std::decay_t<Handler>;
    handler_type mine(std::forward<Handler>(handler));
    auto& source = asio::use_service<completion_source>(*io);
    done_operation<handler_type>::make(mine, source, on)->start();
  }
};

/// On the loop that the handler's executor belongs to.
struct start_done_here {
  template <class Handler>
  void operator()(Handler&& handler, const stream& on) const {
    const auto executor = executor_of(handler);
    constexpr bool found = may_have_loop<std::remove_const_t<decltype(executor)>>;
    static_assert(found,
                  "no loop is known that could poll: the handler has no executor of an "
                  "asio::io_context, so call done(io, stream, token)");
    if constexpr (found) {
      if (asio::io_context* io = loop_of(executor)) {
        start_done()(std::forward<Handler>(handler), io, on);
        return;
      }
      progress::post_without_engine(std::forward<Handler>(handler), [](auto&& mine) {
        std::move(mine)(make_error_code(errc::invalid_argument));
      });
    }
  }
};

}  // namespace detail

template <completion_token_for<void(std::error_code)> Token>
auto done(const stream& on, Token&& token) {
  return asio::async_initiate<Token, void(std::error_code)>(detail::start_done_here{}, token, on);
}

template <completion_token_for<void(std::error_code)> Token>
auto done(asio::io_context& io, const stream& on, Token&& token) {
  return asio::async_initiate<Token, void(std::error_code)>(detail::start_done{}, token, &io, on);
}

}  // namespace cohort::device
