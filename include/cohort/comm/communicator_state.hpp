// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What is behind a handle on a communicator: `cohort::communicator` for files that await.

#include <cohort/comm/backend.hpp>
#include <cohort/comm/body.hpp>
#include <cohort/comm/communicator.hpp>
#include <cohort/comm/options.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/mpi/comm.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cohort::comm {

class creation;
class mpi_blocking;  // comm/mpi_blocking.hpp
class cross_rank_check;
class doorbells;

/// Counts the operations, and their bytes, that go one way: through a backend, say. Other threads
/// may read it meanwhile.
class path_counters {
 public:
  void add(std::size_t moved) noexcept {
    operations_.add(1);
    bytes_.add(moved);
  }
  [[nodiscard]] path_statistics get() const noexcept { return {operations_.get(), bytes_.get()}; }
  void reset() noexcept {
    operations_.set(0);
    bytes_.set(0);
  }

 private:
  progress::relaxed_counter operations_;
  progress::relaxed_counter bytes_;
};

/// What all handles of one communicator share.
///
/// The MPI communicators are freed when the last handle and the last operation are gone; the memory
/// is reused then and given back with the context. So an operation needs no reference count of its
/// own, which would cost two atomic instructions behind stores that other ranks wait for: it keeps
/// a pointer and the `generation`, and `live` counts it while MPI works for it.
class communicator_state final : public communicator_base {
 public:
  communicator_state(request_source& requests, progress::engine& owner)
      : source(requests), engine(owner) {}

  /// Collective over `data`, and blocks.
  [[nodiscard]] static mpi::comm exchange_of(const mpi::comm& data) {
    return data.is_inter() ? data.merge() : data.dup();
  }
  void open(mpi::comm data, mpi::comm exchange, const communicator_options& options);

  mpi::comm data;      ///< the user's operations
  mpi::comm exchange;  ///< what the library tells the other ranks, apart from the operations: a
                       ///< duplicate of `data`, for an intercommunicator the two groups merged
  request_source& source;
  progress::engine& engine;
  std::shared_ptr<any_backend> backend;
  const backend_opening* opening = nullptr;  ///< null: none is chosen by itself
  std::shared_ptr<mpi_blocking> blocks;      ///< that backend, if it is one; or of a single rank
  std::shared_ptr<const doorbells> bells;    ///< of the communicator this one was derived from
  std::vector<int> bell_ranks;               ///< this one's ranks there; empty: the same

  // Guarded by the source's guard, but for blocking calls of MPI: see
  // detail::count_blocking_call.
  progress::relaxed_counter sequence;  ///< of operations
  path_counters by_backend;            ///< a part of these
  // Guarded by the source's guard.
  std::size_t live = 0;                   ///< operations that need the MPI communicators
  bool closing = false;                   ///< the last handle is gone
  cross_rank_check* unchecked = nullptr;  ///< the first of those that wait, in order of initiation
  cross_rank_check* last_unchecked = nullptr;  ///< meaningful only if there is a first
  creation* creations = nullptr;               ///< under way over this one, in order of initiation
  bool queues = false;  ///< collectives are not posted when they are started: see cross_rank_check
  backend_choosing choosing = backend_choosing::over;
  std::uint64_t collectives = 0;         ///< begun while choosing, of those that a backend may take
  std::unique_ptr<backend_offer> offer;  ///< what this rank has opened while choosing

  /// Before a collective is begun while choosing: opens the backend that is chosen by itself, if
  /// there may be one, and takes it into use once all ranks have it. With the guard held.
  void choose_backend();
  void replace_backend(std::shared_ptr<any_backend> by) noexcept override {
    const request_source::guard hold(source);
    choosing = backend_choosing::over;
    offer.reset();
    blocks.reset();
    backend.swap(by);
  }

  /// See mpi::comm::keep.
  void keep() noexcept {
    data.keep();
    exchange.keep();
  }
  [[nodiscard]] COHORT_INLINE communicator_statistics statistics() const override;
  /// Logs and remembers.
  void fail(failure what);
  [[nodiscard]] COHORT_INLINE failure last_failure() const override;
  [[nodiscard]] bool is_inter() const override { return data.is_inter(); }
  void look() override { engine.look(); }
  COHORT_INLINE outcome_of_requests run(const body_functions& functions, void* body) override;
  void add(MPI_Request request, request_operation& op) override { source.add(request, op); }
  void add_probe(int from, int tag, probe_kind kind, request_operation& op) override {
    source.add_probe(from, tag, data.native(), kind, op);
  }
  [[nodiscard]] int bell_rank(int rank) const noexcept {
    return bell_ranks.empty() ? rank : bell_ranks[static_cast<std::size_t>(rank)];
  }
  /// A number for the node of a rank; only where there are `bells`.
  [[nodiscard]] int node_of(int rank) const noexcept { return bells->node_of(bell_rank(rank)); }
  [[nodiscard]] int on_node_among(int ranks) const noexcept override {
    if (!bells) return -1;
    const int mine = node_of(data.rank());
    int found = 0;
    for (int rank = 0; rank < ranks; ++rank) found += node_of(rank) == mine ? 1 : 0;
    return found;
  }
  [[nodiscard]] COHORT_INLINE bool is_homogeneous() const override;
  [[nodiscard]] bool is_on_one_node() const noexcept { return on_node_among(peers) == peers; }
  /// Takes the memory for `derive_bells`.
  void reserve_bells(const communicator_state& parent);
  /// Takes over the doorbells of a communicator that this one was made from.
  void derive_bells(const communicator_state& parent);

  /// With the guard held: frees the MPI communicators if nobody needs them any more.
  void free_if_unused() noexcept;

 private:
  COHORT_INLINE void close() noexcept override;

  mutable std::mutex failure_mutex_;
  failure last_failure_;
};

/// A communicator as an operation that has not started keeps it.
struct communicator_ref {
  communicator_state* state;
  std::uint64_t generation;

  [[nodiscard]] bool alive() const noexcept {
    return state != nullptr && state->generation.load(std::memory_order_relaxed) == generation;
  }
};

inline backend_completion poster::completion() const { return {state().engine, operation()}; }
inline communicator_state& poster::state() const noexcept {
  return static_cast<communicator_state&>(comm_);
}

}  // namespace cohort::comm

namespace cohort {

inline comm::communicator_state* communicator::state() const noexcept {
  return static_cast<comm::communicator_state*>(state_);
}
inline comm::communicator_ref communicator::ref() const noexcept {
  if (state_ == nullptr) return comm::communicator_ref{nullptr, 0};
  return comm::communicator_ref{state(), state_->generation.load(std::memory_order_relaxed)};
}
inline communicator communicator::adopt(const communicator& parent, mpi::comm data,
                                        mpi::comm exchange) {
  communicator made = reserve(parent);
  made.fill(parent, std::move(data), std::move(exchange));
  return made;
}

template <class>
auto communicator::get_executor() const noexcept {
  return state()->engine.get_executor();
}

template <class Backend>
void communicator::set_backend(Backend backend) {
  static_assert(comm::collective_backend<Backend>, "see cohort::comm::collective_backend");
  state_->replace_backend(std::make_shared<comm::backend_holder<Backend>>(std::move(backend)));
}

}  // namespace cohort
