// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::communicator`: an MPI communicator, the engine that polls for it, and its executor.

#include <cohort/comm/options.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/token.hpp>
#include <cohort/mpi/native.hpp>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>

namespace cohort::mpi {
class comm;
class comm_ref;
}  // namespace cohort::mpi

namespace cohort {

class communicator;

namespace comm {

/// Describes a process topology and makes a communicator over it, collectively. What it throws on
/// some ranks only, it throws from a `void check(const mpi::comm_ref&) const` if it has one: all
/// ranks hear of that before they are in `create`.
template <class Topology>
concept topology =
    std::copyable<Topology> && requires(const Topology& shape, const mpi::comm_ref& over) {
      { shape.create(over) } -> std::same_as<mpi::comm>;
    };

class any_backend;
class communicator_state;
struct backend_opening;  // comm/backend.hpp
class request_operation;
enum class probe_kind : std::uint8_t;
struct body_functions;
struct communicator_ref;
struct outcome_of_requests;

/// What a verb that blocks has to know of a communicator: its values, and functions of
/// `communicator_state`, which files that only block do not read.
class communicator_base {
 public:
  communicator_base(const communicator_base&) = delete;
  communicator_base& operator=(const communicator_base&) = delete;

  struct plain_values {
    MPI_Comm data = MPI_COMM_NULL;      ///< of the user's operations
    MPI_Comm exchange = MPI_COMM_NULL;  ///< of what the library tells the other ranks
    int rank = MPI_PROC_NULL;
    int size = 0;
  };
  plain_values plain;
  communicator_options options;
  int peers = 0;    ///< ranks that messages can go to: of the other group in an intercommunicator
  int max_tag = 0;  ///< MPI's limit
  std::atomic<std::uint64_t> generation{0};
  std::uint64_t adasums = 0;  ///< operations with op::adasum, for the tags of their messages;
                              ///< guarded by the source's guard

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) close();
  }
  /// How many of the first `ranks` ranks are on this rank's node; -1 if that is not known.
  [[nodiscard]] virtual int on_node_among(int ranks) const noexcept = 0;
  [[nodiscard]] virtual bool is_homogeneous() const = 0;
  [[nodiscard]] virtual communicator_statistics statistics() const = 0;
  [[nodiscard]] virtual failure last_failure() const = 0;
  [[nodiscard]] virtual bool is_inter() const = 0;
  /// One look of the engine.
  virtual void look() = 0;
  /// By the program: nothing is chosen any more.
  virtual void replace_backend(std::shared_ptr<any_backend> by) noexcept = 0;

  /// Does what `body` says, and waits for it. Throws what `cohort::blocking` throws.
  virtual outcome_of_requests run(const body_functions& functions, void* body) = 0;

  // For a `poster`.
  virtual void add(MPI_Request request, request_operation& op) = 0;
  virtual void add_probe(int source, int tag, probe_kind kind, request_operation& op) = 0;

 protected:
  communicator_base() noexcept {}
  ~communicator_base() = default;
  [[nodiscard]] bool has_handles() const noexcept {
    return references_.load(std::memory_order_relaxed) != 0;
  }

 private:
  /// The last handle has gone.
  virtual void close() noexcept = 0;

  std::atomic<int> references_{0};
};

/// How a communicator opens a backend itself (`backend_choice::automatic`) is what the file has
/// included by then that constructs it: <cohort/shm.hpp> declares a function of this name that
/// takes an int, which fits better. So no other file compiles shared memory. `Asking` has the
/// function looked up where a communicator is constructed. No alias stands for its result, because
/// g++ would keep the first.
template <class Asking>
struct asked_for {};
struct no_backend_opener {
  [[nodiscard]] static const backend_opening* opening() noexcept { return nullptr; }
};
template <class Asking>
no_backend_opener backend_opener_for(asked_for<Asking>, long);

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
  /// No communicator. Every verb on it completes with `errc::invalid_communicator`.
  communicator() noexcept {}
  /// A duplicate of `MPI_COMM_WORLD`.
  /// \tparam Context `asio::io_context`. (Templates, so that only files that make a communicator
  /// compile an engine.)
  template <class Context,
            class Opener = decltype(backend_opener_for(comm::asked_for<Context>(), 0))>
    requires(!std::same_as<std::remove_const_t<Context>, communicator>) &&
            cohort::detail::is_loop<cohort::detail::with_asio, Context>
  explicit communicator(Context& io, const communicator_options& options = {})
      : communicator(io, MPI_COMM_WORLD, options, Opener::opening()) {}
  /// A duplicate of `original`, which stays the caller's.
  template <class Context,
            class Opener = decltype(backend_opener_for(comm::asked_for<Context>(), 0))>
    requires(!std::same_as<std::remove_const_t<Context>, communicator>) &&
            cohort::detail::is_loop<cohort::detail::with_asio, Context>
  communicator(Context& io, MPI_Comm original, const communicator_options& options = {})
      : communicator(io, original, options, Opener::opening()) {}
  /// For what constructs one in another's place, whose `Opener::opening()` is given.
  template <class Context>
  communicator(Context& io, MPI_Comm original, const communicator_options& options,
               const comm::backend_opening* opening);

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

  [[nodiscard]] int rank() const noexcept { return state_->plain.rank; }
  [[nodiscard]] int size() const noexcept { return state_->plain.size; }
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
  [[nodiscard]] MPI_Comm native() const noexcept { return state_->plain.data; }
  /// That of the loop.
  template <class = void>
  [[nodiscard]] auto get_executor() const noexcept;
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
  template <class Backend>
  void set_backend(Backend backend);
  void reset_backend() noexcept { state_->replace_backend({}); }

  /// The size, or 1 for an empty handle: for bodies that are made before they are checked.
  [[nodiscard]] int ranks_or_one() const noexcept { return state_ != nullptr ? size() : 1; }
  /// For verbs. Null for an empty handle.
  [[nodiscard]] comm::communicator_base* base() const noexcept { return state_; }
  [[nodiscard]] comm::communicator_state* state() const noexcept;
  [[nodiscard]] comm::communicator_ref ref() const noexcept;
  /// Takes over communicators that were made from `parent`: see communicator_state::exchange.
  static communicator adopt(const communicator& parent, mpi::comm data, mpi::comm exchange);
  /// The same in two stages. The first takes all memory that is needed; it gives a handle that only
  /// `fill` makes a communicator of.
  [[nodiscard]] static communicator reserve(const communicator& parent);
  /// One more handle.
  [[nodiscard]] static communicator of(comm::communicator_base& state) noexcept {
    return communicator(&state);
  }
  void fill(const communicator& parent, mpi::comm data, mpi::comm exchange);

 private:
  explicit communicator(comm::communicator_base* state) noexcept : state_(state) {
    state_->retain();
  }
  comm::communicator_base* state_ = nullptr;
};

/// Lets MPI make progress once. Runs no handler: what has finished is delivered when the loop gets
/// its turn, so a future may become ready only then. Most MPI libraries move nothing while nobody
/// calls them; a look between two layers of a computation is what makes communication overlap it.
///
/// *Cost*: one `MPI_Testsome` over what is pending. *Threads*: as for starting an operation.
inline void poll(const communicator& comm) {
  if (comm) comm.base()->look();
}

}  // namespace cohort
