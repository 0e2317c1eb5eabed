// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file An operation that MPI works on, and the one place that asks MPI whether its requests are
/// complete: one `MPI_Testsome` over all of them. For the room `requests` see `source.hpp`.

#include <cohort/core/config.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/mpi/native.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/polled_source.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

namespace cohort::comm {

class communicator_state;
class poster;

/// What a probe does with the message it finds.
enum class probe_kind : std::uint8_t {
  look,      ///< leaves it in MPI's queue (`MPI_Iprobe`)
  take,      ///< takes it out, to be received by a handle (`MPI_Improbe`)
  elsewhere  ///< asks nobody: what its operation waits for comes another way, and ends it only here
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
  /// Inside a catch block: the code of what was thrown. What has none is for want of memory.
  void fail_as_thrown() noexcept {
    try {
      throw;
    } catch (const std::system_error& problem) {
      fail(problem.code());
    } catch (...) {
      fail(std::make_error_code(std::errc::not_enough_memory));
    }
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
  bool stalls = true;  ///< false: nobody waits for it, or the awaiter warns by name
  /// Nobody waits for it, ever: at the end of the context it stays with MPI, and so does this
  /// communicator.
  communicator_state* optional_on = nullptr;
  MPI_Status status;                    ///< of the request added last
  MPI_Request left = MPI_REQUEST_NULL;  ///< what MPI left of the request: inactive, if persistent
  MPI_Message message = MPI_MESSAGE_NULL;  ///< what a matched probe found

  /// Before a backend is given an operation whose handler may leave before its end.
  void enter_backend() noexcept { with_backend_.store(1, std::memory_order_relaxed); }
  /// Before that operation is completed, from any thread.
  void leave_backend() noexcept {
    if (with_backend_.load(std::memory_order_acquire) == 0) return;
    for (std::uint8_t here = 1; !with_backend_.compare_exchange_weak(here, 0);) here = 1;
  }
  /// While it lives, an operation that a backend has does not leave that. False: none has it.
  class stay_in_backend {
   public:
    explicit stay_in_backend(request_operation& op) noexcept : op_(op) {
      std::uint8_t here = 1;
      stays_ = op.with_backend_.compare_exchange_strong(here, 2);
    }
    ~stay_in_backend() {
      if (stays_) op_.with_backend_.store(1, std::memory_order_release);
    }
    stay_in_backend(const stay_in_backend&) = delete;
    stay_in_backend& operator=(const stay_in_backend&) = delete;
    explicit operator bool() const noexcept { return stays_; }

   private:
    request_operation& op_;
    bool stays_;
  };

 protected:
  explicit request_operation(function run) noexcept : operation(run) {}
  ~request_operation() = default;

  advance_function advance_ = nullptr;
  bool advances_failed_ = false;  // its arguments with those of other ranks: queued to be posted
  bool waits_for_turn_ = false;   // checked, and an operation started earlier is not: no requests

 private:
  friend class request_counts;
  friend class request_list;
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
  std::atomic<std::uint8_t> with_backend_{0};  // 1: it has the operation; 2: and may not let it go
};

/// What comes before an operation is posted: the comparison of its arguments between ranks
/// (`checks::cross_rank`), data that are not there yet, operations that were started earlier. An
/// interface, so that only files that make a source compile it.
class argument_check {
 public:
  using post_function = void (*)(request_operation*);
  /// Among the values to agree on: this rank has no say, whatever the others have.
  static constexpr std::int64_t any_value = std::numeric_limits<std::int64_t>::min();
  virtual ~argument_check() = default;
  virtual int post(const std::array<std::int64_t, 4>& agreed, poster& to) = 0;
  virtual bool completed() = 0;
  [[nodiscard]] virtual bool done() const noexcept = 0;
  /// Before `post`: the operation is not posted before `open`, and with an error never. While it
  /// is being posted: more of it follows before `open`. Collectives that are started after it are
  /// posted after that. `open` with the source locked.
  virtual void hold() noexcept = 0;
  virtual void open(std::error_code why) = 0;
  virtual void explain(failure_text& text) const = 0;
};

/// How much MPI works on for one context. Read by the engine; written with the guard of the source
/// held, so that no read-modify-write is needed.
class request_counts {
 public:
  request_counts(const request_counts&) = delete;
  request_counts& operator=(const request_counts&) = delete;

  /// Requests and probes that somebody waits for, and what else counts as that.
  [[nodiscard]] std::size_t pending() const noexcept { return value(pending_); }
  [[nodiscard]] static bool pending(const request_operation& op) noexcept { return op.parts_ != 0; }
  [[nodiscard]] std::size_t bytes() const noexcept { return value(bytes_); }
  /// Number of control receives posted.
  [[nodiscard]] std::size_t idle() const noexcept { return value(idle_); }
  /// Of those pending, control receives: a bell rings for them.
  [[nodiscard]] std::size_t announced() const noexcept { return value(announced_); }

  /// The next request of `op` is a control receive, which keeps neither the loop nor laps alive.
  void mark_idle(request_operation& op) noexcept { op.idle_ = true; }
  /// Whether nobody waits for a control receive that is posted.
  void set_idle(request_operation& op, bool idle) noexcept {
    if (op.idle_ == idle) return;
    if (op.parts_ != 0) {
      add_to(op.idle_ ? idle_ : pending_, -1);
      add_to(op.idle_ ? pending_ : idle_, 1);
      if (!idle) add_to(announced_, 1);
      if (op.announced_) add_to(announced_, -1);
    }
    op.idle_ = idle;
    op.announced_ = !idle;
  }

 protected:
  friend class look_hooks;
  request_counts() noexcept {}
  ~request_counts() = default;

  void count_in(request_operation& op) noexcept {
    add_to(op.idle_ ? idle_ : pending_, 1);
    if (op.announced_) add_to(announced_, 1);
    if (++op.parts_ == 1) add_to(bytes_, static_cast<std::ptrdiff_t>(op.bytes));
  }
  void count_out(request_operation& op) noexcept {
    add_to(op.idle_ ? idle_ : pending_, -1);
    if (op.announced_) add_to(announced_, -1);
    if (--op.parts_ == 0) add_to(bytes_, -static_cast<std::ptrdiff_t>(op.bytes));
  }
  void count_pending(std::ptrdiff_t by) noexcept { add_to(pending_, by); }
  /// Somebody waits for it from now on, but for no bell.
  void no_longer_idle(request_operation& op) noexcept {
    op.idle_ = false;
    op.age_ = {};  // how long it has been posted says nothing
    add_to(idle_, -1);
    add_to(pending_, 1);
  }
  void count_nothing() noexcept {
    for (auto* each : {&pending_, &bytes_, &idle_, &announced_}) {
      each->store(0, std::memory_order_relaxed);
    }
  }

 private:
  using counter = std::atomic<std::size_t>;
  [[nodiscard]] static std::size_t value(const counter& of) noexcept {
    return of.load(std::memory_order_relaxed);
  }
  static void add_to(counter& of, std::ptrdiff_t by) noexcept {
    of.store(value(of) + static_cast<std::size_t>(by), std::memory_order_relaxed);
  }

  counter pending_{0};
  counter bytes_{0};
  counter idle_{0};
  counter announced_{0};
};

/// What MPI works on for the operations of one context, and how much that is. The part of a request
/// source that posting and looking need; everything but the counts with its guard held.
///
/// Requests and their operations stand in parallel arrays; a completed entry is replaced by the
/// last one, so completing k of n costs O(k) beyond `MPI_Testsome` itself. Matched probes are a
/// second list, one `MPI_Improbe` each per look.
class request_list : public request_counts {
 public:
  /// Takes over a request of `op`.
  void add(MPI_Request request, request_operation& op);
  /// Looks for a message at every test; `op.status` describes it, `op.message` takes it if asked
  /// to.
  void add_probe(int source, int tag, MPI_Comm comm, probe_kind kind, request_operation& op);
  /// So that adding the next probe cannot fail.
  void make_room_for_probe();
  /// Whether a request that has just been made is complete, as a short send is. Null then.
  [[nodiscard]] static bool complete_already(MPI_Request& request) {
    int done = 0;
    return MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
  }

 protected:
  COHORT_INLINE request_list();
  ~request_list() = default;

  /// Asks MPI, once for all, and calls `finish(op)` for an operation all of whose requests are
  /// complete. Returns how many requests have been.
  template <class Finish>
  std::size_t test_requests(const Finish& finish);
  /// The same for probes; also calls it for an operation whose probe has found its message.
  template <class Finish>
  std::size_t test_probes(const Finish& finish);
  /// Asks MPI to give up the request added last, or ends a probe at the next look; once. False if
  /// there is nothing to be given up.
  bool give_up(request_operation& op);
  /// The same for all that can be; and from now on somebody waits for control receives too.
  void give_up_all();
  /// Leaves to MPI the requests of the operations that `give` says true of.
  template <class Give>
  void leave_to_mpi(Give give) noexcept {
    for (std::size_t slot = count_; slot-- != 0;) {
      request_operation& op = *operations_[slot];
      if (!give(op)) continue;
      count_out(op);
      remove_request(slot);
    }
  }
  /// Calls `end(op)` for each request and probe, and forgets them.
  template <class End>
  void drop_all(End end) {
    for (request_operation* op : operations()) end(*op);
    for (request_operation* op : probing_) end(*op);
    count_ = 0;
    probes_.clear();
    probing_.clear();
  }
  [[nodiscard]] std::span<request_operation*> operations() const noexcept {
    return {operations_.get(), count_};
  }
  [[nodiscard]] const std::vector<request_operation*>& probing() const noexcept { return probing_; }
  /// Notes the outcome of one request or probe of `op`.
  void took(request_operation& op, int error_of_request) noexcept;

 private:
  struct probe {
    int source;
    int tag;
    MPI_Comm comm;
    probe_kind kind;
  };
  static constexpr int window = 4096;  // requests in one MPI_Testsome

  [[nodiscard]] static bool is_last_added(const request_operation& op, std::size_t slot) noexcept {
    return op.slot_ == slot && !op.is_probe_;
  }
  inline virtual void make_room();  // virtual: rarely called and long
  void remove_request(std::size_t slot) noexcept;
  void remove_probe(std::size_t slot) noexcept;
  void took_request(request_operation& op, std::size_t slot, MPI_Status& status,
                    int error_of_request) noexcept;
  static void note_giving_up(request_operation& op) noexcept;
  void test_one_by_one(std::size_t first, std::size_t count, int& found);
  static int look_for(const probe& wanted, int& flag, request_operation& op);

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
};

}  // namespace cohort::comm

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/comm/requests/list.ipp>
#endif
