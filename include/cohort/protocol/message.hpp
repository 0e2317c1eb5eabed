// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the ranks of a negotiation tell each other: facts on the way up, decisions on the way
/// down. And what a node tells its rank to do, and how it answers the rank's own calls.

#include <cohort/core/error.hpp>
#include <cohort/core/ranks.hpp>
#include <cohort/protocol/signature.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::protocol {

/// What is wrong with a message; the category's name is "cohort.protocol".
enum class fault {
  malformed = 1,  ///< the bytes do not decode
  wrong_version,  ///< the sender is another version of cohort
  out_of_place,   ///< a message that its sender cannot have sent, or not now
};

const std::error_category& protocol_category() noexcept;

/// Thrown by what receives messages: the peer is broken, and the negotiation with it. It never
/// happens between ranks of one version over a transport that keeps its promises.
class protocol_error : public error {
 public:
  protocol_error(fault code, const std::string& text)
      : error(std::error_code(static_cast<int>(code), protocol_category()), text) {}
};

/// Why an operation ended without a result.
enum class failure_kind : std::uint8_t {
  mismatch,   ///< the signatures differ
  withdrawn,  ///< a rank took it back: cancellation, deadline, wrong arguments
  joined,     ///< it needs a rank that has joined
  peer_lost,  ///< it needs a rank that has left
  data,       ///< a data operation has failed on some rank; the negotiation is closed
};
inline constexpr std::uint8_t failure_kind_count = 5;

/// Why a rank withdrew.
enum class withdrawal_reason : std::uint8_t {
  cancelled,
  deadline,     ///< the root asks who is missing before it decides (protocol W3)
  duplicate,    ///< strict mode: the name was in use (protocol S3)
  invalid,      ///< wrong arguments on that rank alone (protocol S3)
  no_decision,  ///< it has given up waiting for any (protocol W4)
};
inline constexpr std::uint8_t withdrawal_reason_count = 5;

/// How a rank leaves.
enum class departure : std::uint8_t { drained, abandoned };

/// One side of a contradiction: the ranks known to have submitted this signature.
struct side {
  signature sig;
  rank_set ranks;
  call_site site;  ///< of one of them; for a cached signature, where one rank has used it before
};

/// Why an operation failed, with the facts that its awaiters are told. Equal on all ranks, but for
/// `own` and what peer_lost and data derive from each rank's log.
struct verdict {
  failure_kind kind = failure_kind::mismatch;
  std::vector<side> sides;  ///< mismatch
  int rank = -1;            ///< withdrawn: who was first; data: where; peer_lost: who has said why
  withdrawal_reason reason = withdrawal_reason::cancelled;
  bool asked = false;  ///< withdrawn by deadline: the stall query has filled what follows
  rank_set ready;
  rank_set missing;
  rank_set silent;   ///< did not answer the query
  rank_set unknown;  ///< below a silent rank
  rank_set ranks;    ///< joined, peer_lost: who
  std::string text;  ///< data: the cause; peer_lost: why that rank has left
};

/// A name in a message: by the id of a cached signature of it, or in full.
struct wire_name {
  std::uint32_t id = none;
  std::uint32_t set = 0;
  std::string_view text;
};

/// A name with a signature: by its id, or in full.
struct wire_entry {
  std::uint32_t id = none;
  std::uint32_t set = 0;
  std::string_view text;
  signature sig;
  call_site site;
};

struct wire_operation {
  wire_name name;
  epoch number = 0;
};

/// A: the subtree of the sender is ready for an operation, or (partial) some of it are.
struct announcement {
  wire_entry entry;
  bool implied =
      false;  ///< the epoch follows the last complete one of this name on this edge (protocol T2)
  epoch number = 0;
  bool partial = false;
  bool whole = true;  ///< every member in the subtree brings data; else those in `who` do
  rank_set who;
  std::uint64_t sizes = 0;  ///< log count of the exchange whose sizes still hold; 0: none
};

/// K: two signatures have met.
struct contradiction {
  wire_operation operation;
  std::vector<side> sides;
};

/// W: a rank takes an operation back.
struct withdrawal {
  wire_operation operation;
  int rank = 0;
  withdrawal_reason reason = withdrawal_reason::cancelled;
};

using cohort::longest_reason;

/// V, and L in the log: ranks submit nothing any more, in no set or in one.
struct leaving {
  rank_set ranks;
  departure how = departure::drained;
  std::vector<wire_operation> pending;  ///< what they still want completed
  std::vector<std::uint32_t> stuck;     ///< sets in which their join has failed (protocol L4)
  std::uint32_t set = none;             ///< the only one that they leave; none: the negotiation
  std::string why{};                    ///< as the program has said it; mostly empty
};

/// N, and D in the log: how often each persistent group has been started.
struct start_count {
  wire_name group;
  std::uint64_t least = 0;
  std::uint64_t most = 0;
};

/// A row of the answer to a stall query.
struct stall_row {
  wire_operation operation;
  side ready;
};

/// R: the answer to a stall query; and P, the report.
struct stall_answer {
  std::uint64_t number = 0;      ///< of the query
  std::uint64_t generation = 0;  ///< in which the epochs are numbered
  std::vector<stall_row> rows;
  std::vector<std::pair<std::uint32_t, rank_set>> joined;
  rank_set silent;
  rank_set unknown;
};

/// B, and C in the log.
struct data_fault {
  int rank = 0;
  std::uint64_t log_count = 0;
  std::string text;
};

/// One operation of an X.
struct elected {
  wire_entry entry;
  bool define = false;  ///< it gets the next id (protocol C1)
  bool known = false;   ///< its sizes are those of its entry's reference (protocol Z3)
  bool whole = true;    ///< every member brings data; else `contributors` do
  std::uint64_t contributors = 0;
};

/// F.
struct failed {
  wire_operation operation;
  verdict why;
};

/// O: numbers that hold from this position of the log on. What they mean the protocol does not
/// know.
struct adjustment {
  std::vector<std::uint64_t> numbers;
};

/// C.
struct closing {
  bool by_fault = false;
  data_fault cause;
};

// ---- implementation --------------------------------------------------------------------------

namespace detail {

class protocol_category_type final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "cohort.protocol"; }
  [[nodiscard]] std::string message(int value) const override {
    switch (static_cast<fault>(value)) {
      case fault::malformed:
        return "a control message does not decode";
      case fault::wrong_version:
        return "a control message of another version of cohort";
      case fault::out_of_place:
        return "a control message that its sender cannot have sent";
    }
    return "unknown fault of the protocol";
  }
};

}  // namespace detail

inline const std::error_category& protocol_category() noexcept {
  static const detail::protocol_category_type category;
  return category;
}

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
  adjust,      ///< what is started after it works with other numbers (protocol R6)
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
  std::uint32_t detail = none;  ///< number of a verdict, a report, or an adjustment
  std::uint64_t token = 0;  ///< of the submission; 0: this rank has joined, contribute neutrally
  epoch number = 0;         ///< the epoch
  std::uint64_t log_count = 0;  ///< start: the same on all ranks; drain: most starts
  std::uint64_t count = 0;  ///< start: ranks that bring data; start_join: this rank's newest log
                            ///< count; drain: least starts
  std::uint64_t reference = 0;  ///< start: log count of the exchange of sizes that holds; 0: none
};

}  // namespace cohort::protocol
