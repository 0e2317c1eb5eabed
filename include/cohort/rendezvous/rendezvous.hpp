// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::rendezvous`: values that are sent and received by key, step by step; and
/// `cohort::rendezvous_step`, the sends and receives of one step.
///
///     cohort::rendezvous exchange(world);
///     auto step = exchange.step(42);
///     if (rank == key.source) step.send(key, std::vector<float>(1000, 1.F));
///     if (rank == key.destination) {
///       auto [value, dead] = co_await step.recv<std::vector<float>>(key);
///     }
///     co_await step.drained();    // all that this rank has sent in the step has been received
///     exchange.cleanup(42);       // the step is over on this rank
///     co_await exchange.close();  // all ranks have closed
///
/// A stream of values under one key, to its end:
///
///     while (auto next = co_await step.next<int>(numbers)) use(*next);

#include <cohort/core/asio.hpp>
#include <cohort/rendezvous/operation.hpp>
#include <cohort/rendezvous/value.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {

namespace meeting {

// Which calls of a step fit, and what the compiler says of one that does not.

/// Of a receive that was called without a type. Not receivable.
struct no_type {
  no_type() = delete;
};
struct no_argument {};

template <class...>
inline constexpr bool never = false;

template <std::size_t Index, class... Arguments>
using argument_at =
    std::tuple_element_t<Index,
                         std::tuple<Arguments&&..., no_argument&&, no_argument&&, no_argument&&>>;

template <class Argument>
concept key_argument = std::convertible_to<Argument, const rendezvous_key&>;

template <class Argument, class Signature>
concept token_or_none =
    std::same_as<Argument, no_argument&&> || completion_token_for<Argument, Signature>;

template <class T>
inline constexpr bool is_writable_span = false;
template <class E, std::size_t N>
inline constexpr bool is_writable_span<std::span<E, N>> = !std::is_const_v<E> && plain<E>;

/// send(key, value[, dead]).
template <class... Arguments>
concept send_fits =
    (sizeof...(Arguments) == 2 || sizeof...(Arguments) == 3) &&
    key_argument<argument_at<0, Arguments...>> && sendable<argument_at<1, Arguments...>> &&
    (sizeof...(Arguments) == 2 || std::convertible_to<argument_at<2, Arguments...>, bool>);

/// recv<T>(key[, token]), and next.
template <class T, class Signature, class... Arguments>
concept receive_fits = receivable<T> && (sizeof...(Arguments) == 1 || sizeof...(Arguments) == 2) &&
                       key_argument<argument_at<0, Arguments...>> &&
                       token_or_none<argument_at<1, Arguments...>, Signature>;

/// recv_into(key, span[, token]).
template <class... Arguments>
concept receive_into_fits = (sizeof...(Arguments) == 2 || sizeof...(Arguments) == 3) &&
                            key_argument<argument_at<0, Arguments...>> &&
                            is_writable_span<std::remove_cvref_t<argument_at<1, Arguments...>>>;

template <class... Arguments>
consteval void explain_send() {
  constexpr bool has_key = key_argument<argument_at<0, Arguments...>>;
  static_assert(has_key, "the first argument is no key: pass a cohort::rendezvous_key");
  if constexpr (has_key) {
    constexpr bool has_value = sizeof...(Arguments) > 1;
    static_assert(has_value, "the value is missing: send_dead(key) sends none");
    if constexpr (has_value) {
      constexpr bool can = sendable<argument_at<1, Arguments...>>;
      static_assert(can,
                    "this type cannot be sent: values are trivially copyable and no pointers, "
                    "std::string, vectors and spans of such, what core/wire.hpp can serialise, "
                    "or a std::shared_ptr<const T> of one of the first three");
      static_assert(!can || never<Arguments...>,
                    "this call does not fit: it is send(key, value[, dead])");
    }
  }
}

template <class T, class... Arguments>
consteval void explain_receive() {
  constexpr bool has_type = !std::same_as<T, no_type>;
  static_assert(has_type, "name the type that is received, as in step.recv<std::string>(key)");
  if constexpr (has_type) {
    constexpr bool can = receivable<T>;
    static_assert(can,
                  "this type cannot be received: values are objects (no reference, no const, no "
                  "view) that are trivially copyable and no pointers, std::string, vectors of "
                  "such, or what core/wire.hpp can serialise; recv_into fills a span");
    if constexpr (can) {
      constexpr bool has_key = key_argument<argument_at<0, Arguments...>>;
      static_assert(has_key, "the first argument is no key: pass a cohort::rendezvous_key");
      static_assert(!has_key || never<Arguments...>,
                    "this call does not fit: after the key comes only a completion token");
    }
  }
}

template <class... Arguments>
consteval void explain_receive_into() {
  constexpr bool has_key = key_argument<argument_at<0, Arguments...>>;
  static_assert(has_key, "the first argument is no key: pass a cohort::rendezvous_key");
  if constexpr (has_key) {
    constexpr bool has_span = is_writable_span<std::remove_cvref_t<argument_at<1, Arguments...>>>;
    static_assert(has_span,
                  "a receive into memory needs a std::span of trivially copyable elements that "
                  "are not const");
    static_assert(!has_span || never<Arguments...>,
                  "this call does not fit: it is recv_into(key, span[, token])");
  }
}

}  // namespace meeting

/// A step of a \ref rendezvous. A handle: copies are the same step. Its values live until the step
/// is cleaned up or the rendezvous closes, even if all handles are gone.
///
/// *Threads.* Every function may be called from any thread.
/// *Errors.* Receives end with these, and sends throw them: what the step was aborted with;
/// errc::closed, errc::step_cleaned, errc::not_local, errc::stale_incarnation,
/// errc::duplicate_key, errc::type_mismatch, peer_lost_error; step_aborted_error for a step that
/// the sender has aborted.
/// *Cancellation* of a receive: total, and its value goes to the next receive of the key. But a
/// receive first waits while its memory is being written to.
class rendezvous_step {
 public:
  /// No step. Every verb on it fails with errc::invalid_argument.
  rendezvous_step() noexcept {}
  rendezvous_step(meeting::handle_ptr where, meeting::step_ptr state, step_id id)
      : lease_(std::allocate_shared<lease>(progress::pool_allocator<lease>(), std::move(where),
                                           std::move(state))),
        id_(id) {}

  [[nodiscard]] step_id id() const noexcept { return id_; }
  /// Whether this rank is the one that receives it.
  [[nodiscard]] bool is_local(const rendezvous_key& key) const {
    return key.destination == where().rank();
  }

  /// Gives a value to whoever receives the key, now or later. Never blocks, and runs no code of
  /// the receiver. An rvalue is moved, other values are copied; spans and views become vectors and
  /// strings; a `std::shared_ptr<const T>` is kept and not copied.
  ///
  /// *Requires* that this rank is the key's source. *Cost*: a lookup; to another rank, one message,
  /// which leaves at the engine's next look. *Throws* the errors of the class, and std::bad_alloc.
  template <class T>
    requires meeting::sendable<T>
  void send(const rendezvous_key& key, T&& value, bool dead = false) const {
    const int me = where().rank();
    const bool remote = me >= 0 && key.destination != me;
    where().send(state(), key, meeting::make_packet(std::forward<T>(value), dead, remote));
  }
  /// Chosen when a call fits no other form, to say what is wrong with it; recv, recv_into and next
  /// have such a form too.
  template <class... Arguments>
    requires(!meeting::send_fits<Arguments...>)
  void send(Arguments&&...) const {
    meeting::explain_send<Arguments...>();
  }
  /// Tells the receiver that there will be no value: the sender is on a branch that is not taken.
  void send_dead(const rendezvous_key& key) const {
    where().send(state(), key, meeting::dead_packet());
  }

  /// The next value of the key. *Completion*: `void(std::exception_ptr, received<T>)`.
  /// *Requires* that this rank is the key's destination. A value of another type is
  /// errc::type_mismatch, and stays for the next receive. *Cost*: a lookup; for a value of another
  /// rank that is not here yet, a request.
  /// *Source*: `RendezvousInterface::RecvAsync` of TensorFlow.
  /// *Example*: `auto [value, dead] = co_await step.recv<std::vector<float>>(key);`
  template <meeting::receivable T,
            completion_token_for<void(std::exception_ptr, received<T>)> Token = default_token>
  auto recv(const rendezvous_key& key, Token&& token = Token()) const {
    return meeting::initiate(handle(), meeting::recv_body<T>(state_or_null(), key), token);
  }

  template <class T = meeting::no_type, class... Arguments>
    requires(!meeting::receive_fits<T, void(std::exception_ptr, received<T>), Arguments...>)
  asio::awaitable<void> recv(Arguments&&...) const {
    meeting::explain_receive<T, Arguments...>();
    return {};
  }

  /// The same into memory of the caller's, which must live until the receive has ended. For values
  /// that were sent as spans, vectors or arrays of E. The result's value is the part that was
  /// filled. A value that does not fit is errc::message_too_long, and stays for the next receive.
  template <class E, std::size_t N, class Token = default_token>
    requires(!std::is_const_v<E> && meeting::plain<E>)
  auto recv_into(const rendezvous_key& key, std::span<E, N> into, Token&& token = Token()) const {
    return meeting::initiate(
        handle(), meeting::into_body<E>(state_or_null(), key, std::span<E>(into)), token);
  }

  template <class... Arguments>
    requires(!meeting::receive_into_fits<Arguments...>)
  asio::awaitable<void> recv_into(Arguments&&...) const {
    meeting::explain_receive_into<Arguments...>();
    return {};
  }

  /// The next value of a stream: none after \ref send_dead, and when the sender has closed.
  /// *Completion*: `void(std::exception_ptr, std::optional<T>)`.
  template <meeting::receivable T,
            completion_token_for<void(std::exception_ptr, std::optional<T>)> Token = default_token>
  auto next(const rendezvous_key& key, Token&& token = Token()) const {
    return meeting::initiate(handle(), meeting::next_body<T>(state_or_null(), key), token);
  }
  template <class T = meeting::no_type, class... Arguments>
    requires(!meeting::receive_fits<T, void(std::exception_ptr, std::optional<T>), Arguments...>)
  asio::awaitable<void> next(Arguments&&...) const {
    meeting::explain_receive<T, Arguments...>();
    return {};
  }

  /// Completes when all that this rank has sent in this step has been received. A value counts as
  /// received if its destination has aborted or cleaned up the step or has closed. Clean the step
  /// up after this, not before. peer_lost_error if a destination is lost.
  /// *Completion*: `void(std::exception_ptr)`.
  template <class Token = default_token>
  auto drained(Token&& token = Token()) const {
    return meeting::initiate(handle(), meeting::drain_body{state_or_null()}, token);
  }

  /// Ends all operations of the step on this rank, now and later, with this error, and drops its
  /// values. Ranks that ask for a value of this one get the error as an answer. The first error
  /// stays, unless it only follows from another (closed, aborted elsewhere, cancelled).
  void abort(std::exception_ptr why) const {
    if (why) where().abort(state(), why);
  }
  void abort(std::error_code why) const {
    if (why) abort(std::make_exception_ptr(std::system_error(why)));
  }

  /// The keys of this rank with values or receives that wait here.
  [[nodiscard]] std::vector<waiting_key> waiting() const { return where().waiting(state()); }

 private:
  struct lease {
    lease(meeting::handle_ptr in, meeting::step_ptr of)
        : where(std::move(in)), state(std::move(of)) {}
    lease(const lease&) = delete;
    lease& operator=(const lease&) = delete;
    ~lease() { (**where).release(*state); }
    meeting::handle_ptr where;
    meeting::step_ptr state;
  };

  // By reference: each copy is two atomic instructions on the way of a message.
  [[nodiscard]] const meeting::handle_ptr& handle() const noexcept {
    static const meeting::handle_ptr none;
    return lease_ ? lease_->where : none;
  }
  [[nodiscard]] const meeting::step_ptr& state_or_null() const noexcept {
    static const meeting::step_ptr none;
    return lease_ ? lease_->state : none;
  }
  [[nodiscard]] const lease& held() const {
    if (!lease_) throw error(errc::invalid_argument, "no step");
    return *lease_;
  }
  [[nodiscard]] meeting::step_state& state() const { return *held().state; }
  [[nodiscard]] meeting::endpoint& where() const { return **held().where; }

  std::shared_ptr<lease> lease_;
  step_id id_ = 0;
};

/// Brings together who sends a value and who receives it, on any ranks and in either order. Both
/// name the value by a key, within a step. A handle: copies are the same rendezvous.
///
/// 1. The constructor over a communicator is collective over it, and does not block. Steps can be
///    used at once, while communicators are made in the background as by `communicator::dup`.
/// 2. Values are sent and received in steps, until each rank cleans them up.
/// 3. `close` leaves. So does the last handle when it is dropped: in the background inside the
///    loop, in place after `io.run()`.
///
/// A constructor throws error(errc::invalid_argument) for options out of range. Unless they say
/// `deferred`, every operation of the other ranks then fails with mismatch_error.
class rendezvous {
 public:
  rendezvous() noexcept {}
  template <std::same_as<communicator> Communicator>
  explicit rendezvous(const Communicator& world, const rendezvous_options& options = {})
      : where_(meeting::open_endpoint<void>(engine_of(world), options,
                                            options.is_deferred ? Communicator() : world)) {}
  /// Everything waits until `initialize`.
  template <std::same_as<asio::io_context> Context>
  explicit rendezvous(Context& io, const rendezvous_options& options = {})
      : where_(meeting::open_endpoint<void>(use_engine(io), options, communicator())) {}

  /// Begins over the ranks of `world`, for all steps: what was called before is done now. A send
  /// among that which is not from this rank aborts its step with errc::not_local. Collective, and
  /// only once: a second call with a communicator of the same ranks does nothing, any other is
  /// errc::invalid_communicator.
  void initialize(const communicator& world) const { here().initialize(world); }

  /// The random number that the process of a rank has drawn at its start. 0 until that rank has
  /// told it. Throws errc::not_initialised or errc::bad_rank.
  [[nodiscard]] std::uint64_t incarnation(int rank) const { return here().incarnation(rank); }

  /// The step with this number, made at the first call. Throws errc::step_cleaned or errc::closed.
  rendezvous_step step(step_id id) const { return rendezvous_step(where_, here().step(id), id); }
  /// The steps that this rank knows, also those that only another rank has asked for.
  [[nodiscard]] std::vector<step_id> steps() const { return here().steps(); }

  /// Which way the values of this rank have gone to others.
  [[nodiscard]] rendezvous_statistics stats() const { return here().statistics(); }

  /// Forgets a step and all its values on this rank; its number cannot be used again. Its receives
  /// end with errc::step_cleaned, and so do those of other ranks that ask for its values.
  void cleanup(step_id id) const { here().cleanup(id); }
  void cleanup_all() const {
    for (const step_id id : steps()) cleanup(id);
  }
  /// Cleans up the steps that have passed `step_ttl`, as this rank also does now and then.
  void sweep() const { here().sweep(); }

  /// This rank sends and receives no more. Collective: completes when all ranks have closed. Until
  /// then others still get the values that they want from here.
  /// *Result*: what this rank has sent or been sent and nobody has received; that is also logged.
  /// *Completion*: `void(std::exception_ptr, std::vector<leaked_value>)`; errc::stalled after
  /// `leave_deadline`. *Cancellation* ends the await only.
  template <class Token = default_token>
  auto close(Token&& token = Token()) const {
    return meeting::initiate(where_, meeting::close_body(), token);
  }

  /// Closes without waiting, because something has gone wrong on this rank: receives of the others
  /// that need a value that it has not sent, now or later, end with peer_lost_error, which says why
  /// and where: "needs rank 0, which has left: cannot open weights.bin (train.cpp:41)". They are
  /// told by the loop, the first 960 bytes of `why`. What it has sent is served as after `close`,
  /// which, or the destructor, follows as ever; `leave_deadline` counts from here. Nothing happens
  /// where this rank has closed before.
  ///
  ///     } catch (const std::exception& problem) {
  ///       exchange.abandon(problem.what());
  ///     }
  ///     co_await exchange.close();
  void abandon(std::string_view why,
               const std::source_location& where = std::source_location::current()) const {
    here().leave(reason_for_leaving(why, where));
  }

 private:
  [[nodiscard]] meeting::endpoint& here() const {
    if (!where_) throw error(errc::invalid_argument, "no rendezvous");
    return **where_;
  }
  template <class Communicator>
  static progress::engine& engine_of(const Communicator& world) {
    if (!world) throw error(errc::invalid_communicator, "rendezvous");
    return world.state()->engine;
  }

  meeting::handle_ptr where_;
};

}  // namespace cohort

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/rendezvous/exchange/exchange.hpp>
#endif
