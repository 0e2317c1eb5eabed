// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a node tells its rank to do, and how it answers the rank's own calls.

#include <cohort/protocol/message.hpp>

#include <cstdint>
#include <memory>

namespace cohort::protocol {

/// The facts of a failure, shared by who holds them.
using verdict_ptr = std::shared_ptr<const verdict>;

/// A pending operation, as long as it is pending.
struct operation_ref {
  std::uint32_t slot = none;
  std::uint32_t turn = 0;
};

enum class submission_status : std::uint8_t {
  pending,
  refused,  ///< after leaving or joining: errc::not_accepting; took no number (protocol S2)
  failed,   ///< at once, with what others have been told already (protocol E3, L3)
};

/// What became of a submission, or of a join.
struct submission {
  submission_status status = submission_status::pending;
  operation_ref operation;
  name_index name = none;
  epoch number = 0;
  verdict_ptr why;
};

enum class action_kind : std::uint8_t {
  start,  ///< an elected operation: put it in the queue of what starts in log order (protocol X1)
  start_join,  ///< JOINED: the operation that finds the rank with the newest state (protocol J4)
  fail,        ///< an operation that was pending
  fail_join,   ///< a join that was pending (protocol L4)
  drain,       ///< a persistent group: make up starts, and end those that others lack (protocol H4)
  report,      ///< a stall report that was asked for
  end_set,     ///< all members have left this set, and all of it is decided (protocol D2)
  renumber,    ///< epochs of a name: `number` has been subtracted (protocol G1)
  close,       ///< everything is decided; the tree is only left to end (protocol L5)
};

/// One thing to do, in the order in which the log says. What it does not need is zero.
struct action {
  action_kind kind = action_kind::start;
  bool known = false;  ///< start: sizes are those of the exchange `reference` (protocol Z3)
  bool last = true;    ///< start: of its pack
  withdrawal_reason own_reason = withdrawal_reason::cancelled;
  bool withdrew = false;  ///< fail: this rank withdrew it, too, for `own_reason`
  std::uint32_t set = 0;
  name_index name = none;
  std::uint32_t made = none;    ///< start of a set_add: the number of the new set
  entry_index entry = none;     ///< start: valid until the actions are cleared
  std::uint32_t detail = none;  ///< fail: number of a verdict; report: of a report
  std::uint64_t token = 0;  ///< of the submission; 0: this rank has joined, contribute neutrally
  epoch number = 0;         ///< the epoch
  std::uint64_t log_count = 0;  ///< start: the same on all ranks; drain: most starts
  std::uint64_t count = 0;  ///< start: ranks that bring data; start_join: this rank's newest log
                            ///< count; drain: least starts
  std::uint64_t reference = 0;  ///< start: log count of the exchange of sizes that holds; 0: none
};

}  // namespace cohort::protocol
