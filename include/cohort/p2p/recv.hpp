// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::recv`: a message from one rank, into a buffer or into a new container of its size.

#include <cohort/comm/argument.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/p2p/detail/checks.hpp>

#include <memory>

namespace cohort {
namespace p2p {

template <class Buffer>
struct recv_body;
template <class Container>
struct recv_new_body;

/// A container that can be made as long as a message is.
template <class Container>
concept receivable = owned_buffer<Container> && std::default_initializable<Container> &&
    requires(Container& container, std::size_t n) {
  container.resize(n);
};

}  // namespace p2p

/// Receives a message with `tag` from rank `source` into `buffer`, which is never resized.
///
/// *Requires* a rank of `comm`, `cohort::any_source` or `cohort::no_rank`; a tag or
/// `cohort::any_tag`. The message may be shorter than the buffer; `status::count<T>()` tells. A
/// longer one is an error: MPI's truncation error, or `errc::message_too_long` with
/// `checks::bounds`, which looks at the size first. (Open MPI 4.1 writes past the buffer before it
/// reports a message above 4 KiB that is too long: use `checks::bounds` where sizes are not
/// certain.) *Completion*: `void(std::error_code, status)`, or with the container after the status.
/// *Cancellation*: total; it ends with `operation_aborted`, or with the message if that came first.
/// *Cost*: one message. *Source*: `MPI_Irecv`, or `MPI_Improbe` and `MPI_Imrecv`.
/// *Example*: `auto st = co_await cohort::recv(world, halo, left, 7);`
template <class Buffer, class Token = default_token>
requires output_buffer<Buffer> &&
    completion_token_for<Token, typename p2p::recv_body<Buffer>::signature>
auto recv(const communicator& comm, Buffer&& buffer, int source, int tag, Token&& token = Token()) {
  return comm::initiate(comm, p2p::recv_body<Buffer>(buffer, source, tag), token);
}

/// Receives a message of unknown size: looks for it, makes a container of its size, receives it.
///
/// *Requires* a message of a whole number of elements, else `errc::size_mismatch`: the message is
/// then still taken. *Completion*: `void(std::error_code, Container, status)`.
/// *Cost*: one look per lap until the message is there. *Source*: `MPI_Improbe`, `MPI_Imrecv`.
/// *Example*: `auto [data, st] = co_await cohort::recv<std::vector<int>>(world, source, tag);`
template <p2p::receivable Container,
          completion_token_for<void(std::error_code, Container, status)> Token = default_token>
auto recv(const communicator& comm, int source, int tag, Token&& token = Token()) {
  return comm::initiate(comm, p2p::recv_new_body<Container>(source, tag), token);
}

/// Chosen when a call fits no other form: says what is wrong with it.
template <class... Arguments>
asio::awaitable<void> recv(const communicator&, Arguments&&...) {
  p2p::detail::explain_message<Arguments...>();
  return {};
}

namespace p2p {

template <class Buffer>
struct recv_body {
  using data_type = comm::argument<Buffer>;
  using signature = typename comm::completion_signature<std::tuple<data_type>, status>::type;
  static constexpr const char* name = "recv";
  static constexpr comm::cancels cancellation = comm::cancels::receive;

  recv_body(std::remove_reference_t<Buffer>& buffer, int source_, int tag_)
      : data(buffer), source(source_), tag(tag_) {}

  [[nodiscard]] errc check(const comm::communicator_state& state) const noexcept {
    return detail::check_message(state, source, tag, true);
  }
  void explain(failure_text& text) const {
    text.with("source", source).with("tag", tag).with("count", data.count());
    if (too_long != 0) text.with("message.bytes", too_long);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return data.bytes(); }
  [[nodiscard]] int peer() const noexcept { return source; }

  int post(comm::poster& post) {
    if (post.level() != checks::local) return post.add_probe(source, tag);
    const mpi::layout into(data.view());
    MPI_Request request = MPI_REQUEST_NULL;
    return post.add(mpi::post::irecv(into.data(), into.count(), into.type(), source, tag,
                                     post.native(), &request),
                    request);
  }

  /// With `checks::bounds`: a message was found. One that is too long is received into memory of
  /// its own, so that it does not stay in MPI, and reported.
  bool advance(comm::poster& post) {
    if (post.level() == checks::local || taken) return false;
    taken = true;
    const MPI_Status& found = post.operation().status;
    const std::size_t length = detail::message_bytes(found);
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;
    if (length > data.count() * mpi::wire_size<typename data_type::value_type>) {
      too_long = length;
      post.operation().fail(errc::message_too_long);
      discarded = std::make_unique_for_overwrite<std::byte[]>(length);
      const mpi::layout into(contiguous_view(discarded.get(), length));
      rc = mpi::post::imrecv(into.data(), into.count(), into.type(), &post.operation().message,
                             &request);
    } else {
      const mpi::layout into(data.view());
      rc = mpi::post::imrecv(into.data(), into.count(), into.type(), &post.operation().message,
                             &request);
    }
    post.check(post.add(rc, request));
    return true;
  }

  template <class Handler>
  void finish(Handler&& handler, std::error_code error, const comm::outcome_of_requests& outcome) {
    comm::complete_with(std::forward<Handler>(handler), error, data.take(), status(outcome.status));
  }

  data_type data;
  int source;
  int tag;
  bool taken = false;
  std::size_t too_long = 0;
  std::unique_ptr<std::byte[]> discarded;
};

template <class Container>
struct recv_new_body {
  using signature = void(std::error_code, Container, status);
  using value_type = element_of_t<Container>;
  static constexpr const char* name = "recv";
  static constexpr comm::cancels cancellation = comm::cancels::receive;

  recv_new_body(int source_, int tag_) : source(source_), tag(tag_) {}

  [[nodiscard]] errc check(const comm::communicator_state& state) const noexcept {
    return detail::check_message(state, source, tag, true);
  }
  void explain(failure_text& text) const {
    text.with("source", source).with("tag", tag).with("message.bytes", length);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  [[nodiscard]] int peer() const noexcept { return source; }
  int post(comm::poster& post) const { return post.add_probe(source, tag); }

  bool advance(comm::poster& post) {
    if (taken) return false;
    taken = true;
    length = detail::message_bytes(post.operation().status);
    constexpr std::size_t size = mpi::wire_size<value_type>;
    if (length % size != 0) post.operation().fail(errc::size_mismatch);
    data.resize((length + size - 1) / size);  // also holds a message that is refused
    const mpi::layout into(view_of(data));
    MPI_Request request = MPI_REQUEST_NULL;
    post.check(post.add(mpi::post::imrecv(into.data(), into.count(), into.type(),
                                          &post.operation().message, &request),
                        request));
    return true;
  }

  template <class Handler>
  void finish(Handler&& handler, std::error_code error, const comm::outcome_of_requests& outcome) {
    std::forward<Handler>(handler)(error, std::move(data), status(outcome.status));
  }

  int source;
  int tag;
  bool taken = false;
  std::size_t length = 0;
  Container data;
};

}  // namespace p2p
}  // namespace cohort
