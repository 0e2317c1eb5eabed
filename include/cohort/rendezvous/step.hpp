// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::rendezvous_step`: sends and receives of one step.

#include <cohort/rendezvous/detail/wrong_call.hpp>
#include <cohort/rendezvous/operation.hpp>

#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {

/// A lease on a step of a \ref rendezvous. A handle: copies are the same step. The step's values
/// live until it is cleaned up or the rendezvous closes, not until the last lease.
///
/// *Threads.* Every function may be called from any thread. *Errors.* Receives end with, and sends
/// throw, what the step was aborted with; errc::closed, errc::step_cleaned, errc::not_local,
/// errc::stale_incarnation, errc::duplicate_key, errc::type_mismatch, peer_lost_error;
/// step_aborted_error for a step that the sender has aborted.
/// *Cancellation* of a receive: total. Its value goes to the next receive of the key. A transfer
/// into a receive's memory that has begun is waited for.
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
  /// *Requires* that this rank is the key's source. *Cost*: local, a lookup; else one message,
  /// which leaves at the engine's next look. *Throws* see the class; for want of memory.
  template <class T>
    requires meeting::sendable<T>
  void send(const rendezvous_key& key, T&& value, bool dead = false) const {
    const int me = where().rank();
    const bool remote = me >= 0 && key.destination != me;
    where().send(state(), key, meeting::make_packet(std::forward<T>(value), dead, remote));
  }
  /// Chosen, as are its sisters below, when a call fits no other form: says what is wrong with it.
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
  /// *Requires* that this rank is the key's destination. A value of another type is errc::
  /// type_mismatch, and stays. *Cost*: local, a lookup; else a request, unless the value is here.
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

  /// The same into memory of the caller's, which must live until the receive has ended: for values
  /// that were sent as spans, vectors or arrays of E. The result's value is the part that was
  /// filled. More than fits is errc::message_too_long, and stays.
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

  /// The next value of a stream; nothing after \ref send_dead, or when the sender has closed:
  /// `while (auto value = co_await step.next<int>(key))`.
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

  /// Completes when all that this rank has sent in this step has been received, or never will be,
  /// because its destination has aborted or cleaned up the step or has closed. Clean the step up
  /// after it, not before. peer_lost_error if the destination is lost.
  /// *Completion*: `void(std::exception_ptr)`.
  template <class Token = default_token>
  auto drained(Token&& token = Token()) const {
    return meeting::initiate(handle(), meeting::drain_body{state_or_null()}, token);
  }

  /// Ends all operations of the step on this rank, now and later, with this error, and drops its
  /// values. Ranks that ask for a value of this one are answered with it. The first error stays,
  /// but one that only follows from another (closed, aborted elsewhere, cancelled) gives way.
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

}  // namespace cohort
