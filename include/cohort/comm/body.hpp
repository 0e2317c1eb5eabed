// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How a verb is made: a small body that checks, posts and finishes, and one `initiate`.
///
///     struct barrier_body {
///       using signature = void(std::error_code);
///       static constexpr const char* name = "barrier";  // for reports
///       static constexpr cancels cancellation = cancels::detach;
///       errc check(const communicator_base&) const noexcept { return errc{}; }
///       void explain(failure_text&) const {}        // of what `check` has found
///       std::size_t bytes() const noexcept { return 0; }
///       int post(const poster& post) const {        // with MPI locked
///         MPI_Request request = MPI_REQUEST_NULL;
///         return post.add(MPI_Ibarrier(post.native(), &request), request);
///       }
///       std::tuple<> finish(std::error_code, const outcome_of_requests&) const { return {}; }
///     };
///
///     template <completion_token_for<void(std::error_code)> Token>
///     auto barrier(const communicator& comm, Token&& token) {
///       return comm::initiate(comm, barrier_body(), token);
///     }
///
/// A body over buffers derives from \ref body_over, and keeps them as `comm::argument`: a buffer is
/// borrowed, or owned and handed back.

#include <cohort/comm/argument.hpp>
#include <cohort/comm/collective_call.hpp>
#include <cohort/comm/communicator.hpp>
#include <cohort/comm/requests/operation.hpp>
#include <cohort/core/devices.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/token.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/progress/value_of.hpp>

#include <array>
#include <climits>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::comm {

class backend_completion;

namespace detail {
template <class Kept, class... Extra>
struct signature_from;
template <class... Kept, class... Extra>
struct signature_from<std::tuple<Kept...>, Extra...> {
  using type = void(std::error_code, Extra..., Kept...);
};
}  // namespace detail

/// Whether one of the arguments of a body is in device memory.
template <class Arguments>
inline constexpr bool any_staged = false;
template <class... Arguments>
inline constexpr bool any_staged<std::tuple<Arguments...>> = (Arguments::is_staged || ...);
template <class Body>
inline constexpr bool is_staged = false;
template <class Body>
  requires requires { typename Body::arguments; }
inline constexpr bool is_staged<Body> = any_staged<typename Body::arguments>;

/// Whether a body posts a stage in its first `advance`, before which no collective may be posted
/// that is started later.
template <class Body>
inline constexpr bool keeps_turn = false;
template <class Body>
  requires requires { Body::keeps_turn; }
inline constexpr bool keeps_turn<Body> = Body::keeps_turn;

/// The name of the first buffer that a body takes for the host's and that is in device memory, or
/// null. Asks once for each.
template <class Body>
[[nodiscard]] const char* in_device_memory(Body& body) {
  const memory_question question = device_memory_question().load(std::memory_order_acquire);
  if (question == nullptr) return nullptr;
  const char* found = nullptr;
  if constexpr (requires { typename Body::arguments; }) {
    Body::each_buffer(body, [&](const char* parameter, auto& argument, bool, bool) {
      if (found != nullptr) return;
      const auto view = argument.view();
      if (view.count != 0 && question(view.data)) found = parameter;
    });
  }
  return found;
}

/// `void(std::error_code, Extra..., owned containers in argument order)`.
template <class Arguments, class... Extra>
struct completion_signature;
template <class... Arguments, class... Extra>
struct completion_signature<std::tuple<Arguments...>, Extra...> {
  using kept = decltype(std::tuple_cat(std::declval<Arguments&>().take()...));
  using type = typename detail::signature_from<kept, Extra...>::type;
};

/// What cancelling a started operation does.
enum class cancels : std::uint8_t {
  receive,  ///< total: MPI gives it up, or the message has already come
  detach,   ///< terminal: nothing is borrowed, so the operation goes on alone
  never     ///< MPI works on the caller's buffers: ignored; under a deadline it is reported
};

/// What follows from the arguments of a body, which derives from it. `Extra` comes before the
/// containers that the completion gives back.
template <class Arguments, class... Extra>
struct body_over;
template <class... Arguments, class... Extra>
struct body_over<std::tuple<Arguments...>, Extra...> {
  using arguments = std::tuple<Arguments...>;
  using signature = typename completion_signature<arguments, Extra...>::type;
  static constexpr cancels cancellation =
      (Arguments::owned && ...) ? cancels::detach : cancels::never;
};

/// An operation that is made only when something needs it. Until then the first request of a body
/// is kept here, by who looks for its end.
class late_operation {
 public:
  late_operation(const late_operation&) = delete;
  late_operation& operator=(const late_operation&) = delete;

  /// Made at the first call, which gives it the request that is kept.
  virtual request_operation& get() = 0;
  /// False: it is the operation's.
  [[nodiscard]] bool keep(MPI_Request request) noexcept {
    if (is_made_ || has_request_) return false;
    request_ = request;
    has_request_ = true;
    return true;
  }

 protected:
  late_operation() noexcept {}
  ~late_operation() = default;

  MPI_Request request_ = MPI_REQUEST_NULL;
  bool has_request_ = false;
  bool is_made_ = false;
};

/// Where a body hands its requests in. Alive during `post` and `advance` only, with MPI locked.
class poster {
 public:
  poster(communicator_base& comm, request_operation& op) noexcept : comm_(comm), op_(&op) {}
  poster(communicator_base& comm, late_operation& late) noexcept : comm_(comm), late_(&late) {}

  [[nodiscard]] MPI_Comm native() const noexcept { return comm_.plain.data; }
  [[nodiscard]] MPI_Comm exchange() const noexcept { return comm_.plain.exchange; }
  [[nodiscard]] int rank() const noexcept { return comm_.plain.rank; }
  [[nodiscard]] int size() const noexcept { return comm_.plain.size; }
  [[nodiscard]] checks level() const noexcept { return comm_.options.checks; }
  [[nodiscard]] request_operation& operation() const {
    return op_ != nullptr ? *op_ : late_->get();
  }
  [[nodiscard]] communicator_base& base() const noexcept { return comm_; }

  /// Takes a request over if the call that made it succeeded. Returns the call's return code. By
  /// reference, so that `add(MPI_Ibarrier(comm, &request), request)` reads it after the call.
  int add(int return_code, const MPI_Request& request) const {
    if (return_code != MPI_SUCCESS || (late_ != nullptr && late_->keep(request)))
      return return_code;
    comm_.add(request, operation());
    return return_code;
  }
  /// For calls inside `advance`: an error ends the operation.
  void check(int return_code) const {
    if (return_code != MPI_SUCCESS) operation().fail(mpi::make_error(return_code));
  }
  /// The operation goes on without a request, until its `completion().in_look` is called with the
  /// source locked: that calls `advance`, which begins with `resume`. Its caller
  /// counts the operation as pending, in a source of the engine, and calls it in a look.
  void hold() const { operation().waits_for_turn_ = true; }
  void resume() const { operation().waits_for_turn_ = false; }
  [[nodiscard]] bool has_requests() const { return operation().parts_ != 0; }
  /// Looks for a message at every lap; the operation's `status` and, if taken, `message` tell.
  int add_probe(int source, int tag, probe_kind kind = probe_kind::take) const {
    comm_.add_probe(source, tag, kind, operation());
    return MPI_SUCCESS;
  }

  // comm/communicator_state.hpp has the bodies.
  [[nodiscard]] backend_completion completion() const;
  [[nodiscard]] communicator_state& state() const noexcept;

 private:
  communicator_base& comm_;
  request_operation* const op_ = nullptr;
  late_operation* const late_ = nullptr;  // if there is no operation
};

/// What `finish` is told.
struct outcome_of_requests {
  MPI_Status status;
  MPI_Request left;         ///< inactive, if a persistent request was waited for
  MPI_Message message;      ///< what a probe found
  bool is_dropped = false;  ///< a future was dropped: the caller's variables may be gone
};

/// One operation of a verb, before it is started. It is moved into the operation, and destroyed
/// after the handler was called. `finish(error, outcome_of_requests)` returns a tuple of what the
/// handler is told besides the error; the communicator may be gone by then, so what it needs of
/// that a body remembers. A body may also have
/// - `int peer() const`, for reports,
/// - `collective_call call() const`, if a backend may take it,
/// - `int block(MPI_Comm, MPI_Status&)`, which does all of it by a blocking call of MPI: with
///   `checks::local` its `post` adds one request then,
/// - `std::array<std::int64_t, 4> agreed() const`, values that must be equal on all ranks, or
///   `argument_check::any_value` where this rank has none,
/// - `void begin(poster&, argument_check*)` and `gated`: its data come later. `begin` is called
/// first;
///   a collective is posted when the check is opened, and then in the order in which collectives
///   were started. Without `agreed` there is no check, and `post` itself may hold,
/// - `void let_go()`: its handler has left,
/// - `arguments`, a tuple of the types of its buffers, and `static void each_buffer(body, visit)`,
///   which calls `visit(name, argument, is_read, is_written)` for each: what it does with them on
///   this rank. Where what it writes has gaps, it reads it too, so that they stay as they are,
/// - `bool works_on_host`, a constant: it does arithmetic in them itself,
/// - `bool advance(poster&)`: all requests so far are complete, or a probe has found its message;
///   post more and return true, or be done.
template <class Body>
concept operation_body = requires(Body& body, const Body& constant, const communicator_base& state,
                                  poster& post, failure_text& text) {
  { Body::name } -> std::convertible_to<const char*>;
  { Body::cancellation } -> std::convertible_to<cancels>;
  {
    constant.check(state)
  } noexcept -> std::same_as<errc>;  // misuse that this rank can see; errc{}: none
  constant.explain(text);            // the values, if it is one
  { constant.bytes() } noexcept -> std::same_as<std::size_t>;
  { body.post(post) } -> std::same_as<int>;  // MPI's return code
  typename Body::signature;                  // completion signature
};

/// A body behind functions, for what treats all alike. Null: the body has no such function.
struct body_functions {
  using any_body = void*;
  using constant_body = const void*;

  const char* name;
  cancels cancellation;
  bool is_numbered;  ///< the communicator counts it
  bool is_gated;     ///< see operation_body, as the next
  bool keeps_turn;
  bool is_collective;  ///< a backend may take it
  errc (*check)(constant_body, const communicator_base&) noexcept;
  void (*explain)(constant_body, failure_text&);
  std::size_t (*bytes)(constant_body) noexcept;
  int (*peer)(constant_body);
  int (*post)(any_body, poster&);
  bool (*advance)(any_body, poster&);
  std::array<std::int64_t, 4> (*agreed)(any_body);
  void (*begin)(any_body, poster&, argument_check*);
  collective_call (*call)(any_body);
  const char* (*in_device_memory)(any_body);
  /// A blocking call of MPI does all of it: returns what that returns, or `too_large` if MPI has
  /// none for so much.
  int (*block)(any_body, MPI_Comm, MPI_Status&);
  static constexpr int too_large = -1;
};

namespace detail {

/// Makes the functions of one body. A null pointer stands for what it has not.
template <class Body>
struct functions_maker {
  static Body& in(void* any) noexcept { return *static_cast<Body*>(any); }
  static const Body& in(const void* any) noexcept { return *static_cast<const Body*>(any); }

  static constexpr auto peer() {
    if constexpr (requires(const Body& body) { body.peer(); }) {
      return [](const void* any) { return static_cast<int>(in(any).peer()); };
    } else {
      return nullptr;
    }
  }
  static constexpr auto advance() {
    if constexpr (requires(Body& body, poster& post) { body.advance(post); }) {
      return [](void* any, poster& post) { return static_cast<bool>(in(any).advance(post)); };
    } else {
      return nullptr;
    }
  }
  static constexpr auto agreed() {
    if constexpr (requires(Body& body) { body.agreed(); }) {
      return [](void* any) -> std::array<std::int64_t, 4> { return in(any).agreed(); };
    } else {
      return nullptr;
    }
  }
  static constexpr auto begin() {
    if constexpr (requires { Body::gated; }) {
      return [](void* any, poster& post, argument_check* check) { in(any).begin(post, check); };
    } else {
      return nullptr;
    }
  }
  static constexpr auto call() {
    if constexpr (requires(Body& body) { body.call(); }) {
      return [](void* any) -> collective_call { return in(any).call(); };
    } else {
      return nullptr;
    }
  }
  static constexpr auto block() {
    if constexpr (requires(Body& body, MPI_Comm on, MPI_Status& status) {
                    body.block(on, status);
                  }) {
      return [](void* any, MPI_Comm on, MPI_Status& status) -> int {
        if (in(any).bytes() > INT_MAX) return body_functions::too_large;
        return in(any).block(on, status);
      };
    } else {
      return nullptr;
    }
  }
  static constexpr body_functions make() {
    body_functions made{};
    made.name = Body::name;
    made.cancellation = Body::cancellation;
    made.is_numbered = !requires { Body::unnumbered; };
    made.is_gated = requires { Body::gated; };
    made.keeps_turn = comm::keeps_turn<Body>;
    made.is_collective = requires(Body& body) { body.call(); };
    made.check = [](const void* any, const communicator_base& on) noexcept {
      return in(any).check(on);
    };
    made.explain = [](const void* any, failure_text& text) { in(any).explain(text); };
    made.bytes = [](const void* any) noexcept { return in(any).bytes(); };
    made.post = [](void* any, poster& post) { return in(any).post(post); };
    made.in_device_memory = [](void* any) { return comm::in_device_memory(in(any)); };
    made.peer = peer();
    made.advance = advance();
    made.agreed = agreed();
    made.begin = begin();
    made.call = call();
    made.block = block();
    return made;
  }
};

}  // namespace detail

template <operation_body Body>
inline constexpr body_functions functions_of = detail::functions_maker<Body>::make();

namespace detail {

/// Starts what is not blocking: comm/operation.hpp.
template <class Asio, class Token, class Body>
struct initiation {
  static explained start(const communicator&, Body&&, Token&) {
    require_tokens<Token, Body>();
    return {};
  }
};

/// What `co_await` would return.
template <class Signature>
struct result_of;
template <class... Values>
struct result_of<void(std::error_code, Values...)> : progress::value_of<Values...> {};

/// Does it, waits, and returns what it has to say or throws. The library has some of these, which
/// their declarations name without making a class of the body: so the result is an argument.
template <class Result, class Body>
Result run_blocking(const communicator& comm, Body& body) {
  if (!comm) throw error(errc::invalid_communicator, Body::name);
  const outcome_of_requests seen = comm.base()->run(functions_of<Body>, &body);
  return progress::shaped(body.finish({}, seen));
}

}  // namespace detail

template <class Body>
class staged_body;  // comm/staged/body.hpp

/// Starts `body` under `token`: the one way from a verb to MPI.
template <operation_body Body, class Token>
auto initiate(const communicator& comm, Body&& body, Token& token) {
  if constexpr (is_staged<Body>) {
    static_assert(
        requires { sizeof(staged_body<Body>); },
        "device memory in a verb of MPI: include <cohort/staging.hpp>");
    return initiate(comm, staged_body<Body>(std::move(body)), token);
  } else if constexpr (std::is_same_v<std::remove_cvref_t<Token>, blocking_t>) {
    using result = typename detail::result_of<typename Body::signature>::type;
    return detail::run_blocking<result>(comm, body);
  } else {
    return detail::initiation<cohort::detail::with_asio, Token, Body>::start(comm, std::move(body),
                                                                             token);
  }
}

}  // namespace cohort::comm
