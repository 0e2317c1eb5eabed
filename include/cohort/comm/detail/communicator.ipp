// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `comm/communicator.hpp`.

#include <cohort/core/log.hpp>

namespace cohort::comm {

inline void backend_completion::operator()(std::error_code error) const {
  op_->fail(error);
  engine_->complete(op_);
}

inline void communicator_state::open(mpi::comm data_, mpi::comm exchange_,
                                     const communicator_options& options_) {
  data = std::move(data_);
  exchange = std::move(exchange_);
  options = options_;
  peers = data.size();
  if (data.is_inter()) {
    const mpi::lock calls;
    mpi::check(MPI_Comm_remote_size(data.native(), &peers), "MPI_Comm_remote_size");
  }
  max_tag = mpi::max_tag();
  sequence = 0;
  closing = false;
  const std::lock_guard hold(failure_mutex_);
  last_failure_ = failure();
}

inline void communicator_state::close() noexcept {
  const request_source::guard hold(source);
  generation.fetch_add(1, std::memory_order_relaxed);
  closing = true;
  free_if_unused();
}

inline void communicator_state::free_if_unused() noexcept {
  if (live != 0 || references_.load(std::memory_order_relaxed) != 0) return;
  backend.reset();
  data.reset();
  exchange.reset();
  closing = false;
  source.recycle(this);
}

inline void communicator_state::fail(failure what) {
  log::write(log::level::error, what.text);
  const std::lock_guard hold(failure_mutex_);
  last_failure_ = std::move(what);
}

inline failure communicator_state::last_failure() const {
  const std::lock_guard hold(failure_mutex_);
  return last_failure_;
}

/// Throws where this thread may not make a communicator.
inline void require_usable_mpi(const char* where) {
  if (!mpi::running()) {
    throw error(mpi::initialized() ? errc::finalized : errc::not_initialized, where);
  }
  if (!mpi::is_allowed_thread()) throw error(errc::wrong_thread, where);
}

/// A communicator that does not exist yet: the ranks meet in a barrier, then make it.
template <class Make>
struct make_communicator_body {
  using signature = void(std::error_code, communicator);
  static constexpr cancels cancellation = cancels::detach;

  [[nodiscard]] errc check(const communicator_state&) const noexcept { return {}; }
  void explain(failure_text&) const {}
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  int post(poster& post) const {
    MPI_Request request = MPI_REQUEST_NULL;
    return post.add(MPI_Ibarrier(post.exchange(), &request), request);
  }
  template <class Handler>
  void finish(Handler&& handler, std::error_code error, const outcome_of_requests&) {
    communicator made;
    if (!error) {
      try {
        mpi::comm data = make(static_cast<const mpi::comm_ref&>(parent.state()->data));
        if (data) {
          mpi::comm exchange = data.dup();
          made = communicator::adopt(parent.state()->engine.context(), std::move(data),
                                     std::move(exchange), parent.options());
        }
      } catch (const std::system_error& problem) {
        error = problem.code();
      }
    }
    std::forward<Handler>(handler)(error, std::move(made));
  }

  static constexpr const char* name = Make::name;
  communicator parent;
  Make make;
};

struct make_split {
  static constexpr const char* name = "split";
  int color;
  int key;
  mpi::comm operator()(const mpi::comm_ref& parent) const { return parent.split(color, key); }
};

struct make_split_node {
  static constexpr const char* name = "split_node";
  mpi::comm operator()(const mpi::comm_ref& parent) const { return parent.split_node(); }
};

/// MPI can duplicate without blocking.
struct dup_body {
  using signature = void(std::error_code, communicator);
  static constexpr const char* name = "dup";
  static constexpr cancels cancellation = cancels::never;

  [[nodiscard]] errc check(const communicator_state&) const noexcept { return {}; }
  void explain(failure_text&) const {}
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  int post(poster& post) {
    made = std::make_unique<std::array<MPI_Comm, 2>>();
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = post.add(MPI_Comm_idup(post.native(), made->data(), &request), request);
    if (rc != MPI_SUCCESS) return rc;
    return post.add(MPI_Comm_idup(post.exchange(), made->data() + 1, &request), request);
  }
  template <class Handler>
  void finish(Handler&& handler, std::error_code error, const outcome_of_requests&) {
    communicator result;
    if (!error) {
      result = communicator::adopt(parent.state()->engine.context(), mpi::comm::adopt((*made)[0]),
                                   mpi::comm::adopt((*made)[1]), parent.options());
    }
    std::forward<Handler>(handler)(error, std::move(result));
  }

  communicator parent;
  std::unique_ptr<std::array<MPI_Comm, 2>> made;  // MPI writes here while the body moves
};

}  // namespace cohort::comm

namespace cohort {

inline communicator::communicator(asio::io_context& io, const communicator_options& options)
    : communicator(io, MPI_COMM_WORLD, options) {}

inline communicator::communicator(asio::io_context& io, MPI_Comm original,
                                  const communicator_options& options) {
  comm::require_usable_mpi("cohort::communicator");
  mpi::comm data = mpi::comm::from(original);
  mpi::comm exchange = data.dup();
  *this = adopt(io, std::move(data), std::move(exchange), options);
}

inline communicator communicator::adopt(asio::io_context& io, mpi::comm data, mpi::comm exchange,
                                        const communicator_options& options) {
  auto& source = asio::use_service<comm::request_source>(io);
  comm::communicator_state* state = source.new_state();
  state->open(std::move(data), std::move(exchange), options);
  return communicator(state);
}

template <completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::dup(Token&& token) const {
  return comm::initiate(*this, comm::dup_body{*this, nullptr}, token);
}

template <completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::split(int color, int key, Token&& token) const {
  comm::make_communicator_body<comm::make_split> body{*this, comm::make_split{color, key}};
  return comm::initiate(*this, body, token);
}

template <completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::split_node(Token&& token) const {
  comm::make_communicator_body<comm::make_split_node> body{*this, comm::make_split_node{}};
  return comm::initiate(*this, body, token);
}

}  // namespace cohort
