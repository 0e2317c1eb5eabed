// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `p2p/bodies/batch.hpp`.

#include <cohort/core/process.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/p2p/bodies/batch.hpp>

#include <exception>
#include <string>

namespace cohort::p2p::detail {

// ---- one message -------------------------------------------------------------------------------

COHORT_INLINE void batched_message::explain(failure_text& text) const {
  text.with(sends_ ? "destination" : "source", way_.source).with("tag", way_.tag);
  text.with("count", data_.count());
  if (way_.refused_bytes != 0) text.with("message.bytes", way_.refused_bytes);
}

COHORT_INLINE cohort::status batched_message::status() const {
  if (!posted_ || sends_) return {};
  return way_.status_of(posted_->status);
}

COHORT_INLINE const mpi::layout& batched_message::layout() {
  if (!layout_) layout_.emplace(data_.lay_out());
  return *layout_;
}

COHORT_INLINE void batched_message::post(message_list& of, comm::communicator_state& state,
                                         bool persistent) {
  way_.taken = false;
  way_.refused_bytes = 0;
  posted_.emplace(of, *this, state.data.rank());
  const comm::poster to(state, *posted_);
  try {
    to.check(post(to, persistent));
  } catch (...) {
    posted_->fail_as_thrown();
  }
  if (!is_pending()) posted_->settle();
}

COHORT_INLINE int batched_message::post(const comm::poster& to, bool persistent) {
  const int peer = way_.source;
  const int tag = way_.tag;
  if (!sends_ && to.level() != checks::local) return to.add_probe(peer, tag);
  const mpi::layout& data = layout();
  // MPICH 4.0 never reports a persistent request to or from nobody as complete.
  if (persistent && peer != no_rank) {
    if (persistent_ == MPI_REQUEST_NULL) {
      constexpr auto send = &mpi::post::send_init;
      constexpr auto receive = &mpi::post::recv_init;
      const int rc = sends_ ? send(data.data(), data.count(), data.type(), peer, tag, to.native(),
                                   &persistent_)
                            : receive(data.data(), data.count(), data.type(), peer, tag,
                                      to.native(), &persistent_);
      if (rc != MPI_SUCCESS) return rc;
    }
    return to.add(MPI_Start(&persistent_), persistent_);
  }
  MPI_Request request = MPI_REQUEST_NULL;
  const int rc = sends_ ? mpi::post::isend(data.data(), data.count(), data.type(), peer, tag,
                                           to.native(), &request)
                        : mpi::post::irecv(data.data(), data.count(), data.type(), peer, tag,
                                           to.native(), &request);
  return to.add(rc, request);
}

COHORT_INLINE void batched_message::free_persistent() noexcept {
  if (persistent_ != MPI_REQUEST_NULL) MPI_Request_free(&persistent_);
  persistent_ = MPI_REQUEST_NULL;
}

COHORT_INLINE batched_message::operation::operation(message_list& of, batched_message& what,
                                                    int own_rank) noexcept
    : request_operation(&run), list_(of), message_(what) {
  verb = what.sends_ ? "send of a batch" : "recv of a batch";
  bytes = what.data_.bytes();
  rank = own_rank;
  peer = what.way_.source;
  cancellable = !what.sends_;
  status = cohort::status().native();
  advance_ = &look_has_found;
  advances_failed_ = true;
  report_settled_to(&settled_);
}

/// With MPI locked. True: there is nothing to be delivered.
COHORT_INLINE bool batched_message::operation::look_has_found(comm::request_operation* base) {
  auto& self = static_cast<operation&>(*base);
  comm::poster post(*self.list_.comm_.state(), self);
  arrival& way = self.message_.way_;
  // With `checks::bounds` it is a message that was found, and is received now.
  if (!self.failed() && !self.message_.sends_ && post.level() != checks::local && !way.taken) {
    const erased_buffer& data = self.message_.data_;
    try {
      way.take(post, self.message, self.status, data.count(), data.wire_size(),
               [&] { return data.lay_out(); });
    } catch (...) {
      self.fail_as_thrown();
    }
    if (post.has_requests()) return true;
  }
  // Open MPI frees a persistent request that has failed, and leaves null.
  if (self.message_.persistent_ != MPI_REQUEST_NULL) self.message_.persistent_ = self.left;
  post.hold();  // for good
  self.settle();
  self.list_.count_down();
  return true;
}

/// MPI has been finalized, or may not be called here: the source has given up its requests.
COHORT_INLINE void batched_message::operation::run(progress::operation* base, action) {
  auto& self = static_cast<operation&>(*base);
  std::shared_ptr<message_list> last;
  const comm::request_source::guard hold(self.list_.comm_.state()->source);
  self.message_.persistent_ = MPI_REQUEST_NULL;  // active, for all that is known
  self.list_.count_down();
  if (!self.list_.is_in_flight()) last.swap(self.list_.orphan_);
}

// ---- all of them -------------------------------------------------------------------------------

COHORT_INLINE message_list::~message_list() {
  if (comm_) clear();
}

COHORT_INLINE void message_list::require_idle(const char* what) const {
  if (is_in_flight()) {
    throw cohort::error(errc::invalid_argument, std::string(what) + ": the batch is in flight");
  }
}

COHORT_INLINE const batched_message& message_list::at(std::size_t i, const char* what) const {
  require_idle(what);
  if (i >= size()) {
    throw cohort::error(
        errc::invalid_argument,
        std::string(what) + ": message=" + std::to_string(i) + " of " + std::to_string(size()));
  }
  return messages_[i];
}

COHORT_INLINE void message_list::reserve(std::size_t messages) {
  require_idle("batch::reserve");
  messages_.reserve(messages);
}

COHORT_INLINE void message_list::add(erased_buffer data, bool sends, int peer, int tag) {
  require_idle(sends ? "batch::send" : "batch::recv");
  if (messages_.capacity() == 0) messages_.reserve(16);
  messages_.emplace_back(data, sends, peer, tag);
  bytes_ += data.bytes();
}

/// Also where a look of another thread, at its end, may still know the messages: it has the guard.
COHORT_INLINE void message_list::clear() {
  require_idle("batch::clear");
  if (comm_) {
    comm::request_source& source = comm_.state()->source;
    const comm::request_source::guard hold(source);
    if (source.usable() == errc{}) {
      for (batched_message& each : messages_) each.free_persistent();
    }
  }
  messages_.clear();
  bytes_ = 0;
  refused_ = errc{};
}

COHORT_INLINE void message_list::make_persistent() {
  require_idle("batch::persistent");
  is_persistent_ = true;
}

COHORT_INLINE void message_list::start() {
  require_idle("batch::start");
  if (!comm_) return;
  comm::communicator_state& state = *comm_.state();
  refused_index_ = nowhere;
  refused_ = state.source.usable();
  if (refused_ == errc{} && state.engine.stopped()) refused_ = errc::engine_stopped;
  if (refused_ == errc{}) refused_ = check_start(state);
  if (refused_ != errc{}) return;
  {
    const comm::request_source::guard hold(state.source);
    post_all();
  }
  if (is_in_flight()) state.engine.started();
}

COHORT_INLINE errc message_list::check_start(const comm::communicator_base& state) noexcept {
  if (is_in_flight()) return errc::invalid_argument;
  refused_ = errc{};
  refused_index_ = nowhere;
  for (std::size_t i = 0; i < size() && refused_ == errc{}; ++i) {
    refused_ = messages_[i].check(state);
    refused_index_ = i;
  }
  return refused_;
}

COHORT_INLINE void message_list::explain(failure_text& text) const {
  if (is_in_flight()) {
    text.note("it is in flight already");
    return;
  }
  const std::size_t index = refused_ != errc{} ? refused_index_ : first_failed();
  if (index >= size()) {
    text.with("messages", size());
    return;
  }
  text.with("message", index);
  messages_[index].explain(text);
}

COHORT_INLINE void message_list::post_all() {
  for (batched_message& each : messages_) each.forget_run();
  std::size_t posted = 0;
  for (batched_message& each : messages_) {
    each.post(*this, *comm_.state(), is_persistent_);
    if (each.is_pending()) ++posted;
    if (each.error()) [[unlikely]]
      break;
  }
  left_.store(posted, std::memory_order_release);
  if (error()) [[unlikely]]
    give_up();  // nobody may ever send what was to be received
}

COHORT_INLINE void message_list::wait(comm::poster& post) {
  if (is_in_flight()) {
    waiter_ = post.completion();
    post.hold();
  } else {
    post.operation().fail(error());
  }
}

COHORT_INLINE void message_list::count_down() {
  if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1 || !waiter_) return;
  const comm::backend_completion waiting = *waiter_;
  waiter_.reset();
  waiting.in_look(error());
}

COHORT_INLINE std::size_t message_list::first_failed() const noexcept {
  std::size_t given_up = nowhere;
  for (std::size_t i = 0; i < size(); ++i) {
    const std::error_code found = messages_[i].error();
    if (!found) continue;
    if (found != asio::error::operation_aborted) return i;
    if (given_up == nowhere) given_up = i;
  }
  return given_up;
}

COHORT_INLINE void message_list::give_up() {
  comm::request_source& source = comm_.state()->source;
  for (batched_message& each : messages_) each.give_up(source);
}

COHORT_INLINE void message_list::drop(std::shared_ptr<message_list> self) noexcept {
  if (!is_in_flight()) return;
  progress::engine& engine = comm_.state()->engine;
  give_up();
  const auto settled = [this] {
    for (const batched_message& each : messages_) {
      if (!each.is_settled()) return false;
    }
    return true;
  };
  if (!engine.drive_until(settled, engine.drain_bound())) {
    std::string text =
        "a batch was destroyed while MPI still uses its buffers, and its messages did not end in "
        "time; in flight:\n";
    if (std::uncaught_exceptions() > 0) text.insert(0, "while an exception was on its way, ");
    engine.describe(text);
    process::end_job(text);
  }
  const comm::request_source::guard hold(comm_.state()->source);
  if (is_in_flight()) orphan_ = std::move(self);
}

}  // namespace cohort::p2p::detail
