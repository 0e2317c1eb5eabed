// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The words of a rendezvous: steps, their errors, what is left, how it goes, options.

#include <cohort/core/error.hpp>
#include <cohort/rendezvous/key.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>

namespace cohort {

/// The number of a step. A step that has been cleaned up never comes back.
using step_id = std::int64_t;

/// A step was aborted on another rank, which this rank has asked for a value.
class step_aborted_error : public rank_error {
 public:
  step_aborted_error(int rank, std::error_code cause, const std::string& text)
      : rank_error(errc::aborted, {rank}, text), cause_(cause) {}

  /// The code it was aborted with there, if it had one whose category this program knows.
  [[nodiscard]] std::error_code cause() const noexcept { return cause_; }

 private:
  std::error_code cause_;
};

/// A value that nobody has received when a rendezvous closes, or a step is swept away.
struct leaked_value {
  step_id step = 0;
  owned_key key;
  std::size_t values = 0;  ///< under this key
  std::size_t bytes = 0;
};

/// A key with values or receives that wait on this rank.
struct waiting_key {
  owned_key key;
  std::size_t values = 0;
  std::size_t receives = 0;
  std::size_t bytes = 0;
};

/// How values have gone from this rank to others since the rendezvous was made.
struct rendezvous_statistics {
  std::uint64_t pushed = 0;   ///< before the destination asked for them
  std::uint64_t pulled = 0;   ///< in the answer to its request
  std::uint64_t granted = 0;  ///< large ones, from memory to memory
  std::uint64_t chunks = 0;   ///< messages of MPI that these took
};

namespace meeting {

struct step_state;
using step_ptr = std::shared_ptr<step_state>;

struct node_options {
  std::size_t push_limit = 4096;        ///< larger values are never pushed
  std::uint64_t credit = 1U << 20U;     ///< bytes pushed to one rank and not yet received there
  std::size_t inline_limit = 8192;      ///< larger values travel by offer and grant
  std::uint64_t largest = 1ULL << 40U;  ///< a larger offer is refused
  int tags = 32767;                     ///< transfers to this rank at a time, most
  bool single_use = false;
};

}  // namespace meeting

/// How a rendezvous behaves on one rank. The ranks may differ, but for `chunk`.
class rendezvous_options {
 public:
  rendezvous_options() noexcept {}  // user-provided: g++ 12, see tests/compilers/gcc12.cpp

  /// Values of at most so many bytes are pushed to their destination before it asks; 0: only
  /// empty ones.
  rendezvous_options& push_limit(std::size_t bytes) noexcept {
    node.push_limit = bytes;
    return *this;
  }
  /// Bytes pushed to one rank that it has not received yet; what exceeds them waits to be pulled.
  rendezvous_options& credit(std::uint64_t bytes) noexcept {
    node.credit = bytes;
    return *this;
  }
  /// Larger values travel by request and grant, straight from and to their memory.
  rendezvous_options& inline_limit(std::size_t bytes) noexcept {
    node.inline_limit = bytes;
    return *this;
  }
  /// No memory is made for a value larger than this; its receive ends with errc::count_too_large.
  rendezvous_options& largest_value(std::uint64_t bytes) noexcept {
    node.largest = bytes;
    return *this;
  }
  /// The most bytes in one MPI message. Equal on all ranks, otherwise everything ends with
  /// mismatch_error.
  rendezvous_options& chunk(std::uint64_t bytes) noexcept {
    chunk_bytes = bytes;
    return *this;
  }
  /// Large transfers to this rank at a time.
  rendezvous_options& transfers(int most) noexcept {
    node.tags = most;
    return *this;
  }
  /// A second send or receive of a key within a step is errc::duplicate_key.
  rendezvous_options& single_use(bool yes = true) noexcept {
    node.single_use = yes;
    return *this;
  }
  /// Steps that nobody holds or waits in and that were last used so long ago are cleaned up; zero:
  /// never.
  rendezvous_options& step_ttl(std::chrono::nanoseconds time) noexcept {
    ttl = time;
    return *this;
  }
  /// How long `close` and a destructor wait for the other ranks.
  rendezvous_options& leave_deadline(std::chrono::nanoseconds time) noexcept {
    leave_time = time;
    return *this;
  }
  /// Everything waits until `initialize`.
  rendezvous_options& deferred(bool yes = true) noexcept {
    is_deferred = yes;
    return *this;
  }

  meeting::node_options node;
  std::uint64_t chunk_bytes = 1U << 30U;
  std::chrono::nanoseconds ttl{0};
  std::chrono::nanoseconds leave_time = std::chrono::seconds(30);
  bool is_deferred = false;
};

}  // namespace cohort
