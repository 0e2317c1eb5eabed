// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// A poll source whose operations a test completes by hand, with no MPI in sight.

#include <cohort/core/asio.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/handler_operation.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::testing {

namespace detail {
class manual_state;
struct start_manual;
}  // namespace detail

/// What cancelling does to an operation of a `manual_source`, and what dropping its future does.
enum class manual_kind : std::uint8_t {
  receive,  ///< like a posted receive: cancelling, or dropping, ends it with `operation_aborted`
  borrowed  ///< like a collective over a borrowed buffer: it ignores cancellation; dropping waits
};

/// Operations with names, which are int, that end when `complete` says so.
///
/// For tests of code that awaits: the engine, futures, deadlines and handlers are the real ones, so
/// an outcome is found by a look and delivered by the loop. Make it before operations are in
/// flight; it may be destroyed before or after its context, not inside a handler. Operations that
/// are pending when it goes are destroyed without calling their handlers. *Threads*: all functions
/// from any thread.
class manual_source {
 public:
  explicit manual_source(asio::io_context& io);
  ~manual_source();
  manual_source(const manual_source&) = delete;
  manual_source& operator=(const manual_source&) = delete;

  /// Starts operation `id`. Several may have one name; `complete` then takes the oldest.
  /// *Completion*: `void(std::error_code)`.
  template <completion_token_for<void(std::error_code)> Token = default_token>
  auto start(int id, Token&& token = Token());
  template <completion_token_for<void(std::error_code)> Token = default_token>
  auto start(int id, manual_kind kind, Token&& token = Token());

  /// Lets the next look find that `id` has ended with `error`. False if nothing of that name is
  /// pending.
  bool complete(int id, std::error_code error = {});

  /// Operations started and not yet found to have ended.
  [[nodiscard]] std::size_t pending() const;
  /// How often the engine has looked.
  [[nodiscard]] std::uint64_t looks() const;

 private:
  std::shared_ptr<detail::manual_state> state_;
};

}  // namespace cohort::testing

namespace cohort::testing::detail {

/// One operation, whatever its handler.
class manual_operation : public progress::operation {
 public:
  const int id;
  const manual_kind kind;
  bool ended = false;  // to be found by the next look
  std::error_code error;
  progress::pending_age age;

 protected:
  manual_operation(function run, int name, manual_kind what) noexcept
      : operation(run), id(name), kind(what) {}
  ~manual_operation() = default;
};

/// The source that the engine knows. Lives until both the context and the handle are gone.
class manual_state final : public progress::polled_source {
 public:
  explicit manual_state(progress::engine& engine) : engine_(&engine) { engine.attach(*this); }

  /// The engine, or null once the context is gone.
  [[nodiscard]] progress::engine* engine() const noexcept { return engine_; }

  void add(manual_operation* op) {
    {
      const std::lock_guard hold(mutex_);
      operations_.push_back(op);
      count();
    }
    engine_->started();
  }

  bool complete(int id, std::error_code error) {
    return end_if([id](const manual_operation& op) { return op.id == id; }, error);
  }
  void cancel(const manual_operation* wanted) {
    end_if([=](const manual_operation& op) { return &op == wanted; },
           asio::error::operation_aborted);
  }

  /// The context goes.
  void close() {
    engine_ = nullptr;
    abandon();
  }

  // What the engine calls.
  std::size_t test(progress::ready_queue& ready) override {
    looks.fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard hold(mutex_);
    const std::size_t before = operations_.size();
    if (ended_ == 0) return 0;
    std::erase_if(operations_, [&](manual_operation* op) {
      if (!op->ended) return false;
      op->settle();
      ready.push(op);
      return true;
    });
    ended_ = 0;
    count();
    return before - operations_.size();
  }
  [[nodiscard]] std::size_t pending() const noexcept override {
    return pending_.load(std::memory_order_relaxed);
  }
  void leave() override {
    const std::lock_guard hold(mutex_);
    for (manual_operation* op : operations_) {
      if (op->kind != manual_kind::receive || op->ended) continue;
      op->ended = true;
      op->error = asio::error::operation_aborted;
      ++ended_;
    }
  }
  void abandon() override {
    std::vector<manual_operation*> left;
    {
      const std::lock_guard hold(mutex_);
      left.swap(operations_);
      ended_ = 0;
      count();
    }
    for (manual_operation* op : left) {
      op->settle();
      op->destroy();  // its handler may start or end others
    }
  }

  std::atomic<std::uint64_t> looks{0};

 private:
  void list(progress::pending_lines& lines) override {
    const std::lock_guard hold(mutex_);
    for (manual_operation* op : operations_) {
      if (lines.names(op->age)) lines.add("manual operation " + std::to_string(op->id), op->age);
    }
  }
  template <class Predicate>
  bool end_if(Predicate wanted, std::error_code error) {
    {
      const std::lock_guard hold(mutex_);
      const auto found =
          std::find_if(operations_.begin(), operations_.end(),
                       [&](const manual_operation* op) { return !op->ended && wanted(*op); });
      if (found == operations_.end()) return false;
      (*found)->ended = true;
      (*found)->error = error;
      ++ended_;
    }
    engine_->started();
    return true;
  }
  void count() noexcept { pending_.store(operations_.size(), std::memory_order_relaxed); }

  progress::engine* engine_;
  mutable std::mutex mutex_;
  std::vector<manual_operation*> operations_;
  std::size_t ended_ = 0;
  std::atomic<std::size_t> pending_{0};
};

/// Keeps the sources of one context, because the engine looks at them until the context goes.
class manual_service : public asio::execution_context::service {
 public:
  using key_type = manual_service;
  static inline asio::execution_context::id id;

  explicit manual_service(asio::execution_context& context)
      : asio::execution_context::service(context),
        engine_(asio::use_service<progress::engine>(context)) {}
  ~manual_service() override {
    for (const auto& state : states_) state->close();
  }

  std::shared_ptr<manual_state> make() {
    states_.push_back(std::make_shared<manual_state>(engine_));
    return states_.back();
  }

 private:
  void shutdown() override {}  // the engine, which is older, comes next and ends the operations

  progress::engine& engine_;
  std::vector<std::shared_ptr<manual_state>> states_;
};

template <class Handler>
class typed_manual_operation final
    : public progress::handler_operation<typed_manual_operation<Handler>, Handler,
                                         manual_operation> {
 public:
  typed_manual_operation(Handler& handler, int name, manual_kind what,
                         const std::shared_ptr<manual_state>& state)
      : typed_manual_operation::handler_operation(handler, name, what),
        state_(state),
        engine_(*state->engine()) {
    this->connect(engine_, true);
  }

  [[nodiscard]] progress::engine& owner() const noexcept { return engine_; }
  void cancel(asio::cancellation_type) {
    if (this->kind != manual_kind::receive) return;
    if (const auto alive = state_.lock()) alive->cancel(this);
  }
  [[nodiscard]] auto outcome(bool) {
    return [why = this->error](Handler&& handler) { std::move(handler)(why); };
  }

 private:
  std::weak_ptr<manual_state> state_;
  progress::engine& engine_;
};

struct start_manual : progress::initiation {
  using progress::initiation::initiation;

  template <class Handler>
  void operator()(Handler&& handler, std::shared_ptr<manual_state> state, int id,
                  manual_kind kind) const {
    using handler_type = std::decay_t<Handler>;
    handler_type mine(std::forward<Handler>(handler));
    state->add(typed_manual_operation<handler_type>::make(mine, id, kind, state));
  }
};

}  // namespace cohort::testing::detail

namespace cohort::testing {

inline manual_source::manual_source(asio::io_context& io)
    : state_(asio::use_service<detail::manual_service>(io).make()) {}

// The engine goes on looking at what is empty then: taking it away would disturb a lap in progress.
inline manual_source::~manual_source() { state_->abandon(); }

template <completion_token_for<void(std::error_code)> Token>
auto manual_source::start(int id, Token&& token) {
  return start(id, manual_kind::receive, std::forward<Token>(token));
}

template <completion_token_for<void(std::error_code)> Token>
auto manual_source::start(int id, manual_kind kind, Token&& token) {
  return asio::async_initiate<Token, void(std::error_code)>(detail::start_manual(state_->engine()),
                                                            token, state_, id, kind);
}

inline bool manual_source::complete(int id, std::error_code error) {
  return state_->complete(id, error);
}

inline std::size_t manual_source::pending() const { return state_->pending(); }

inline std::uint64_t manual_source::looks() const {
  return state_->looks.load(std::memory_order_relaxed);
}

}  // namespace cohort::testing
