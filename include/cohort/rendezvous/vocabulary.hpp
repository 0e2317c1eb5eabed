// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The words that a rendezvous and its pure parts share: steps, their errors, what is left.

#include <cohort/core/error.hpp>
#include <cohort/rendezvous/key.hpp>

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
}  // namespace cohort
