// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The source of an engine that polls MPI; and how ranks are rung that do not look: their
/// addresses, and a page of flags that the ranks of a node share.
///
/// Into the room `requests` come operations, each with what MPI has been given for it, and rings
/// for other ranks. Operations leave it complete, for the engine, which calls their handlers.

#include <cohort/comm/requests/list.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>
#include <cohort/mpi/progress_request.hpp>
#include <cohort/progress/doorbell.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/polled_source.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cohort::comm {

class request_source;

/// The doorbells of the ranks of one communicator that was made blocking. Shared by everything that
/// is derived from it, which translates its ranks.
///
/// The flags lie in one shared-memory object per node, which its lowest rank makes and unlinks as
/// soon as all have mapped it: nothing is left behind, and giving it up is local, where freeing an
/// MPI window would wait for the other ranks. A rank that cannot map it rings with every message.
class doorbells {
 public:
  /// Local. `meet` comes next. `choice`: 0, or how this rank would have its backend chosen. `node`:
  /// a number for that of this rank; negative: as it is.
  doorbells(request_source& source, const mpi::comm_ref& over, std::uint64_t choice = 0,
            int node = -1);
  ~doorbells();
  doorbells(const doorbells&) = delete;
  doorbells& operator=(const doorbells&) = delete;
  /// Tells the others of `over`. Collective and blocking.
  void meet(const mpi::comm_ref& over);

  /// A control message to `rank` of the original communicator has left: wake its engine if it
  /// sleeps, or might. Cost: a load where the flag can be seen, else a system call.
  void announce(int rank) const noexcept;

  [[nodiscard]] MPI_Comm base() const noexcept { return base_; }
  /// A number for the node of a rank: the lowest rank there.
  [[nodiscard]] int node_of(int rank) const noexcept {
    return node_[static_cast<std::size_t>(rank)];
  }
  /// Whether this rank and that would have their backend chosen alike.
  [[nodiscard]] bool choose_alike(int rank) const noexcept {
    return mine_.choice != 0 && entries_[static_cast<std::size_t>(rank)].choice == mine_.choice;
  }
  /// Ranks that share this rank's node.
  [[nodiscard]] int node_size() const noexcept { return node_size_; }

 private:
  using flag = std::atomic<std::uint32_t>;
  static_assert(flag::is_always_lock_free, "flags are shared between processes");
  struct entry {
    progress::bell_address bell;
    std::uint64_t host;
    std::uint64_t choice;  // 0: none
  };
  static constexpr std::size_t line = 64;  // a flag per cache line

  static std::uint32_t own_address();
  void map_flags(const mpi::comm_ref& over);
  [[nodiscard]] flag* flag_of(int rank) const noexcept;

  request_source& source_;
  MPI_Comm base_;
  int rank_;
  entry mine_{};
  std::vector<entry> entries_;
  std::vector<int> node_;  // of each rank
  std::vector<int> slot_;  // of each rank in the page of its node; -1 on other nodes
  int node_size_ = 0;
  std::byte* page_ = nullptr;
  std::size_t page_bytes_ = 0;
};

/// Something to be done at the next look, with the source locked: what was submitted since the last
/// one leaves then in one message.
class look_hook {
 public:
  look_hook(const look_hook&) = delete;
  look_hook& operator=(const look_hook&) = delete;
  /// Returns how many operations it has handed to the engine as complete.
  virtual std::size_t at_look() = 0;
  /// At every look from `look_always` on; the same.
  virtual std::size_t at_every_look() { return 0; }
  /// Now and then while something is pending, if it watches.
  virtual void at_tick(progress::engine::clock::time_point) {}
  /// For reports, if it watches: what somebody waits for here, a line for each as
  /// `"  rank 1: all_reduce 'loss', pending for 12 ms\n"`. With the source locked.
  virtual void list_waiting(std::string&, progress::engine::clock::time_point) {}

 protected:
  look_hook() noexcept {}
  virtual ~look_hook() = default;

 private:
  friend class look_hooks;
  look_hook* next_ = nullptr;
  bool waits_ = false;
};

/// The hooks of one source, a part of it. Everything with the source locked.
class look_hooks {
 public:
  look_hooks(const look_hooks&) = delete;
  look_hooks& operator=(const look_hooks&) = delete;

  /// Calls `hook.at_look()` once, at the next look. That counts as pending until then; call
  /// `engine().started()` after the guard.
  void at_next_look(look_hook& hook) noexcept {
    if (std::exchange(hook.waits_, true)) return;
    hook.next_ = nullptr;
    (first_ == nullptr ? first_ : last_->next_) = &hook;
    last_ = &hook;
    counts_.count_pending(1);
  }
  /// Calls `hook.at_tick()` at the engine's ticks until it is forgotten.
  void watch(look_hook& hook) {
    watching_.push_back(&hook);
    count();
  }
  /// Calls `hook.at_every_look()` until it is forgotten.
  void look_always(look_hook& hook) {
    always_.push_back(&hook);
    count();
  }
  /// Without the lock too.
  [[nodiscard]] bool has_hooks() const noexcept {
    return has_hooks_.load(std::memory_order_relaxed);
  }
  /// Neither at a look nor at a tick any more.
  void forget(look_hook& hook) noexcept {
    std::erase(watching_, &hook);
    std::erase(always_, &hook);
    count();
    if (!hook.waits_) return;
    look_hook* before = nullptr;
    for (look_hook* at = first_; at != &hook; at = at->next_) before = at;
    (before == nullptr ? first_ : before->next_) = hook.next_;
    if (last_ == &hook) last_ = before;
    if (last_due_ == &hook) last_due_ = before;
    hook.waits_ = false;
    counts_.count_pending(-1);
  }

 protected:
  explicit look_hooks(request_counts& of) noexcept : counts_(of) {}
  ~look_hooks() = default;

  /// Whether `run_due` has anything to do.
  [[nodiscard]] bool has_due() const noexcept { return first_ != nullptr || !always_.empty(); }
  /// Calls those that wait; what they add waits for the next time. Returns how many operations they
  /// have handed to the engine as complete.
  std::size_t run_due() {
    std::size_t done = 0;
    for (std::size_t i = 0; i < always_.size(); ++i) done += always_[i]->at_every_look();
    if (first_ == nullptr) [[likely]]
      return done;
    last_due_ = last_;
    while (first_ != nullptr && last_due_ != nullptr) {
      look_hook* hook = first_;
      first_ = hook->next_;
      hook->waits_ = false;
      counts_.count_pending(-1);
      if (hook == last_due_) last_due_ = nullptr;
      done += hook->at_look();
    }
    return done;
  }
  void forget_due() noexcept {
    for (; first_ != nullptr; first_ = first_->next_) first_->waits_ = false;
  }
  void tick_watching(steady_clock::time_point now) {
    for (std::size_t i = 0; i < watching_.size(); ++i) watching_[i]->at_tick(now);
  }
  void list_waiting(std::string& text, steady_clock::time_point now) {
    for (look_hook* each : watching_) each->list_waiting(text, now);
  }

 private:
  void count() noexcept {
    has_hooks_.store(!watching_.empty() || !always_.empty(), std::memory_order_relaxed);
  }

  request_counts& counts_;
  std::atomic<bool> has_hooks_{false};  // that watch, or look always
  look_hook* first_ = nullptr;          // in order of registration
  look_hook* last_ = nullptr;
  look_hook* last_due_ = nullptr;  // of those that this look calls
  std::vector<look_hook*> watching_;
  std::vector<look_hook*> always_;
};

/// Lets one thread at a time call MPI and touch what a source keeps: by the process-wide lock at
/// SERIALIZED, by the source's own mutex at MULTIPLE; at lower levels there is only one thread.
class source_lock {
 public:
  /// `one_thread`: the program promises to have no second engine; throws
  /// error(errc::single_thread_violation) where that is not kept.
  COHORT_INLINE explicit source_lock(bool one_thread);
  COHORT_INLINE ~source_lock();
  source_lock(const source_lock&) = delete;

  /// Whether there is something to be released.
  [[nodiscard]] bool acquire();
  void release(bool owns) noexcept;
  /// Whether MPI forbids this thread to call it.
  [[nodiscard]] bool is_wrong_thread() const noexcept {
    return level_ < mpi::thread_level::serialized && !mpi::is_main_thread();
  }

 private:
  enum class locking : std::uint8_t { none, process_wide, own };
  // Of the whole process: a promise says that there is one source.
  static inline std::atomic<int> alive_{0};
  static inline std::atomic<int> promises_{0};

  const mpi::thread_level level_ = mpi::level();
  const bool one_thread_;
  locking locking_;
  // For the lists, where MPI needs no lock. Recursive: a backend that goes with its communicator
  // may hold the last handle of another one.
  std::recursive_mutex own_mutex_;
};

/// The bell that wakes an engine which sleeps while control receives are posted, and the
/// flags that say so to others. Touched with the guard of the source.
class source_bell {
 public:
  /// Made at the first call.
  [[nodiscard]] COHORT_INLINE progress::doorbell& get(progress::engine& of);
  COHORT_INLINE void close(progress::engine& of);
  void ring(const progress::bell_address& whom, bool here) const noexcept {
    if (bell_) bell_->ring(whom, here);
  }
  /// A peer reads `flag`, which says whether the engine sleeps, or rings with every message.
  void announce_through(std::atomic<std::uint32_t>* flag) { flags_.push_back(flag); }
  void no_longer_through(std::atomic<std::uint32_t>* flag) noexcept { std::erase(flags_, flag); }
  /// A control receive was posted on a communicator that has no bell: the engine never parks.
  void forbid_parking() noexcept { may_park_.store(false); }
  [[nodiscard]] bool may_park() const noexcept { return may_park_ && bell_ != nullptr; }
  void set_parked(std::uint32_t parked, std::memory_order order) noexcept {
    for (auto* flag : flags_) flag->store(parked, order);
  }

 private:
  std::unique_ptr<progress::doorbell> bell_;
  std::vector<std::atomic<std::uint32_t>*> flags_;
  std::atomic<bool> may_park_{true};
};

/// The source of an engine that polls MPI. One per context, found with
/// `asio::use_service<request_source>(io)`. What MPI works on is in the list that it derives from.
///
/// *Threads.* Everything that touches MPI or the lists happens under `guard`, see source_lock.
class request_source : public progress::polled_source,
                       public asio::execution_context::service,
                       public request_list,
                       public look_hooks {
 public:
  using key_type = request_source;
  static inline asio::execution_context::id id;

  /// For `asio::use_service`. Throws error(errc::invalid_argument) if COHORT_STALL_WARNING is no
  /// duration.
  template <std::derived_from<asio::execution_context> Context>
  explicit request_source(Context& context);
  COHORT_INLINE ~request_source() override;

  /// Holds the lock that posting and looking need.
  class guard {
   public:
    explicit guard(request_source& source, bool takes = true)
        : lock_(source.lock_), owns_(takes && lock_.acquire()) {}
    ~guard() { lock_.release(owns_); }
    guard(const guard&) = delete;
    guard& operator=(const guard&) = delete;

   private:
    source_lock& lock_;
    bool owns_;
  };

  [[nodiscard]] progress::engine& engine() const noexcept { return engine_; }

  /// What stands in the way of calling MPI from this thread now; `errc{}` if nothing does.
  [[nodiscard, gnu::always_inline]] errc usable() const noexcept {
    return mpi::running() && !lock_.is_wrong_thread() ? errc{} : why_not_usable();
  }

  /// Whether nothing is in flight on this loop or waits to be delivered, and nothing is open that
  /// others may ask. True of a moment, where another thread may start something and no guard is
  /// held.
  [[nodiscard, gnu::always_inline]] bool is_quiet() {
    return idle() == 0 && !has_hooks() && engine_.is_quiet();
  }
  // With the guard held:
  /// Looks for a short while, where it was quiet before `op` was posted. Whether that has ended;
  /// nobody else is told.
  [[nodiscard]] bool look_for_end(const request_operation& op);
  /// The same of a request that no operation has. `return_code`: what MPI says of it.
  [[nodiscard]] bool look_for_end(MPI_Request& request, MPI_Status& status, int& return_code);
  /// The operations that make communicators and wait for their turn, without a request.
  [[nodiscard]] std::vector<request_operation*> waiting_creations() const;
  /// Leaves to MPI, for good, the requests of the operations with this stage function that `give`
  /// says true of. Nobody asks for them any more, so what MPI works on must never go away. Not
  /// while completions are being handled.
  template <class Give>
  void leave_to_mpi(request_operation::advance_function stage, Give give) noexcept {
    for (request_operation* op : waiting_creations()) {  // they have no request
      if (op->advance_ == stage) give(*op);
    }
    request_list::leave_to_mpi(
        [&](request_operation& op) { return op.advance_ == stage && give(op); });
  }

  /// Calls `visit(op)` for the operations with this stage function that have a request.
  template <class Visit>
  void for_each(request_operation::advance_function stage, Visit visit) {
    for (request_operation* op : operations()) {
      if (op->advance_ == stage) visit(*op);
    }
  }

  /// How long `op` has been pending, in words, for reports; takes the guard. Ages begin at the
  /// engine's first tick after the post, at most 50 ms later while the loop runs.
  [[nodiscard]] std::string age_of(const request_operation& op);

  /// Asks MPI to give up the request added last, a receive, or ends a probe, once; takes the guard.
  /// The operation completes through the loop with `operation_aborted`, or with its message if that
  /// came first; other requests of the operation are waited for.
  void cancel(request_operation& op);

  // Called by the engine.
  COHORT_INLINE bool begin_lap(progress::ready_queue& ready) override;
  COHORT_INLINE std::size_t test(progress::ready_queue& ready) override;
  void end_lap() noexcept override { lock_.release(lap_owns_); }
  using request_list::pending;
  [[nodiscard]] std::size_t pending() const noexcept override { return request_list::pending(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return request_list::bytes(); }
  [[nodiscard]] bool only_announced() override {
    const guard hold(*this);
    return pending() == announced();
  }
  COHORT_INLINE progress::park_result park(progress::ready_queue& ready) override;
  void unpark() override {
    const guard hold(*this);
    bell_.set_parked(0, std::memory_order_relaxed);
  }
  COHORT_INLINE void leave() override;
  COHORT_INLINE void abandon() override;
  COHORT_INLINE void describe(std::string& text) override;
  /// A rank that waits for what is not MPI's keeps none that waits for MPI inside it, a send say
  /// that needs this rank to take its message: MPI goes on only while somebody calls it.
  COHORT_INLINE void make_progress() override;
  COHORT_INLINE void tick(steady_clock::time_point now) override;

  /// Memory of communicators, reused and given back with the context. Takes the guard.
  [[nodiscard]] communicator_state* new_state();
  /// A comparison for `op`, which `post` will post after it.
  [[nodiscard]] COHORT_INLINE virtual std::unique_ptr<argument_check> make_check(
      communicator_state& comm, request_operation& op, argument_check::post_function post);
  /// With the guard held.
  void recycle(communicator_state* state) noexcept { free_states_.push_back(state); }

  [[nodiscard]] progress::doorbell& doorbell() {
    const guard hold(*this);
    return bell_.get(engine_);
  }
  [[nodiscard]] source_bell& bell() noexcept { return bell_; }

 private:
  inline void shutdown() override { bell_.close(engine_); }  // the engine ends the operations
  std::size_t test_all(progress::ready_queue& ready);
  [[nodiscard]] errc why_not_usable() const noexcept;
  void finish(request_operation& op, progress::ready_queue& ready);
  void fail_everything(std::error_code why, progress::ready_queue& ready);
  void leave_optional();
  COHORT_INLINE void list(progress::pending_lines& lines) override;

  progress::engine& engine_;
  source_lock lock_;
  bool lap_owns_ = false;  // written while the lock is held
  mpi::progress_request progress_;
  std::vector<std::unique_ptr<communicator_state>> states_;
  std::vector<communicator_state*> free_states_;
  source_bell bell_;
  static constexpr unsigned most_looks = 100;  // of `look_for_end`: some microseconds
};

}  // namespace cohort::comm

// Brings the bodies: the source keeps the states of communicators.
