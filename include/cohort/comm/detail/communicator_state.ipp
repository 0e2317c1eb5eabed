// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `comm/communicator.hpp` and `comm/backend.hpp`.

#include <cohort/comm/agreement.hpp>
#include <cohort/comm/detail/doorbells.ipp>
#include <cohort/comm/operation.hpp>
#include <cohort/core/log.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace cohort::comm {

COHORT_INLINE void backend_completion::operator()(std::error_code error) const {
  op_->fail(error);
  engine_->complete(op_);
}

COHORT_INLINE bool backend_completion::in_look(std::error_code error) const {
  op_->fail(error);
  if (op_->waits_for_turn_ && op_->advance_ != nullptr) {
    try {
      if (op_->advance_(op_) && (op_->parts_ != 0 || op_->waits_for_turn_)) return false;
    } catch (...) {
      op_->fail_as_thrown();
    }
    if (op_->parts_ != 0) return false;  // part of a stage was posted: its requests come first
  }
  engine_->complete(op_);
  return true;
}

COHORT_INLINE void communicator_state::open(mpi::comm data_, mpi::comm exchange_,
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
  by_backend = {};
  closing = false;
  queues = options.checks == checks::cross_rank;
  const std::lock_guard hold(failure_mutex_);
  last_failure_ = failure();
}

COHORT_INLINE void communicator_state::reserve_bells(const communicator_state& parent) {
  if (parent.bells) bell_ranks.reserve(static_cast<std::size_t>(parent.data.size()));
}

COHORT_INLINE void communicator_state::derive_bells(const communicator_state& parent) {
  bells = parent.bells;
  bell_ranks.clear();
  if (!bells || data.is_inter()) {
    bells.reset();
    return;
  }
  bell_ranks.resize(static_cast<std::size_t>(data.size()));
  const mpi::lock calls;
  MPI_Group own = MPI_GROUP_NULL;
  MPI_Group other = MPI_GROUP_NULL;
  mpi::check(MPI_Comm_group(data.native(), &own), "MPI_Comm_group");
  mpi::check(MPI_Comm_group(parent.data.native(), &other), "MPI_Comm_group");
  std::array<int, 64> mine;  // some at a time, for this must not need memory
  for (int first = 0; first < data.size(); first += static_cast<int>(mine.size())) {
    std::iota(mine.begin(), mine.end(), first);
    const int count = std::min(data.size() - first, static_cast<int>(mine.size()));
    mpi::check(MPI_Group_translate_ranks(own, count, mine.data(), other, bell_ranks.data() + first),
               "MPI_Group_translate_ranks");
  }
  MPI_Group_free(&own);
  MPI_Group_free(&other);
  for (int& rank : bell_ranks) rank = parent.bell_rank(rank);
}

/// Processors of this node.
COHORT_INLINE int usable_processors() noexcept {
  // Of the node, not of this process: the launcher may have bound each rank to one core.
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<int>(online) : 1;
}

COHORT_INLINE void communicator_state::close() noexcept {
  const request_source::guard hold(source);
  generation.fetch_add(1, std::memory_order_relaxed);
  closing = true;
  free_if_unused();
}

COHORT_INLINE void communicator_state::free_if_unused() noexcept {
  if (live != 0 || references_.load(std::memory_order_relaxed) != 0) return;
  backend.reset();
  bells.reset();
  bell_ranks.clear();
  data.reset();
  exchange.reset();
  closing = false;
  source.recycle(this);
}

COHORT_INLINE void communicator_state::fail(failure what) {
  log::write(log::level::error, what.text);
  const std::lock_guard hold(failure_mutex_);
  last_failure_ = std::move(what);
}

COHORT_INLINE failure communicator_state::last_failure() const {
  const std::lock_guard hold(failure_mutex_);
  return last_failure_;
}

COHORT_INLINE communicator_statistics communicator_state::statistics() const {
  const request_source::guard hold(source);
  return {sequence, by_backend};
}

/// Throws where this thread may not make a communicator.
COHORT_INLINE void require_usable_mpi(const char* where) {
  if (!mpi::running()) {
    throw error(mpi::initialized() ? errc::finalized : errc::not_initialized, where);
  }
  if (!mpi::is_allowed_thread()) throw error(errc::wrong_thread, where);
}

}  // namespace cohort::comm

namespace cohort {

template <std::same_as<asio::io_context> Context>
communicator::communicator(Context& io, MPI_Comm original, const communicator_options& options) {
  comm::require_usable_mpi("cohort::communicator");
  mpi::comm data = mpi::comm::from(original);
  mpi::comm exchange = comm::communicator_state::exchange_of(data);
  const bool is_inter = data.is_inter();
  communicator made;
  std::shared_ptr<comm::doorbells> bells;
  comm::on_all_or_none(exchange, [&] {
    auto& source = asio::use_service<comm::request_source>(io);
    bells = std::make_shared<comm::doorbells>(source, exchange);
    made = communicator(source.new_state());
  });
  bells->meet(exchange);
  made.state_->engine.set_oversubscribed(bells->node_size() > comm::usable_processors());
  made.state_->open(std::move(data), std::move(exchange), options);
  if (!is_inter) made.state_->bells = std::move(bells);  // whose ranks are those of messages
  std::swap(state_, made.state_);
}

COHORT_INLINE communicator communicator::reserve(const communicator& parent) {
  communicator made(parent.state()->source.new_state());
  made.state_->reserve_bells(*parent.state());
  return made;
}

COHORT_INLINE void communicator::fill(const communicator& parent, mpi::comm data,
                                      mpi::comm exchange) {
  state_->open(std::move(data), std::move(exchange), parent.options());
  state_->derive_bells(*parent.state());
}

}  // namespace cohort
