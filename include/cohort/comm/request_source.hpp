// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The one place that asks MPI whether requests are complete: one `MPI_Testsome` over all of them.

#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/finalize.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>
#include <cohort/mpi/state.hpp>
#include <cohort/progress/doorbell.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/stall_watch.hpp>

#include <array>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace cohort::comm {

class request_source;
class communicator_state;
class poster;

/// What a probe does with the message it finds.
enum class probe_kind : std::uint8_t {
  look,  ///< leaves it in MPI's queue (`MPI_Iprobe`)
  take   ///< takes it out, to be received by a handle (`MPI_Improbe`)
};

/// An operation that MPI works on: some requests, and what a stall report says about it.
///
/// It is finished when all its requests are. An operation of several stages (look for a message,
/// then receive it) overrides what happens then through `advance`.
class request_operation : public progress::operation {
 public:
  /// Remembers the first error of any request.
  void fail(std::error_code why) noexcept {
    if (category_ != nullptr || !why) return;
    value_ = why.value();
    category_ = &why.category();
  }
  [[nodiscard]] bool failed() const noexcept { return category_ != nullptr; }
  [[nodiscard]] std::error_code error() const noexcept {
    return category_ == nullptr ? std::error_code() : std::error_code(value_, *category_);
  }

  /// Called with the source locked when every request is complete. Returns true if it has added
  /// more requests and goes on.
  using advance_function = bool (*)(request_operation*);

  const char* verb = "";                  ///< for reports
  std::uint64_t sequence = 0;             ///< of the communicator; 0: it does not count this one
  std::size_t bytes = 0;                  ///< what it moves; widens the spin time
  int rank = -1;                          ///< in its communicator, for reports
  communicator_state* live_on = nullptr;  ///< the communicator that counts it as live, if one does
  int peer = -1;                          ///< other rank, where there is one
  bool cancellable = false;               ///< the request added last is a receive
  bool stalls = true;                     ///< false: nobody waits for it, or who does warns by name
  MPI_Status status;                      ///< of the request added last
  MPI_Request left = MPI_REQUEST_NULL;    ///< what MPI left of the request: inactive, if persistent
  MPI_Message message = MPI_MESSAGE_NULL;  ///< what a matched probe found

 protected:
  explicit request_operation(function run) noexcept : operation(run) {}
  ~request_operation() = default;

  advance_function advance_ = nullptr;
  bool advances_failed_ = false;  // its arguments with those of other ranks: queued to be posted
  bool waits_for_turn_ = false;   // checked, and an operation started earlier is not: no requests

 private:
  friend class request_source;
  friend class cross_rank_check;
  friend class creation;
  friend class backend_completion;
  friend class poster;
  static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

  // An error_code in two parts: its default constructor is a call into the standard library.
  const std::error_category* category_ = nullptr;
  int value_ = 0;
  progress::pending_age age_;
  std::size_t slot_ = nowhere;  // in the list of requests, or of probes, of the one added last
  std::uint32_t parts_ = 0;     // requests and probes not yet complete
  bool is_probe_ = false;
  bool idle_ = false;       // a posted control receive: nobody waits for it
  bool announced_ = false;  // a control receive that somebody waits for: a bell rings
  bool cancelled_ = false;  // MPI_Cancel was called; a second call crashes Open MPI 4.1
};

/// What comes before an operation is posted: the comparison of its arguments between ranks
/// (`checks::cross_rank`), data that are not there yet, operations that were started earlier. An
/// interface, so that only who makes a source compiles it.
class argument_check {
 public:
  using post_function = void (*)(request_operation*);
  /// Among the values to agree on: this rank has no say, whatever the others have.
  static constexpr std::int64_t any_value = std::numeric_limits<std::int64_t>::min();
  virtual ~argument_check() = default;
  virtual int post(const std::array<std::int64_t, 4>& agreed, poster& to) = 0;
  virtual bool completed() = 0;
  [[nodiscard]] virtual bool done() const noexcept = 0;
  /// It is not posted before `open`, and with an error never; nor are collectives that are started
  /// after it. Before `post`; `open` with the source locked, and at most once.
  virtual void hold() noexcept = 0;
  virtual void open(std::error_code why) = 0;
  virtual void explain(failure_text& text) const = 0;
};

/// Something to be done at the next look, with the source locked: what was submitted since the last
/// one leaves then in one message.
class look_hook {
 public:
  look_hook(const look_hook&) = delete;
  look_hook& operator=(const look_hook&) = delete;
  /// Returns how many operations it has handed to the engine as complete.
  virtual std::size_t at_look() = 0;
  /// Now and then while something is pending, if it watches.
  virtual void at_tick(progress::engine::clock::time_point) {}
  /// For reports, if it watches: what somebody waits for here, a line for each as
  /// `"  rank 1: all_reduce 'loss', pending for 12 ms\n"`. With the source locked.
  virtual void list_waiting(std::string&, progress::engine::clock::time_point) {}

 protected:
  look_hook() noexcept {}
  virtual ~look_hook() = default;

 private:
  friend class request_source;
  look_hook* next_ = nullptr;
  bool waits_ = false;
};

/// The source of an engine that polls MPI. One per context, found with
/// `asio::use_service<request_source>(io)`.
///
/// Requests and their operations stand in parallel arrays; a completed entry is replaced by the
/// last one, so completing k of n costs O(k) beyond `MPI_Testsome` itself. Matched probes are a
/// second list, one `MPI_Improbe` each per look.
///
/// *Threads.* Everything that touches MPI or the lists happens under `guard`: the process-wide lock
/// at SERIALIZED, the source's own mutex at MULTIPLE, nothing below, where there is one thread.
class request_source : public asio::execution_context::service {
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
    explicit guard(request_source& source) : source_(source), owns_(source.acquire()) {}
    ~guard() { source_.release(owns_); }
    guard(const guard&) = delete;
    guard& operator=(const guard&) = delete;

   private:
    request_source& source_;
    bool owns_;
  };

  [[nodiscard]] progress::engine& engine() const noexcept { return engine_; }

  /// What stands in the way of calling MPI from this thread now; `errc{}` if nothing does.
  [[nodiscard]] errc usable() const noexcept;

  // With the guard held:
  /// Takes over a request of `op`.
  void add(MPI_Request request, request_operation& op);
  /// Looks for a message at every test; `op.status` describes it, `op.message` takes it if asked
  /// to.
  void add_probe(int source, int tag, MPI_Comm comm, probe_kind kind, request_operation& op);
  /// The next request of `op` is a control receive, which keeps neither the loop nor laps alive.
  void mark_idle(request_operation& op) noexcept { op.idle_ = true; }
  [[nodiscard]] static bool pending(const request_operation& op) noexcept { return op.parts_ != 0; }
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
    for (std::size_t slot = count_; slot-- != 0;) {
      request_operation& op = *operations_[slot];
      if (op.advance_ != stage || !give(op)) continue;
      --op.parts_;
      count_out(op);
      remove_request(slot);
    }
  }
  /// Whether a request that has just been made is complete, as a short send is. Null then.
  [[nodiscard]] static bool complete_already(MPI_Request& request) {
    int done = 0;
    return MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
  }
  /// Whether nobody waits for a control receive that is posted.
  void set_idle(request_operation& op, bool idle) noexcept;
  /// Calls `hook.at_look()` once, at the next look. That counts as pending until then; call
  /// `engine().started()` after the guard.
  void at_next_look(look_hook& hook) noexcept;
  /// Calls `hook.at_tick()` at the engine's ticks until it is forgotten.
  void watch(look_hook& hook) { watching_.push_back(&hook); }
  /// Neither at a look nor at a tick any more.
  void forget(look_hook& hook) noexcept;

  /// How long `op` has been pending, in words, for reports; takes the guard. Ages begin at the
  /// engine's first tick after the post, at most 50 ms later while the loop runs.
  [[nodiscard]] std::string age_of(const request_operation& op);

  /// Asks MPI to give up the request added last, a receive, or ends a probe, once; takes the guard.
  /// The operation completes through the loop with `operation_aborted`, or with its message if that
  /// came first; other requests of the operation are waited for.
  void cancel(request_operation& op);

  // poll_source and its options: called by the engine.
  bool begin_lap(progress::ready_queue& ready);
  std::size_t test(progress::ready_queue& ready);
  void end_lap() noexcept;
  [[nodiscard]] std::size_t pending() const noexcept {
    return pending_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return bytes_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool only_announced() {
    const guard hold(*this);
    return pending() == announced_.load(std::memory_order_relaxed);
  }
  progress::park_result park(progress::ready_queue& ready);
  void unpark();
  void leave();
  void abandon();
  void describe(std::string& text);
  void tick(progress::engine::clock::time_point now);

  /// Memory of communicators, reused and given back with the context. Takes the guard.
  [[nodiscard]] communicator_state* new_state();
  /// A comparison for `op`, which `post` will post after it.
  [[nodiscard]] COHORT_INLINE virtual std::unique_ptr<argument_check> make_check(
      communicator_state& comm, request_operation& op, argument_check::post_function post);
  /// With the guard held.
  void recycle(communicator_state* state) noexcept { free_states_.push_back(state); }

  /// Number of control receives posted.
  [[nodiscard]] std::size_t idle() const noexcept { return idle_.load(std::memory_order_relaxed); }

  /// The bell that wakes this engine, made at the first call.
  [[nodiscard]] progress::doorbell& bell();
  void ring(const progress::bell_address& whom, bool here) const noexcept {
    if (bell_) bell_->ring(whom, here);
  }
  /// Control messages are announced to this engine: a peer reads `flag`, which says whether the
  /// engine sleeps, or rings with every message. Called for each communicator that has a bell.
  void announce_through(std::atomic<std::uint32_t>* flag) { parked_flags_.push_back(flag); }
  void no_longer_through(std::atomic<std::uint32_t>* flag) noexcept {
    std::erase(parked_flags_, flag);
  }
  /// A control receive was posted on a communicator that has no bell: the engine never parks.
  void forbid_parking() noexcept { may_park_.store(false); }

 private:
  struct probe {
    int source;
    int tag;
    MPI_Comm comm;
    probe_kind kind;
  };
  static constexpr int window = 4096;  // requests in one MPI_Testsome

  [[nodiscard]] bool acquire();
  void release(bool owns) noexcept;
  inline void shutdown() override;  // the engine ends the operations; see engine::leave
  [[nodiscard]] static bool is_last_added(const request_operation& op, std::size_t slot) noexcept {
    return op.slot_ == slot && !op.is_probe_;
  }
  void took_request(request_operation& op, std::size_t slot, MPI_Status& status,
                    int error_of_request) noexcept;
  void took(request_operation& op, int error_of_request) noexcept;
  static int look_for(const probe& wanted, int& flag, request_operation& op);
  void finish(request_operation& op, progress::ready_queue& ready);
  inline virtual void make_room();  // virtual: rarely called and long
  [[nodiscard]] std::span<request_operation*> operations() const noexcept {
    return {operations_.get(), count_};
  }
  void remove_request(std::size_t slot) noexcept;
  void remove_probe(std::size_t slot) noexcept;
  std::size_t test_requests(progress::ready_queue& ready);
  std::size_t test_only_one(progress::ready_queue& ready);
  std::size_t test_probes(progress::ready_queue& ready);
  std::size_t run_hooks();
  void test_one_by_one(int first, int count, int& found);
  void fail_everything(std::error_code why, progress::ready_queue& ready);
  void count_in(const request_operation& op) noexcept;
  void count_out(const request_operation& op) noexcept;
  void count_announced(int by) noexcept {
    const std::size_t before = announced_.load(std::memory_order_relaxed);
    announced_.store(before + static_cast<std::size_t>(by), std::memory_order_relaxed);
  }
  static std::string line_about(const request_operation& op,
                                progress::engine::clock::time_point now);

  // Of the whole process: `single_thread` promises that there is one source.
  static inline std::atomic<int> sources_alive_{0};
  static inline std::atomic<int> promises_{0};
  void count_out_of_process() const noexcept;
  bool promised_one_thread_ = false;

  progress::engine& engine_;
  const mpi::thread_level level_;
  // For the lists, where MPI needs no lock. Recursive: a backend that goes with its communicator
  // may hold the last handle of another one.
  std::recursive_mutex own_mutex_;
  enum class locking : std::uint8_t { none, process_wide, own } locking_;
  bool lap_owns_ = false;  // written while the lock is held

  // Parallel arrays. There is always room for one more, so that add() cannot fail once MPI has a
  // request.
  std::unique_ptr<MPI_Request[]> requests_;
  std::unique_ptr<request_operation*[]> operations_;
  std::size_t count_ = 0;
  std::size_t room_ = 0;
  std::unique_ptr<int[]> indices_;  // one window's
  std::unique_ptr<MPI_Status[]> statuses_;
  std::vector<probe> probes_;
  std::vector<request_operation*> probing_;
  std::size_t next_window_ = 0;
  look_hook* hooks_ = nullptr;  // in order of registration
  look_hook* last_hook_ = nullptr;
  look_hook* last_due_ = nullptr;  // of those that this look calls
  std::vector<look_hook*> watching_;

  std::vector<std::unique_ptr<communicator_state>> states_;
  std::vector<communicator_state*> free_states_;

  std::atomic<std::size_t> pending_{0};  // requests and probes that somebody waits for
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::size_t> idle_{0};
  std::atomic<std::size_t> announced_{0};  // of those pending
  std::unique_ptr<progress::doorbell> bell_;
  std::vector<std::atomic<std::uint32_t>*>
      parked_flags_;  // touched outside laps only with the guard
  std::atomic<bool> may_park_{true};
  progress::stall_watch stalls_;
};

}  // namespace cohort::comm

// Brings the bodies: the source keeps the states of communicators.
