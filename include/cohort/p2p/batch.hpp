// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::batch`: several messages that are started at once and awaited as one.
///
/// \code
/// const int right = (world.rank() + 1) % world.size();
/// const int left = (world.rank() + world.size() - 1) % world.size();
/// std::vector<double> row(100, 1.0), above(100), below(100);
/// cohort::batch halo(world);
/// halo.recv(above, left, 1);
/// halo.recv(below, right, 2);
/// halo.send(row, right, 1);
/// halo.send(row, left, 2);
/// for (int step = 0; step < 3; ++step) co_await halo.run();
///
/// halo.start();            // or in two parts:
/// // … compute what needs no neighbour …
/// co_await halo.finish();
/// \endcode

#include <cohort/comm/operation.hpp>
#include <cohort/p2p/bodies/batch.hpp>
#include <cohort/p2p/bodies/common.hpp>
#include <cohort/progress/operation.hpp>

#include <cstddef>
#include <memory>
#include <system_error>
#include <utility>

namespace cohort {

/// Messages that begin together and end together, with one completion; again and again.
///
/// It borrows all buffers, from the call that adds them until it is cleared or gone. Everything but
/// `start`, `run`, `finish` and the destructor throws `errc::invalid_argument` while it is in
/// flight.
///
/// *Errors*: the first by index, of `run` or `finish`; `last_failure()` and the exception of an
/// await have its index as `message=3`, with its fields and values, and `error(i)` that of each.
/// Bad ranks and tags are found before anything is posted. If MPI does not take a message, those
/// before it are ended, receives by giving them up, and those behind it are not posted.
/// *Cancellation*: the receives are given up as by `recv`; the sends cannot be, so it ends when
/// they are done. With `checks::bounds` sizes are looked at first, as by `recv`.
///
/// *Dropped* while in flight, or assigned to, it does what a dropped future does: receives are
/// given up, and it waits inside MPI until nothing touches the buffers any more, 30 s at most, 2 s
/// while an exception is on its way; then it names what is in flight and ends the job.
///
/// *Threads*: one at a time, as for a container. Like a communicator it must not outlive the
/// context. *Cost*: one block of memory for 16 messages, or as many as were reserved; none when it
/// is run again. *Source*: `MPI_Isend`, `MPI_Irecv`; `MPI_Send_init`, `MPI_Recv_init`, `MPI_Start`.
class [[nodiscard]] batch {
 public:
  explicit batch(const communicator& comm)
      : list_(std::allocate_shared<list>(progress::pool_allocator<list>(), comm)) {}
  batch(batch&&) noexcept = default;
  /// Swaps: what was here is dropped with `other`.
  batch& operator=(batch&& other) noexcept {
    list_.swap(other.list_);
    return *this;
  }
  ~batch() {
    if (list_) list_->drop(list_);
  }

  /// Adds a receive, of what `cohort::recv` takes, as an lvalue, a span or a strided view. Nothing
  /// is posted and nothing checked before the start.
  /// *Example*: `halo.recv(above, left, 7);`
  template <writable_buffer Buffer>
  void recv(Buffer&& buffer, int source, int tag) {
    list_->add(p2p::detail::erased_buffer(view_of(buffer)), false, source, tag);
  }
  /// Adds a send, in the standard mode, of what `cohort::send` takes. Receives that are added
  /// before it are posted before it.
  /// *Example*: `halo.send(row, right, 7);`
  template <readable_buffer Buffer>
  void send(Buffer&& buffer, int destination, int tag) {
    list_->add(p2p::detail::erased_buffer(view_of(buffer)), true, destination, tag);
  }
  /// Chosen when a call does not fit: says what is wrong with it.
  template <class... Arguments>
  void recv(Arguments&&...) {
    p2p::detail::explain_batched<Arguments...>();
  }
  template <class... Arguments>
  void send(Arguments&&...) {
    p2p::detail::explain_batched<Arguments...>();
  }

  /// From the next start on requests are persistent: made once, then only restarted. Receives with
  /// `checks::bounds` are not.
  void persistent() { list_->make_persistent(); }
  /// Takes the memory for so many messages.
  void reserve(std::size_t messages) { list_->reserve(messages); }
  /// Forgets all messages.
  void clear() { list_->clear(); }
  [[nodiscard]] std::size_t size() const noexcept { return list_->size(); }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }

  /// Starts all messages and completes when all have ended. *Completion*: `void(std::error_code)`.
  /// *Example*: `co_await halo.run();`, or `halo.run(cohort::blocking);`
  template <completion_token_for<void(std::error_code)> Token = default_token>
  auto run(Token&& token = Token()) {
    return comm::initiate(list_->comm(), p2p::detail::batch_body(list_, true), token);
  }

  /// Starts all messages; `finish` has what goes wrong. Throws `errc::invalid_argument` if it is in
  /// flight. Somebody has to look, as after any start: the loop, or `cohort::poll`.
  void start() { list_->start(); }
  /// Completes when all messages have ended, once for each start. One that has ended, or was never
  /// started, completes at once, with the result of its last run. *Completion*:
  /// `void(std::error_code)`. *Example*: `co_await halo.finish();`
  template <completion_token_for<void(std::error_code)> Token = default_token>
  auto finish(Token&& token = Token()) {
    return comm::initiate(list_->comm(), p2p::detail::batch_body(list_, false), token);
  }

  /// Whether something has been started that has not ended.
  [[nodiscard]] bool is_in_flight() const noexcept { return list_->is_in_flight(); }
  /// Of the message that was added as number `i`, from 0, in the last run. That of a send is empty.
  [[nodiscard]] cohort::status status(std::size_t i) const {
    return list_->at(i, "batch::status").status();
  }
  /// How it has ended.
  [[nodiscard]] std::error_code error(std::size_t i) const {
    return list_->at(i, "batch::error").error();
  }

 private:
  using list = p2p::detail::message_list;
  std::shared_ptr<list> list_;
};

}  // namespace cohort

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/p2p/bodies/batch.ipp>
#endif
