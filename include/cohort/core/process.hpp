// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Facts about this process that upper layers fill in and lower layers need at the end of a
/// program: the rank, the host, whether the program has failed, and what is still in flight.

#include <cohort/core/config.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace cohort::process {

/// The rank in MPI_COMM_WORLD, or -1 while it is not known. Prefixes every logged line.
inline std::atomic<int> rank{-1};

/// How each line begins that the library writes: "[cohort rank 3] ".
[[nodiscard]] std::string line_prefix();

/// The same for processes of one machine and container, and for no others: a hash of the boot id,
/// which tells machines of one name apart, and of the host's name, which tells containers apart.
/// Reads a file; ask once.
[[nodiscard]] std::uint64_t host_id();

/// The machine's name; "?" if it has none.
[[nodiscard]] std::string host_name();

/// Set when an exception left the event loop: finalizing MPI would then wait for ever for ranks
/// that still wait for this one, so the environment aborts the job instead.
inline std::atomic<bool> failed{false};

/// How many waits for other ranks have been given up: a rank is lost, or has not left in time.
/// MPI_Finalize, which waits for all ranks, then has a bound.
inline std::atomic<int> missing{0};

/// What is left of the time that a failing program may still wait for MPI: `bound` for everything
/// together, counted from the first call since failure_over().
[[nodiscard]] std::chrono::nanoseconds failure_time_left(std::chrono::nanoseconds bound) noexcept;

/// Called when handlers run again, so that the next exception finds its whole time; does nothing if
/// the program has failed for good.
void failure_over() noexcept;

/// Names operations that were given up although MPI still held their buffers: the environment then
/// ends the job with this text instead of finalizing MPI.
void add_leftovers(const std::string& text);
[[nodiscard]] std::string leftovers();

/// Writes to stderr before the job ends, and gives the launcher 0.1 s to pass it on: when a job is
/// aborted, MPICH's launcher drops what it has not forwarded yet.
void write_last_words(const std::string& text);

/// Ends the whole job, because going on would let MPI write into freed memory. Logs the text first.
/// Upper layers set the function, which ends the job by MPI, or by its launcher, while MPI runs; if
/// it returns, or without one, it is std::abort.
[[noreturn]] void end_job(const std::string& text);
inline std::atomic<void (*)()> end_job_function{nullptr};

/// What an exception says of itself.
[[nodiscard]] std::string message_of(const std::exception_ptr& why);

/// The last act of a program that `why` has ended. Writes one line with the rank, the message and
/// what is in flight, unless the failure has been told already; then ends the job with status 1,
/// without unwinding. Returns 1 where no MPI runs: no other rank waits for this process then.
[[nodiscard]] int give_up(const std::exception_ptr& why) noexcept;

/// What an engine tells the process about itself. Registered by add_hooks() and called under the
/// registry's mutex: never register, unregister or ask while holding the MPI lock.
class hooks {
 public:
  /// Appends one line, ended by a newline, per operation in flight.
  virtual void describe(std::string& text) = 0;
  /// Makes progress until nothing is in flight or the bound has passed; says whether nothing is.
  virtual bool drain(std::chrono::nanoseconds bound) = 0;
  /// MPI is about to be finalized: stop using it. Called once, before drain().
  virtual void leave() noexcept {}
  /// Makes some progress, if nothing else does so on this thread.
  virtual void look() {}

 protected:
  hooks() = default;
  ~hooks() = default;
  hooks(const hooks&) = default;
  hooks& operator=(const hooks&) = default;
};

void add_hooks(hooks* entry);
/// Does nothing if the entry is not registered. Waits for a call in progress on another thread; may
/// be called from inside a hook.
void remove_hooks(hooks* entry) noexcept;

/// The operations in flight of every engine, one line each; empty if there are none.
[[nodiscard]] std::string describe_in_flight();

/// Tells every engine, newest first, that MPI is about to end.
void leave_all() noexcept;

/// Drains every engine, newest first, all together within the bound. False if something is left.
bool drain_all(std::chrono::nanoseconds bound);

/// Makes some progress on every engine of this thread. For a caller that waits for something that
/// one of them may hold, while their loops do not run.
void look_at_all();

}  // namespace cohort::process

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/core/detail/process.ipp>
#endif
