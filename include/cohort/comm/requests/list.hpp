// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The one place that asks MPI whether requests are complete: one `MPI_Testsome` over all of
/// them. For the room `requests` see `source.hpp`.

#include <cohort/comm/requests/operation.hpp>
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
  [[nodiscard]] bool has_probes() const noexcept { return !probes_.empty(); }
  [[nodiscard]] bool has_nothing() const noexcept { return count_ == 0 && probes_.empty(); }
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
  template <class Finish>
  std::size_t test_several(const Finish& finish);
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
