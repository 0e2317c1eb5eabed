// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `call`, `notify` and `with`, which all who can call functions elsewhere have: the manager
/// by its `workers`, a worker by its `peers`. And `call_options`, which say how a call is made.
///
/// ```
/// double e = co_await workers.with(call_options{}.deadline(2s)).call<&energy>(2, x, 0.1);
/// workers.notify<&log_step>(2, step);  // waits for nothing
/// ```

#include <cohort/cluster/calls/call_client.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/function.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/progress/handler_operation.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// What happens to a call_all when some ranks do not end after another one has failed.
enum class stall_action : std::uint8_t {
  /// Their outcome is errc::stalled, what they run is set aside, and the workers go on with a new
  /// communicator.
  report,
  terminate  ///< the same, and the job is ended
};

/// For `workers.with(call_options{}.deadline(2s)).call<&f>(...)`.
class call_options {
 public:
  call_options() noexcept {}

  /// The call ends with a deadline_error after that time, and its callee is cancelled.
  call_options& deadline(std::chrono::nanoseconds time) { return put(deadline_, time); }
  [[nodiscard]] const auto& deadline() const noexcept { return deadline_; }

  /// The function runs on a thread of its own instead of the worker's loop: for those that compute
  /// for long, so that the worker goes on answering. It must not use the loop's objects.
  call_options& on_thread(bool wanted) { return put(on_thread_, wanted); }
  [[nodiscard]] bool on_thread() const noexcept { return on_thread_; }

  /// For map: items of a lost worker are given to another one.
  call_options& idempotent(bool wanted) { return put(idempotent_, wanted); }
  [[nodiscard]] bool idempotent() const noexcept { return idempotent_; }

  /// For map: items that a worker has at a time. At least 1.
  call_options& per_worker(int items) { return put(per_worker_, items); }
  [[nodiscard]] int per_worker() const noexcept { return per_worker_; }

  /// For call_all in an adopted job: the manager, rank 0, runs it as well, after the call has been
  /// sent to the workers, and its outcome is the first. `call_context::world()` has all ranks then.
  call_options& include_manager(bool wanted) { return put(include_manager_, wanted); }
  [[nodiscard]] bool include_manager() const noexcept { return include_manager_; }

  /// For call_all: how long the others may take to end after the first has failed.
  call_options& grace(std::chrono::nanoseconds time) { return put(grace_, time); }
  [[nodiscard]] std::chrono::nanoseconds grace() const noexcept { return grace_; }
  /// For call_all: what happens then.
  call_options& on_stall(stall_action action) { return put(on_stall_, action); }
  [[nodiscard]] stall_action on_stall() const noexcept { return on_stall_; }

 private:
  template <class T, class Value>
  call_options& put(T& field, Value value) {
    field = value;
    return *this;
  }

  std::optional<std::chrono::nanoseconds> deadline_;
  std::chrono::nanoseconds grace_ = std::chrono::seconds(5);
  int per_worker_ = 2;
  bool on_thread_ = false;
  bool idempotent_ = false;
  bool include_manager_ = false;
  stall_action on_stall_ = stall_action::report;
};

namespace detail {

/// The signature with which a call of result R completes.
template <class R>
struct completion_of {
  using type = void(std::exception_ptr, R);
};
template <>
struct completion_of<void> {
  using type = void(std::exception_ptr);
};
template <class R>
using completion = typename completion_of<R>::type;

/// One call, one handler.
template <class R, class Handler>
class single_call final : public waiting_call {
 public:
  single_call(Handler handler, progress::engine& engine) : handler_(std::move(handler), engine) {}

  void cancel_with(const std::shared_ptr<call_client>& over, std::uint64_t id) {
    auto slot = handler_.slot();
    if (!slot.is_connected()) return;
    slot.assign([over = std::weak_ptr(over), id](asio::cancellation_type) {
      const auto here = over.lock();
      const auto which = id;  // this function object dies with the call
      if (here) {
        here->give_up(which,
                      std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
      }
    });
  }

  void complete(std::exception_ptr failed, payload&& result) override {
    if constexpr (std::is_void_v<R>) {
      handler_.post(std::move(failed));
    } else {
      R value{};
      if (!failed) {
        try {
          value = decode_result<R>(std::move(result));
        } catch (...) {
          failed = std::current_exception();
        }
      }
      handler_.post(std::move(failed), std::move(value));
    }
  }

 private:
  progress::posted_handler<Handler> handler_;
};

/// Starts what a verb has encoded, when its token says so.
template <class R>
struct start_single : progress::initiation {
  using progress::initiation::initiation;

  template <class Handler>
  void operator()(Handler&& handler, const std::shared_ptr<call_client>& over,
                  call_request request) const {
    using waiting = single_call<R, std::decay_t<Handler>>;
    const std::uint64_t id = over->next_id();
    const auto made = std::make_shared<waiting>(std::forward<Handler>(handler), over->engine());
    made->cancel_with(over, id);
    over->start(id, std::move(request), made);
  }
};

}  // namespace detail

/// The verbs of `Caller`, which has `client()`: the call_client that carries the calls. Throws if
/// there is none.
template <class Caller>
class call_verbs {
 public:
  /// The same processes, called in another way.
  [[nodiscard]] Caller with(const call_options& options) const {
    Caller other(self());
    static_cast<call_verbs&>(other).options_ = options;
    return other;
  }

  /// Calls `Function` on one worker. *Completion*: `void(std::exception_ptr, R)`; a token may
  /// follow the arguments. *Cost*: one message there and one back. *Example*: `double e = co_await
  /// workers.call<&energy>(2, x, 0.1);`
  template <auto Function, class... Arguments>
  auto call(int rank, Arguments&&... arguments) const {
    return with_token<Function, 0>(
        [&](auto&& token, auto&&... rest) {
          using result = typename callee<Function>::result;
          using token_type = std::remove_cvref_t<decltype(token)>;
          const auto client = self().client();
          return asio::async_initiate<token_type, detail::completion<result>>(
              detail::start_single<result>(&client->engine()), token, client,
              request<Function>(rank, std::forward<decltype(rest)>(rest)...));
        },
        std::forward<Arguments>(arguments)...);
  }

  /// Calls it on one worker and waits for nothing. Throws if the call cannot be sent; what the
  /// function throws goes to `on_notify_error`.
  template <auto Function, class... Arguments>
  void notify(int rank, Arguments&&... arguments) const {
    call_request made = request<Function>(rank, std::forward<Arguments>(arguments)...);
    made.flags |= call_tail::one_way;
    const auto calls = self().client();
    calls->start(calls->next_id() | one_way_bit, std::move(made), nullptr);
  }

 protected:
  [[nodiscard]] const call_options& options() const noexcept { return options_; }

  /// Calls `body(token, arguments...)`: the last argument is the token if there is one more than
  /// the function takes.
  template <auto Function, std::size_t Given, class Body, class... Arguments>
  static auto with_token(Body&& body, Arguments&&... arguments) {
    constexpr std::size_t arity = callee<Function>::arity - Given;
    static_assert(sizeof...(Arguments) == arity || sizeof...(Arguments) == arity + 1,
                  "the call has not as many arguments as the function has parameters");
    if constexpr (sizeof...(Arguments) == arity) {
      default_token token;
      return body(token, std::forward<Arguments>(arguments)...);
    } else {
      auto all = std::forward_as_tuple(std::forward<Arguments>(arguments)...);
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        auto token = std::get<arity>(std::move(all));
        return body(token, std::get<I>(std::move(all))...);
      }(std::make_index_sequence<arity>());
    }
  }

 private:
  call_verbs() = default;
  friend Caller;

  [[nodiscard]] const Caller& self() const noexcept { return static_cast<const Caller&>(*this); }

  template <auto Function, class... Arguments>
  [[nodiscard]] call_request request(int rank, Arguments&&... arguments) const {
    call_request made;
    made.rank = rank;
    made.function = remote<Function>::index();
    made.name = callee<Function>::name();
    made.arguments = encode_arguments<Function>(std::forward<Arguments>(arguments)...);
    if (options_.deadline()) made.deadline = from_now(*options_.deadline());
    if (options_.on_thread()) made.flags |= call_tail::on_thread;
    return made;
  }

  call_options options_;
};

/// What `call_context::peers()` gives: `call`, `notify` and `with` as `workers` has them. Ranks are
/// the ids that the manager uses; `manager_id` is the manager, if its option `serve_calls` is set.
/// The messages travel over MPI, those to the manager as its own do. A handle: a coroutine that
/// outlives its call may keep a copy, until the worker leaves.
///
/// A worker leaves when all workers are idle and no call is under way between them, so none is
/// lost. *Errors*: as for calls of the manager; peer_lost_error for a worker that the manager has
/// lost.
class peers : public call_verbs<peers> {
 public:
  explicit peers(std::shared_ptr<call_client> calls) : calls_(std::move(calls)) {}

  /// Gets what functions throw that were called by `notify`, on the loop; the default logs it.
  void on_notify_error(call_client::notify_error_handler handler) const {
    calls_->on_notify_error(std::move(handler));
  }

 private:
  friend call_verbs<peers>;
  [[nodiscard]] std::shared_ptr<call_client> client() const { return calls_; }

  std::shared_ptr<call_client> calls_;
};

}  // namespace cohort::cluster
