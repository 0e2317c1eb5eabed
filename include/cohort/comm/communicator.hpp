// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::communicator`: an MPI communicator, the engine that polls for it, and its executor.

#include <cohort/comm/backend.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/mpi/comm.hpp>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace cohort {

/// How much a communicator verifies. Each level includes the ones before.
enum class checks : std::uint8_t {
  local,   ///< arguments that this rank alone can judge; costs nothing measurable
  bounds,  ///< receives look at the message's size before they take it; one probe each
  /// Each collective first compares sizes, types and roots; one small all_reduce each. With
  /// `cohort/staging.hpp` it also asks CUDA whether buffers of the host are that.
  cross_rank
};

/// What happens when a deadline passes over a collective that MPI cannot give up.
enum class on_deadline : std::uint8_t {
  report,  ///< name it in the log and wait on
  abort    ///< name it and end the job
};

/// What MPI's verbs do with buffers in device memory (`cohort/staging.hpp`).
enum class device_memory : std::uint8_t {
  staged,      ///< they go through pinned memory of the host
  cuda_aware,  ///< this MPI takes pointers into device memory; it cannot be asked whether it does
  refused      ///< they are an error
};

/// Must be equal on all ranks of the communicator, but for `device_memory`, `shared_memory` and
/// `node`.
struct communicator_options {
  cohort::checks checks = cohort::checks::local;
  cohort::on_deadline on_deadline = cohort::on_deadline::report;
  cohort::device_memory device_memory = cohort::device_memory::staged;
  /// With `checks::cross_rank` it is MPI.
  cohort::backend_choice backend = cohort::backend_choice::environment;
  /// Bytes of memory that this process may have for backends which it chooses, all together, when
  /// it opens that of this communicator. Where that would need more, MPI does the collectives, on
  /// all ranks. Empty: `COHORT_SHM_MEMORY`, or 64 MiB.
  std::optional<std::size_t> shared_memory = std::nullopt;
  /// A number for the node of this rank, to try several on one machine; negative: as it is.
  int node = -1;
};

/// What a communicator has started on this rank since it was made.
struct communicator_statistics {
  std::uint64_t operations = 0;      ///< collectives, messages and all else of users
  comm::path_statistics by_backend;  ///< those that a backend took; MPI did the others
  std::string backend;               ///< its name; empty: there is none, or not yet
};

namespace comm {

class creation;
class mpi_blocking;  // comm/mpi_blocking.hpp
class cross_rank_check;
class doorbells;

/// Describes a process topology and makes a communicator over it, collectively. What it throws on
/// some ranks only, it throws from a `void check(const mpi::comm_ref&) const` if it has one: all
/// ranks hear of that before they are in `create`.
template <class Topology>
concept topology =
    std::copyable<Topology> && requires(const Topology& shape, const mpi::comm_ref& over) {
      { shape.create(over) } -> std::same_as<mpi::comm>;
    };

/// What all handles of one communicator share.
///
/// The MPI communicators are freed when the last handle and the last operation are gone; the memory
/// is reused then and given back with the context. So an operation needs no reference count of its
/// own, which would cost two atomic instructions behind stores that other ranks wait for: it keeps
/// a pointer and the `generation`, and `live` counts it while MPI works for it.
class communicator_state {
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
  communicator_options options;
  int peers = 0;    ///< ranks that messages can go to: of the other group in an intercommunicator
  int max_tag = 0;  ///< MPI's limit
  std::shared_ptr<any_backend> backend;
  mpi_blocking* blocks = nullptr;          ///< that backend, if it is one
  std::shared_ptr<const doorbells> bells;  ///< of the communicator this one was derived from
  std::vector<int> bell_ranks;             ///< this one's ranks there; empty: the same
  std::atomic<std::uint64_t> generation{0};

  // Guarded by the source's guard.
  std::uint64_t sequence = 0;             ///< of operations
  path_statistics by_backend;             ///< a part of these
  std::uint64_t adasums = 0;              ///< those of op::adasum, for the tags of their messages
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
  /// In the constructor of the communicator: opens what goes over its nodes, if that was asked for.
  void open_backend_over_nodes();
  /// By the program: nothing is chosen any more.
  void replace_backend(std::shared_ptr<any_backend> by) noexcept {
    const request_source::guard hold(source);
    choosing = backend_choosing::over;
    offer.reset();
    blocks = nullptr;
    backend.swap(by);
  }

  /// See mpi::comm::keep.
  void keep() noexcept {
    data.keep();
    exchange.keep();
  }
  [[nodiscard]] communicator_statistics statistics() const;
  /// Logs and remembers.
  void fail(failure what);
  [[nodiscard]] failure last_failure() const;

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) close();
  }
  [[nodiscard]] int bell_rank(int rank) const noexcept {
    return bell_ranks.empty() ? rank : bell_ranks[static_cast<std::size_t>(rank)];
  }
  /// A number for the node of a rank; only where there are `bells`.
  [[nodiscard]] int node_of(int rank) const noexcept { return bells->node_of(bell_rank(rank)); }
  /// How many of the first `ranks` ranks are on this rank's node; -1 if that is not known.
  [[nodiscard]] int on_node_among(int ranks) const noexcept {
    if (!bells) return -1;
    const int mine = node_of(data.rank());
    int found = 0;
    for (int rank = 0; rank < ranks; ++rank) found += node_of(rank) == mine ? 1 : 0;
    return found;
  }
  [[nodiscard]] bool is_homogeneous() const;
  [[nodiscard]] bool is_on_one_node() const noexcept { return on_node_among(peers) == peers; }
  /// Takes the memory for `derive_bells`.
  void reserve_bells(const communicator_state& parent);
  /// Takes over the doorbells of a communicator that this one was made from.
  void derive_bells(const communicator_state& parent);

  /// With the guard held: frees the MPI communicators if nobody needs them any more.
  void free_if_unused() noexcept;

 private:
  void close() noexcept;

  std::atomic<int> references_{0};
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

}  // namespace comm

/// A communicator whose operations can be awaited. A handle: copying it is cheap and all copies are
/// the same communicator, whose MPI duplicate is freed when the last handle and the last operation
/// are gone. An operation that is started after its communicator's last handle has gone completes
/// with `errc::invalid_communicator`. Handles must not outlive the context.
///
/// Constructing one duplicates the given MPI communicator (topology kept) and is collective over it
/// and blocking: do it outside the loop. Inside a coroutine use `co_await world.dup()`.
/// Errors: throws `errc::wrong_thread` off the main thread below SERIALIZED,
/// `errc::not_initialized` or `errc::finalized` without MPI, or MPI's own error. What else one rank
/// cannot do, it throws on all ranks, with that rank and the cause in the text.
///
/// *Threads.* Handles may be copied and used from any thread. Collectives on one communicator must
/// be started in one order on all ranks: one coroutine, or one strand, per communicator.
class communicator {
 public:
  using executor_type = asio::io_context::executor_type;

  /// No communicator. Every verb on it completes with `errc::invalid_communicator`.
  communicator() noexcept {}
  /// A duplicate of `MPI_COMM_WORLD`.
  template <std::same_as<asio::io_context> Context>
  explicit communicator(Context& io, const communicator_options& options = {})
      : communicator(io, MPI_COMM_WORLD, options) {}
  /// A duplicate of `original`, which stays the caller's. (Templates, so that only files
  /// that make a communicator compile an engine.)
  template <std::same_as<asio::io_context> Context>
  communicator(Context& io, MPI_Comm original, const communicator_options& options = {});

  communicator(const communicator& other) noexcept : state_(other.state_) {
    if (state_ != nullptr) state_->retain();
  }
  communicator(communicator&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  communicator& operator=(communicator other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~communicator() {
    if (state_ != nullptr) state_->release();
  }

  [[nodiscard]] int rank() const noexcept { return state_->data.rank(); }
  [[nodiscard]] int size() const noexcept { return state_->data.size(); }
  /// How many ranks of this communicator share this rank's node, and which of them this one is, in
  /// the order of ranks: what `co_await split_node()` would have, without making it. Nodes were
  /// told apart when the communicator was constructed that this one comes from: nothing is sent.
  /// Unknown in an intercommunicator: -1. *Cost*: a look at each rank.
  [[nodiscard]] int local_size() const noexcept { return state_->on_node_among(size()); }
  [[nodiscard]] int local_rank() const noexcept { return state_->on_node_among(rank()); }
  /// Whether all nodes have as many ranks of this communicator; false in an intercommunicator.
  [[nodiscard]] bool is_homogeneous() const { return state_->is_homogeneous(); }
  /// The library's duplicate. Calls of your own on it need `cohort::mpi::lock`. Collectives of your
  /// own on it need another order where the library posts its own later than they are started:
  /// with checks::cross_rank, with device memory, and beside verbs that exchange their counts.
  [[nodiscard]] MPI_Comm native() const noexcept { return state_->data.native(); }
  [[nodiscard]] executor_type get_executor() const noexcept {
    return state_->engine.get_executor();
  }
  [[nodiscard]] const communicator_options& options() const noexcept { return state_->options; }
  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }

  /// What went wrong last on this communicator and rank: the code that the awaiter got, and the
  /// line that was logged (verb, sequence number, fields and values).
  [[nodiscard]] failure last_failure() const { return state_->last_failure(); }

  [[nodiscard]] communicator_statistics stats() const { return state_->statistics(); }

  /// A communicator of the same ranks and topology. Collective. When all ranks have called it, and
  /// none is making another one, they meet in `MPI_Comm_create_group`, which stops their loops for
  /// as long as it needs. `void(std::error_code, communicator)`.
  template <completion_token_for<void(std::error_code, communicator)> Token = default_token>
  auto dup(Token&& token = Token()) const;

  /// The ranks of equal `color` (negative: none, and the result is empty), ordered by `key`.
  /// Collective, like `dup`.
  template <completion_token_for<void(std::error_code, communicator)> Token = default_token>
  auto split(int color, int key = 0, Token&& token = Token()) const;

  /// The ranks that share this node's memory. Collective, like `dup`.
  template <completion_token_for<void(std::error_code, communicator)> Token = default_token>
  auto split_node(Token&& token = Token()) const;

  /// A communicator over a process topology: `mpi::cartesian`, `mpi::dist_graph`, or anything with
  /// their `create`. Ranks beyond a grid get an empty one. Collective, like `dup`. What one rank
  /// cannot take part in fails on all, with that rank and the cause in the text.
  /// Example: `auto grid = co_await world.create(cohort::mpi::cartesian::balanced(n, 2));`
  template <comm::topology Topology,
            completion_token_for<void(std::error_code, communicator)> Token = default_token>
  auto create(const Topology& topology, Token&& token = Token()) const;

  /// Lets `backend` do the collectives that it takes; null takes it away. Collective in meaning:
  /// do the same on all ranks, with nothing in flight.
  template <comm::collective_backend Backend>
  void set_backend(Backend backend) {
    state_->replace_backend(std::make_shared<comm::backend_holder<Backend>>(std::move(backend)));
  }
  void reset_backend() noexcept { state_->replace_backend({}); }

  /// The size, or 1 for an empty handle: for bodies that are made before they are checked.
  [[nodiscard]] int ranks_or_one() const noexcept { return state_ != nullptr ? size() : 1; }
  /// For verbs. Null for an empty handle.
  [[nodiscard]] comm::communicator_state* state() const noexcept { return state_; }
  [[nodiscard]] comm::communicator_ref ref() const noexcept {
    if (state_ == nullptr) return comm::communicator_ref{nullptr, 0};
    return comm::communicator_ref{state_, state_->generation.load(std::memory_order_relaxed)};
  }
  /// Takes over communicators that were made from `parent`: see communicator_state::exchange.
  static communicator adopt(const communicator& parent, mpi::comm data, mpi::comm exchange) {
    communicator made = reserve(parent);
    made.fill(parent, std::move(data), std::move(exchange));
    return made;
  }
  /// The same in two stages. The first takes all memory that is needed; it gives a handle that only
  /// `fill` makes a communicator of.
  [[nodiscard]] static communicator reserve(const communicator& parent);
  /// One more handle.
  [[nodiscard]] static communicator of(comm::communicator_state& state) noexcept {
    return communicator(&state);
  }
  void fill(const communicator& parent, mpi::comm data, mpi::comm exchange);

 private:
  explicit communicator(comm::communicator_state* state) noexcept : state_(state) {
    state_->retain();
  }
  comm::communicator_state* state_ = nullptr;
};

/// Lets MPI make progress once. Runs no handler: what has finished is delivered when the loop gets
/// its turn, so a future may become ready only then. Most MPI libraries move nothing while nobody
/// calls them; a look between two layers of a computation is what makes communication overlap it.
///
/// *Cost*: one `MPI_Testsome` over what is pending. *Threads*: as for starting an operation.
inline void poll(const communicator& comm) {
  if (comm) comm.state()->engine.look();
}

}  // namespace cohort

// Brings the bodies: a communicator's own verbs are operations too.
#include <cohort/comm/operation.hpp>
