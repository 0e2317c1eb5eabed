// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `comm/communicator.hpp`.

#include <cohort/comm/creation.hpp>
#include <cohort/comm/detail/doorbells.ipp>
#include <cohort/core/log.hpp>
#include <cohort/mpi/topology.hpp>

#include <unistd.h>

#include <numeric>

namespace cohort::comm {

inline void backend_completion::operator()(std::error_code error) const {
  op_->fail(error);
  engine_->complete(op_);
}

inline bool backend_completion::in_look(std::error_code error) const {
  op_->fail(error);
  if (op_->waits_for_turn_ && op_->advance_ != nullptr) {
    try {
      if (op_->advance_(op_) && (op_->parts_ != 0 || op_->waits_for_turn_)) return false;
    } catch (const std::system_error& failed) {
      op_->fail(failed.code());
    } catch (...) {
      op_->fail(std::make_error_code(std::errc::not_enough_memory));
    }
    if (op_->parts_ != 0) return false;  // part of a stage was posted: its requests come first
  }
  engine_->complete(op_);
  return true;
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
  queues = options.checks == checks::cross_rank;
  const std::lock_guard hold(failure_mutex_);
  last_failure_ = failure();
}

inline void communicator_state::derive_bells(const communicator_state& parent) {
  bells = parent.bells;
  bell_ranks.clear();
  if (!bells || data.is_inter()) {
    bells.reset();
    return;
  }
  std::vector<int> mine(static_cast<std::size_t>(data.size()));
  std::iota(mine.begin(), mine.end(), 0);
  bell_ranks.resize(mine.size());
  const mpi::lock calls;
  MPI_Group own = MPI_GROUP_NULL;
  MPI_Group other = MPI_GROUP_NULL;
  mpi::check(MPI_Comm_group(data.native(), &own), "MPI_Comm_group");
  mpi::check(MPI_Comm_group(parent.data.native(), &other), "MPI_Comm_group");
  mpi::check(MPI_Group_translate_ranks(own, static_cast<int>(mine.size()), mine.data(), other,
                                       bell_ranks.data()),
             "MPI_Group_translate_ranks");
  MPI_Group_free(&own);
  MPI_Group_free(&other);
  for (int& rank : bell_ranks) rank = parent.bell_rank(rank);
}

/// Processors of this node.
inline int usable_processors() noexcept {
  // Of the node, not of this process: the launcher may have bound each rank to one core.
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<int>(online) : 1;
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
  bells.reset();
  bell_ranks.clear();
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

/// A communicator that does not exist yet. `Make` makes it of one that the same ranks have for
/// themselves, and may give an empty one.
template <class Make>
struct make_communicator_body {
  using signature = void(std::error_code, communicator);
  // Who leaves might let the others wait in MPI for ever.
  static constexpr cancels cancellation = cancels::never;

  [[nodiscard]] errc check(const communicator_state&) const noexcept { return {}; }
  void explain(failure_text&) const {}
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  int post(poster& post) {
    steps = std::make_unique<creation>(post.state(), post.operation());
    steps->begin();
    return MPI_SUCCESS;
  }
  bool advance(poster&) {
    return steps->goes_on([this](mpi::comm fresh) {
      mpi::comm data = make(parent.state()->data, std::move(fresh));
      if (!data) return;
      mpi::comm exchange = data.dup();
      result = communicator::adopt(parent, std::move(data), std::move(exchange));
    });
  }
  template <class Handler>
  void finish(Handler&& handler, std::error_code error, const outcome_of_requests&) {
    std::forward<Handler>(handler)(error, std::move(result));
  }

  static constexpr const char* name = Make::name;
  communicator parent;
  Make make;
  std::unique_ptr<creation> steps = nullptr;  // MPI writes there while the body moves
  communicator result = communicator();
};

struct make_dup {
  static constexpr const char* name = "dup";
  mpi::comm operator()(const mpi::comm_ref& parent, mpi::comm fresh) const {
    return mpi::with_topology_of(parent, std::move(fresh));
  }
};

struct make_split {
  static constexpr const char* name = "split";
  int color;
  int key;
  mpi::comm operator()(const mpi::comm_ref&, const mpi::comm& fresh) const {
    return fresh.split(color, key);
  }
};

struct make_split_node {
  static constexpr const char* name = "split_node";
  mpi::comm operator()(const mpi::comm_ref&, const mpi::comm& fresh) const {
    return fresh.split_node();
  }
};

template <topology Topology>
struct make_topology {
  static constexpr const char* name = "create";
  Topology shape;
  mpi::comm operator()(const mpi::comm_ref&, const mpi::comm& fresh) const {
    return shape.create(fresh);
  }
};

}  // namespace cohort::comm

namespace cohort {

template <std::same_as<asio::io_context> Context>
communicator::communicator(Context& io, MPI_Comm original, const communicator_options& options) {
  comm::require_usable_mpi("cohort::communicator");
  mpi::comm data = mpi::comm::from(original);
  mpi::comm exchange = data.dup();
  auto& source = asio::use_service<comm::request_source>(io);
  auto bells = std::make_shared<comm::doorbells>(source, exchange);
  source.engine().set_oversubscribed(bells->node_size() > comm::usable_processors());
  state_ = source.new_state();
  state_->retain();
  state_->open(std::move(data), std::move(exchange), options);
  state_->bells = std::move(bells);
}

inline communicator communicator::adopt(const communicator& parent, mpi::comm data,
                                        mpi::comm exchange) {
  comm::communicator_state* state = parent.state()->source.new_state();
  state->open(std::move(data), std::move(exchange), parent.options());
  state->derive_bells(*parent.state());
  return communicator(state);
}

template <completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::dup(Token&& token) const {
  comm::make_communicator_body<comm::make_dup> body{*this, comm::make_dup{}};
  return comm::initiate(*this, std::move(body), token);
}

template <completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::split(int color, int key, Token&& token) const {
  comm::make_communicator_body<comm::make_split> body{*this, comm::make_split{color, key}};
  return comm::initiate(*this, std::move(body), token);
}

template <comm::topology Topology, completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::create(const Topology& topology, Token&& token) const {
  using make = comm::make_topology<Topology>;
  comm::make_communicator_body<make> body{*this, make{topology}};
  return comm::initiate(*this, std::move(body), token);
}

template <completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::split_node(Token&& token) const {
  comm::make_communicator_body<comm::make_split_node> body{*this, comm::make_split_node{}};
  return comm::initiate(*this, std::move(body), token);
}

}  // namespace cohort
