// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::probe` and `cohort::matched_probe`: wait until a message is there, before receiving it.

#include <cohort/comm/operation.hpp>
#include <cohort/mpi/request.hpp>
#include <cohort/p2p/detail/checks.hpp>
#include <cohort/p2p/message.hpp>

#include <tuple>
#include <utility>

namespace cohort {

/// Completes when a message with `tag` from rank `source` is there, and leaves it where it is.
///
/// *Requires* a rank of `comm`, `cohort::any_source` or `cohort::no_rank`; a tag or
/// `cohort::any_tag`. The next matching receive takes the message, whoever starts it: where several
/// coroutines receive, use `matched_probe`. *Completion*: `void(std::error_code, status)`.
/// *Cancellation*: total. *Cost*: one look per lap, no message. *Source*: `MPI_Iprobe`.
/// *Example*: `auto st = co_await cohort::probe(world, cohort::any_source, 7);`
template <completion_token_for<void(std::error_code, status)> Token = default_token>
auto probe(const communicator& comm, int source, int tag, Token&& token = Token());

/// The same, and takes the message out of the queue: only who holds the result can receive it.
///
/// *Completion*: `void(std::error_code, p2p::message)`; the message is also its status, and goes to
/// `cohort::recv` with `std::move`. *Cancellation*: total. *Source*: `MPI_Improbe`.
/// *Example*: `auto message = co_await cohort::matched_probe(world, cohort::any_source, 7);`
template <completion_token_for<void(std::error_code, p2p::message)> Token = default_token>
auto matched_probe(const communicator& comm, int source, int tag, Token&& token = Token());

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
asio::awaitable<void> probe(const communicator&, Arguments&&...) {
  p2p::detail::explain_probe<Arguments...>();
  return {};
}
template <class... Arguments>
asio::awaitable<void> matched_probe(const communicator&, Arguments&&...) {
  p2p::detail::explain_probe<Arguments...>();
  return {};
}

namespace p2p {

/// Which message is looked for.
struct probe_target {
  static constexpr comm::cancels cancellation = comm::cancels::receive;

  [[nodiscard]] errc check(const comm::communicator_state& state) const noexcept {
    return detail::check_message(state, source, tag, true);
  }
  void explain(failure_text& text) const { text.with("source", source).with("tag", tag); }
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  [[nodiscard]] int peer() const noexcept { return source; }

  int source;
  int tag;
};

struct probe_body : probe_target {
  using signature = void(std::error_code, status);
  static constexpr const char* name = "probe";

  int post(comm::poster& post) const { return post.add_probe(source, tag, comm::probe_kind::look); }
  std::tuple<status> finish(std::error_code, const comm::outcome_of_requests& outcome) {
    return status(outcome.status);
  }
};

struct matched_probe_body : probe_target {
  using signature = void(std::error_code, message);
  static constexpr const char* name = "matched_probe";

  int post(comm::poster& post) const { return post.add_probe(source, tag); }
  /// The message has an owner from now on, also if the handler is never called.
  bool advance(comm::poster& post) {
    comm::request_operation& op = post.operation();
    found = message(comm, std::exchange(op.message, MPI_MESSAGE_NULL), status(op.status));
    return false;
  }
  std::tuple<message> finish(std::error_code, const comm::outcome_of_requests&) {
    return std::move(found);
  }

  communicator comm;
  message found;
};

}  // namespace p2p

template <completion_token_for<void(std::error_code, status)> Token>
auto probe(const communicator& comm, int source, int tag, Token&& token) {
  return comm::initiate(comm, p2p::probe_body{{source, tag}}, token);
}

template <completion_token_for<void(std::error_code, p2p::message)> Token>
auto matched_probe(const communicator& comm, int source, int tag, Token&& token) {
  return comm::initiate(comm, p2p::matched_probe_body{{source, tag}, comm, p2p::message()}, token);
}

}  // namespace cohort
