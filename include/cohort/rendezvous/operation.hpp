// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What verbs are made of: one rank of a rendezvous as an interface, and the operations that
/// wait there with their handlers.
///
/// A verb makes a body, and `initiate` an operation of it, in memory from the pool:
///
///     return meeting::initiate(handle(), meeting::recv_body<T>(step, key), token);
///
/// 1. `body.start(receiver, endpoint)` hands the operation in, as a receiver.
/// 2. What it waits for comes, with a lock held: `receiver::end` hands it to the engine.
/// 3. The engine delivers it. `body.finish(arrival)` returns what the handler is told, the
///    operation is freed, and the handler is called.

#include <cohort/comm/operation.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/copy.hpp>
#include <cohort/progress/handler_operation.hpp>
#include <cohort/rendezvous/receiver.hpp>
#include <cohort/rendezvous/vocabulary.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::meeting {

/// One rank of a rendezvous, as the verbs see it.
class endpoint {
 public:
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;
  virtual ~endpoint() = default;

  [[nodiscard]] progress::engine& engine() const noexcept { return engine_; }
  /// -1 before the initialisation.
  [[nodiscard]] int rank() const noexcept { return rank_.load(std::memory_order_acquire); }
  /// Counts receivers that have been handed to the engine by this thread.
  static void count_ended() noexcept { ++ended_; }
  [[nodiscard]] static std::size_t ended() noexcept { return ended_; }

  virtual void initialize(const communicator& world) = 0;
  [[nodiscard]] virtual std::uint64_t incarnation(int rank) = 0;
  [[nodiscard]] virtual step_ptr step(step_id id) = 0;
  /// The last of the handles that share a lease is gone.
  virtual void release(step_state& step) noexcept = 0;
  [[nodiscard]] virtual std::vector<waiting_key> waiting(const step_state& step) = 0;
  virtual void send(step_state& step, const rendezvous_key& key, packet_ptr value) = 0;
  /// The step need not outlive the end of the receiver, which may come at once.
  virtual void receive(step_state& step, const rendezvous_key& key, receiver& one) = 0;
  /// Ends a receiver that waits in this step or, if that is null, for the close.
  virtual void cancel(step_state* step, receiver& one, const std::exception_ptr& why) = 0;
  virtual void drain(step_state& step, receiver& one) = 0;
  virtual void abort(step_state& step, const std::exception_ptr& why) = 0;
  virtual void cleanup(step_id id) = 0;
  virtual void sweep() = 0;
  [[nodiscard]] virtual std::vector<step_id> steps() = 0;
  /// Begins to close; who asks for values that this rank has not sent is told why.
  virtual void leave(std::string_view why) = 0;
  virtual void wait_closed(receiver& one) = 0;
  [[nodiscard]] virtual std::vector<leaked_value> leaks() = 0;
  [[nodiscard]] virtual rendezvous_statistics statistics() = 0;
  /// Leaves and waits in place, for destructors.
  virtual void leave_in_place() noexcept = 0;

  // At the end of the context: see progress::kept_until_closed.
  [[nodiscard]] virtual bool closed() const noexcept = 0;
  virtual void abandon() = 0;
  virtual void drive() = 0;

 protected:
  explicit endpoint(progress::engine& engine) : engine_(engine) {}

  progress::engine& engine_;
  std::atomic<int> rank_{-1};
  std::uint64_t incarnation_ = 0;
  static inline constinit thread_local std::size_t ended_ = 0;  // of all endpoints
};

/// What the handles share: with the last of them the rank leaves.
class endpoint_handle {
 public:
  explicit endpoint_handle(std::shared_ptr<endpoint> where) : where_(std::move(where)) {}
  endpoint_handle(const endpoint_handle&) = delete;
  endpoint_handle& operator=(const endpoint_handle&) = delete;
  ~endpoint_handle() { where_->leave_in_place(); }
  [[nodiscard]] endpoint& operator*() const noexcept { return *where_; }

 private:
  std::shared_ptr<endpoint> where_;
};
using handle_ptr = std::shared_ptr<endpoint_handle>;

/// Makes one rank of a rendezvous, and initialises it over `world`, if there is one.
template <class Any>
[[nodiscard]] handle_ptr open_endpoint(progress::engine& engine, const rendezvous_options& options,
                                       const communicator& world);

/// One operation of a rendezvous that waits. The body says for what: see above. It also has `step`,
/// where it waits, and `prepare(bytes)`, which is the receiver's.
template <class Handler, class Body>
class waiting_operation final
    : public progress::handler_operation<waiting_operation<Handler, Body>, Handler>,
      public receiver {
 public:
  waiting_operation(Handler& handler, handle_ptr where, Body&& body)
      : waiting_operation::handler_operation(handler),
        where_(std::move(where)),
        body_(std::move(body)) {}

  /// After this the operation may be gone.
  void start() {
    endpoint& here = **where_;
    this->connect(here.engine(), true);
    here.engine().get_executor().on_work_started();
    try {
      body_.start(*this, here);  // the context keeps the endpoint
    } catch (...) {
      fail(std::current_exception());
      end();
    }
  }

  [[nodiscard]] progress::engine& owner() const { return (**where_).engine(); }
  void cancel(asio::cancellation_type) {
    const handle_ptr keep = where_;
    const step_ptr step = body_.step;
    (**keep).cancel(
        step.get(), *this,
        std::make_exception_ptr(std::system_error(asio::error::operation_aborted, "rendezvous")));
  }
  [[nodiscard]] auto outcome(bool dropped) {
    if (dropped) {
      fail(std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
      direct = false;
    }
    return [until_the_end = work{std::move(where_)}, body = std::move(body_),
            what = std::move(static_cast<arrival&>(*this))](Handler&& handler) mutable {
      std::apply(std::move(handler), body.finish(what));
    };
  }

  void end() override {
    endpoint& here = **where_;
    here.count_ended();
    here.engine().complete(this);
  }
  [[nodiscard]] std::byte* prepare(std::size_t bytes) override { return body_.prepare(bytes); }

 private:
  /// Ends when the handler has returned.
  struct work {
    explicit work(handle_ptr of) noexcept : where(std::move(of)) {}
    work(work&&) noexcept = default;
    ~work() {
      if (!where) return;
      progress::engine& engine = (**where).engine();
      if (!engine.stopped()) engine.get_executor().on_work_finished();
    }
    handle_ptr where;
  };

  handle_ptr where_;
  Body body_;
};

struct start_waiting : progress::initiation {
  using progress::initiation::initiation;

  template <class Handler, class Body>
  void operator()(Handler&& handler, handle_ptr where, Body&& body) const {
    using handler_type = std::decay_t<Handler>;
    using body_type = std::decay_t<Body>;
    if (!where) {
      progress::post_without_engine(
          std::forward<Handler>(handler), [body = std::move(body)](handler_type&& own) mutable {
            arrival nothing;
            nothing.error =
                std::make_exception_ptr(cohort::error(errc::invalid_argument, "no rendezvous"));
            std::apply(std::move(own), body.finish(nothing));
          });
      return;
    }
    handler_type own(std::forward<Handler>(handler));
    waiting_operation<handler_type, body_type>::make(own, std::move(where), std::move(body))
        ->start();
  }
};

template <class Body, class Token>
auto initiate(const handle_ptr& where, Body&& body, Token& token) {
  using signature = typename std::decay_t<Body>::signature;
  progress::engine* const engine = where ? &(**where).engine() : nullptr;
  return asio::async_initiate<Token, signature>(start_waiting(engine), token, where,
                                                std::forward<Body>(body));
}

/// What the bodies of receives share. The key's name is copied because a lazy token starts the
/// operation later; after the start it is not needed any more.
struct receive_body {
  receive_body(step_ptr in, const rendezvous_key& key_) : step(std::move(in)), key(key_) {}

  void begin(receiver& one, endpoint& where) {
    // After this the operation may be gone, and this body with it.
    const owned_key kept_key = std::move(key);
    const rendezvous_key whole = kept_key;
    if (!step) throw cohort::error(errc::invalid_argument, "no step");
    where.receive(*step, whole, one);
  }

  step_ptr step;
  owned_key key;
};

template <class T>
struct recv_body : receive_body {
  using signature = void(std::exception_ptr, received<T>);
  using receive_body::receive_body;

  void start(receiver& one, endpoint& where) {
    one.type = type_id<T>();
    begin(one, where);
  }
  [[nodiscard]] std::byte* prepare(std::size_t bytes) {
    if constexpr (sequence<T>) {
      using element = typename elements_of<T>::type;
      if (bytes % sizeof(element) != 0) {
        throw std::system_error(make_error_code(wire_errc::trailing));
      }
      here.resize(bytes / sizeof(element));
      return reinterpret_cast<std::byte*>(here.data());
    } else {
      far = std::make_unique<bytes_packet>(bytes);
      return far->data();
    }
  }
  /// The value that came. What this throws inside becomes the error.
  void take(arrival& what, received<T>& result) {
    if (what.error) return;
    try {
      if (what.direct) {
        result.dead = what.dead;
        if constexpr (sequence<T>) {
          result.value.emplace(std::move(here));
        } else {
          result.value.emplace(take_value<T>(*far));
        }
      } else {
        result.dead = what.value->dead;
        if (what.value->type != 0) result.value.emplace(take_value<T>(*what.value));
      }
    } catch (...) {
      what.error = std::current_exception();
      result.value.reset();
    }
    what.value.reset();
  }
  [[nodiscard]] std::tuple<std::exception_ptr, received<T>> finish(arrival& what) {
    std::tuple<std::exception_ptr, received<T>> result;
    take(what, std::get<1>(result));
    std::get<0>(result) = std::move(what.error);
    return result;
  }

  std::conditional_t<sequence<T>, T, char> here{};
  std::unique_ptr<bytes_packet> far;
};

template <class T>
struct next_body : recv_body<T> {
  using signature = void(std::exception_ptr, std::optional<T>);
  using recv_body<T>::recv_body;

  [[nodiscard]] std::tuple<std::exception_ptr, std::optional<T>> finish(arrival& what) {
    received<T> result;
    this->take(what, result);
    if (result.dead) result.value.reset();
    if (what.error && is_closed(what.error)) what.error = nullptr;
    return {std::move(what.error), std::move(result.value)};
  }
  [[nodiscard]] static bool is_closed(const std::exception_ptr& why) noexcept {
    try {
      std::rethrow_exception(why);
    } catch (const std::system_error& problem) {
      return problem.code() == errc::closed;
    } catch (...) {
      return false;
    }
  }
};

template <class E>
struct into_body : receive_body {
  using signature = void(std::exception_ptr, received<std::span<E>>);
  into_body(step_ptr in, const rendezvous_key& key_, std::span<E> to)
      : receive_body(std::move(in), key_), into(to) {}

  void start(receiver& one, endpoint& where) {
    one.type = type_id<std::vector<E>>();
    one.room = into.size_bytes();
    begin(one, where);
  }
  [[nodiscard]] std::byte* prepare(std::size_t bytes) {
    check(bytes);
    got = bytes / sizeof(E);
    return reinterpret_cast<std::byte*>(into.data());
  }
  void check(std::size_t bytes) const {
    if (bytes % sizeof(E) != 0) throw std::system_error(make_error_code(wire_errc::trailing));
  }
  [[nodiscard]] std::tuple<std::exception_ptr, received<std::span<E>>> finish(arrival& what) {
    received<std::span<E>> result;
    try {
      if (what.direct) {
        result.dead = what.dead;
        result.value = into.first(got);
      } else if (!what.error) {
        result.dead = what.value->dead;
        if (what.value->type != 0) {
          const auto bytes = what.value->bytes();
          check(bytes.size());
          copy_bytes(into.data(), bytes.data(), bytes.size());
          result.value = into.first(bytes.size() / sizeof(E));
        }
      }
    } catch (...) {
      what.error = std::current_exception();
    }
    what.value.reset();
    return {std::move(what.error), std::move(result)};
  }

  std::span<E> into;
  std::size_t got = 0;
};

struct drain_body {
  using signature = void(std::exception_ptr);
  void start(receiver& one, endpoint& where) const {
    if (!step) throw cohort::error(errc::invalid_argument, "no step");
    const step_ptr keep = step;
    where.drain(*keep, one);
  }
  [[nodiscard]] static std::byte* prepare(std::size_t) { return nullptr; }
  [[nodiscard]] static std::tuple<std::exception_ptr> finish(arrival& what) {
    return {std::move(what.error)};
  }
  step_ptr step;
};

struct close_body {
  using signature = void(std::exception_ptr, std::vector<leaked_value>);
  void start(receiver& one, endpoint& where) {
    from = &where;
    where.wait_closed(one);
  }
  [[nodiscard]] static std::byte* prepare(std::size_t) { return nullptr; }
  [[nodiscard]] std::tuple<std::exception_ptr, std::vector<leaked_value>> finish(
      arrival& what) const {
    std::vector<leaked_value> leaks;
    if (from != nullptr && !what.error) leaks = from->leaks();
    return {std::move(what.error), std::move(leaks)};
  }
  static constexpr std::nullptr_t step = nullptr;
  endpoint* from = nullptr;
};

}  // namespace cohort::meeting
