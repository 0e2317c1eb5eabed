// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One rank of one negotiation: the protocol as a machine that takes events and bytes,
/// and gives bytes and actions.

#include <cohort/protocol/fusion_planner.hpp>
#include <cohort/protocol/group_table.hpp>
#include <cohort/protocol/message.hpp>
#include <cohort/protocol/outbox.hpp>
#include <cohort/protocol/readiness_table.hpp>
#include <cohort/protocol/replica.hpp>
#include <cohort/protocol/stall_inspector.hpp>
#include <cohort/protocol/tree.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::protocol {

struct inspector;

/// Numbers that the ranks of a negotiation must agree on, but for those marked "root". Capacities
/// bound memory; no choice of them breaks the protocol.
struct node_options {
  std::size_t cache_capacity = 4096;  ///< signatures with an id (protocol C1)
  std::size_t cache_keep =
      2048;  ///< of which a new generation keeps (protocol G1); less than capacity
  std::size_t name_capacity = 65536;  ///< names before a new generation (protocol P8)
  std::size_t firsts = 64;            ///< new names that are forwarded on first sight (protocol A2)
  std::size_t poison_capacity = 65536;  ///< failures that wait for the own submission (protocol E3)
  std::size_t in_flight = 256;  ///< root: elected operations that it has not finished (protocol R5)
  fusion_options fusion;        ///< root
  fusion_planner::plan plan;    ///< root; null: no frozen plan
  std::uint64_t query_timeout = 2'000'000'000;  ///< of a stall query, in the unit of `now`
  bool decides_when_asked = false;  ///< root: decisions wait for `decide`, so more share a pack
};

/// The name of an operation in which only the listed members of a set take part, which each of them
/// submits: the other ranks just apply it. Making a process set of these members takes two
/// (protocol D2): one when it is asked for, and when all earlier operations of the log are complete
/// here, another; when that starts, every member can enter a call of MPI that blocks until all
/// have. If the second is a set_add, the set uses the log that has elected it (protocol D1): at
/// that position it gets the next number, on every rank, member or not.
[[nodiscard]] inline std::string listed_name(const rank_set& members, std::string_view purpose) {
  return "\x01" + members.str() + "\x01" + std::string(purpose);
}

/// The name of a message from one rank to another: of these two the n-th of a name to be sent and
/// the n-th to be received belong together, whatever other pairs call theirs.
[[nodiscard]] inline std::string message_name(int source, int destination, std::string_view name) {
  return listed_name(
      {source, destination},
      std::to_string(source) + ">" + std::to_string(destination) + "\x01" + std::string(name));
}

/// The part of a name that its user has given.
[[nodiscard]] inline std::string_view own_name(std::string_view text) noexcept {
  if (text.empty() || text[0] != '\x01') return text;
  text.remove_prefix(text.find('\x01', 1) + 1);
  return text.substr(text.find('\x01') + 1);  // all of it where nothing is found
}

/// One rank of one negotiation: client, inner node and, on rank 0, root. It reads like the rules of
/// docs/design/protocol.md, one function for one rule.
///
/// *Use.* Call what has happened (`submit`, `receive`, `finished`, ...); then do what `actions`
/// says, in order, and `clear_actions`; then send what `take_message` gives, to each neighbour for
/// which no message is on its way. Time is an argument, in any unit that `query_timeout` shares;
/// `deadline` says when `expire` is due. Nothing here blocks, calls back, or knows the network.
///
/// *Errors.* `receive` throws protocol_error for bytes that no sound peer sends; the node cannot
/// be used after that. Not synchronised. Copying a node copies its state.
template <class Any = void>
class basic_node {
 public:
  /// The members of each process set are ranks of the tree. Throws error(errc::invalid_argument).
  basic_node(const tree& shape, std::vector<rank_set> sets, const node_options& options = {});

  // ---- this rank's own events ----

  /// A named operation. `token` is not zero and comes back in the action that ends it. `sizes` is
  /// what may differ per rank, for the kinds where that is so. `site` may be null. Starts of a
  /// persistent group are submissions, too, unless they have numbers: see `start_group`.
  submission submit(std::uint32_t set, std::string_view name, const signature& sig,
                    std::uint64_t token, std::span<const std::int64_t> sizes = {},
                    const call_site* site = nullptr);
  /// Cancellation, a deadline, wrong arguments: asks for the operation to fail everywhere. The
  /// awaiter goes on waiting for the action (protocol W2). False if it has been decided already.
  bool withdraw(operation_ref operation, withdrawal_reason reason, std::uint64_t now = 0);
  /// Keeps the number of a name that an operation under way has, until `let_go`.
  void hold(name_index name) noexcept { ++log_.names[name].held_by; }
  void let_go(name_index name) noexcept { --log_.names[name].held_by; }
  /// The action that ends an operation brings another token: its awaiter does not wait any longer.
  /// Nothing changes for one that is decided.
  void replace_token(operation_ref which, std::uint64_t token) noexcept {
    if (which.slot < operations_.size() && operations_[which.slot].turn == which.turn) {
      operations_[which.slot].token = token;
    }
  }
  /// Contributes neutral elements from now on, until all have joined.
  submission join(std::uint32_t set, std::uint64_t token);
  /// Submits nothing from now on, in no set (protocol L1). Once.
  /// The others learn `why`, of which no more than 1 KiB is told.
  void leave(departure how, std::string_view why = {});
  /// Submits nothing from now on in one set. Once all its members have left it and what they still
  /// want is done, it ends everywhere (protocol D2).
  void leave_set(std::uint32_t set, departure how, std::string_view why = {});
  /// Nobody decides: withdraws all that is pending and abandons (protocol W4). What is elected all
  /// the same still comes as `start`.
  void give_up();
  /// Starts a persistent group of set 0 without asking anybody: the number of the start, or nothing
  /// if it is refused (protocol H1, H3).
  std::optional<std::uint64_t> start_group(std::uint32_t set, std::string_view name);
  std::optional<std::uint64_t> start_group(name_index group);
  /// How often this rank has started it; the `detail` of a group_remove (protocol H5).
  [[nodiscard]] std::uint64_t group_starts(std::uint32_t set, std::string_view name) const {
    const name_index known = log_.names.find(set, name);
    return known == none ? 0 : groups_.starts(known);
  }
  /// Whether completions of persistent groups are to be held back (protocol H3).
  [[nodiscard]] bool holds_group_completions() const noexcept {
    return groups_.frozen && !groups_.drained;
  }
  /// Asks for a stall report. False after leaving, but for the root, which need not send.
  bool request_report(std::uint64_t now = 0);
  /// So many elected operations have ended on this rank (protocol R5).
  void finished(std::size_t operations);
  /// A data operation has failed here: the negotiation closes everywhere.
  void data_failed(std::string_view cause);
  /// Root, with `decides_when_asked`: decides what can be decided.
  void decide();
  /// Root: the timer of a frozen plan. Returns whether it held anything back (protocol R4).
  bool give_up_plan();
  /// Root: what is elected from now on is packed by `packing`, unless there is a frozen plan, and
  /// runs with `numbers` on all ranks, which come as `action_kind::adjust` (protocol R6). Nothing
  /// happens once the negotiation is closed. Costs as much as there are names.
  void adjust(std::vector<std::uint64_t> numbers, const fusion_options& packing);
  /// Root: the names that a frozen plan waits for, of packs of which some have come.
  [[nodiscard]] std::vector<std::string> plan_awaits() const {
    return planner_.has_plan() ? planner_.awaited() : std::vector<std::string>();
  }

  /// Which of the ranks that have left a set was the first to say why, and what it has said: "rank
  /// 0: cannot open weights.bin (train.cpp:41)". Empty: none has (protocol L7).
  [[nodiscard]] std::string reason_for_leaving(std::uint32_t set) const {
    const verdict_ptr why = lost(set);
    return why->text.empty() ? "" : "rank " + std::to_string(why->rank) + ": " + why->text;
  }

  // ---- the neighbours ----

  /// A message from the parent or a child.
  void receive(int from, std::span<const std::byte> message, std::uint64_t now = 0);
  /// Whether there may be something to send to a neighbour.
  [[nodiscard]] bool has_message(int to) const noexcept;
  /// Appends the message for a neighbour to `out`; false if there is none.
  bool take_message(int to, std::vector<std::byte>& out);
  /// Whether `take_message` has given all of the log for a child.
  [[nodiscard]] bool has_log(int child) const noexcept {
    const int source = tree_.source_of(child);
    return source >= 0 && down_.has_log(source);
  }
  /// Whether this rank has sent and received all: its communicator can be freed (protocol L6).
  [[nodiscard]] bool released() const noexcept;

  // ---- time ----

  /// When `expire` is due, or nothing.
  [[nodiscard]] std::optional<std::uint64_t> deadline() const noexcept;
  void expire(std::uint64_t now);

  // ---- what is to be done ----

  [[nodiscard]] std::span<const action> actions() const noexcept { return actions_; }
  [[nodiscard]] const verdict_ptr& verdict_of(const action& one) const {
    return verdicts_[one.detail];
  }
  [[nodiscard]] const stall_report& report_of(const action& one) const {
    return reports_[one.detail];
  }
  [[nodiscard]] const adjustment& adjustment_of(const action& one) const {
    return adjustments_[one.detail];
  }
  [[nodiscard]] const entry_record& entry(entry_index index) const {
    return log_.names.entry(index);
  }
  [[nodiscard]] const name_record& name(name_index index) const { return log_.names[index]; }
  void clear_actions();

  // ---- state, for reports ----

  [[nodiscard]] const tree& shape() const noexcept { return tree_; }
  /// Sets are numbered in the order in which the log has made them, after those that the node was
  /// made with. A number is not used again; a set that has ended keeps a few hundred bytes.
  [[nodiscard]] const set_in_tree& set(std::uint32_t number) const { return sets_[number]; }
  [[nodiscard]] std::size_t set_count() const noexcept { return sets_.size(); }
  [[nodiscard]] const replica& log() const noexcept { return log_; }
  /// Operations of this rank that are not decided.
  [[nodiscard]] std::size_t pending() const noexcept { return pending_; }
  /// Called after each log item, for traces; null by default.
  using observer = void (*)(void* context, const basic_node& self, part item, name_index name,
                            epoch number, const verdict* why);
  void observe(observer function, void* context) noexcept {
    observer_ = function;
    observer_context_ = context;
  }

 private:
  friend struct inspector;
  struct up_visitor;
  struct down_visitor;

  struct operation {
    name_index name = none;
    epoch number = 0;
    entry_index entry = none;
    std::uint32_t turn = 0;  // how often the slot has been used
    std::uint64_t token = 0;
    bool withdrawn = false;
    withdrawal_reason reason = withdrawal_reason::cancelled;
    std::vector<std::int64_t> sizes;
  };
  struct join_state {
    bool active = false;  // from join() until JOINED
    bool failed = false;  // protocol L4
    std::uint64_t token = 0;
    std::uint64_t took = 0;  // log count of the last operation to which this rank brought data
  };
  using key = std::pair<name_index, epoch>;

  // client
  [[nodiscard]] bool refuses(std::uint32_t set) const;
  [[nodiscard]] bool has_group(std::uint32_t set) const;
  // Whether a group's starts have numbers, and are in no log. [protocol H1]
  [[nodiscard]] bool counts_starts(name_index group) const { return log_.names[group].set == 0; }
  void announce_own(operation& one);
  void send_leave(std::uint32_t set = none);
  void drop_poison(std::uint32_t set);
  void send_counts();
  void free_operation(std::uint32_t slot);
  void fail_operation(std::uint32_t slot, const verdict_ptr& why);
  void fail_everything(const verdict_ptr& why);
  [[nodiscard]] verdict_ptr lost(std::uint32_t set) const;
  bool note_reason(const waiting_leave& one);
  void add_reason(std::uint32_t set, verdict& why) const;
  template <class Visit>
  void for_each_operation(Visit visit);  // visit(slot), which may free it

  // aggregation
  void announce(int source, name_index name, epoch number, entry_index entry, bool partial,
                const rank_set* who, std::uint64_t sizes);
  void advance(record_index index);
  void contradict(name_index name, epoch number, std::vector<side> sides);
  [[nodiscard]] std::vector<side> sides_of(const record& one) const;
  void on_withdrawal(name_index name, epoch number, int rank, withdrawal_reason reason);
  void on_join(int source, std::uint32_t set);
  [[nodiscard]] bool all_joined(std::uint32_t set) const noexcept;
  void on_leave(const waiting_leave& one);
  void on_counts(int source, std::vector<start_range> counts);
  void on_fault(const data_fault& cause);
  void on_end(int source);
  void end();
  [[nodiscard]] rank_set left_of(std::uint32_t set) const;
  void check_listed(name_index name, epoch number);
  void drop_record(name_index name, epoch number);

  // stall query
  void want_report(int source, std::uint64_t now);
  void start_query(std::uint64_t number, std::uint64_t budget, std::uint64_t now);
  void on_answer(int source, const stall_answer& answer);
  void end_query_if_answered();
  void decide_overdue();
  [[nodiscard]] stall_answer answer() const;
  void deliver_report(const stall_answer& from);

  // election
  void pump();
  bool elect();
  bool end_set();
  void elect_pack();
  [[nodiscard]] bool gather_ids();
  [[nodiscard]] const std::vector<elected>& gather_elected();
  void promote(name_index name);
  [[nodiscard]] wire::writer new_item();
  void apply_items();
  template <class T>
  void emit(part tag, const T& value);
  void emit_number(part tag, std::uint64_t number);
  void emit_failure(name_index name, epoch number, verdict why);

  // the log
  void apply_elected(entry_index entry, bool define, bool known, std::uint64_t count, bool last);
  void apply_failed(name_index name, epoch number, verdict_ptr why);
  void apply_joined(std::uint32_t set);
  std::uint32_t add_set(rank_set members);
  void apply_set_ended(std::uint32_t set);
  void apply_generation(std::size_t keep);
  void purge_names();
  void apply_left(const waiting_leave& one);
  void apply_drain(const std::vector<start_range>& counts);
  void apply_adjusted(adjustment item);
  void apply_close(const closing& item);
  void observed(part item, name_index name = none, epoch number = 0, const verdict* why = nullptr);

  // names in messages
  [[nodiscard]] name_index intern_name(std::uint32_t set, std::string_view text);
  [[nodiscard]] const set_in_tree& members_of(name_index name) const noexcept {
    const name_record& record = log_.names[name];
    return record.listed ? *record.listed : sets_[record.set];
  }
  [[nodiscard]] name_index resolve_name(const wire_name& name);
  [[nodiscard]] entry_index resolve_entry(const wire_entry& entry);
  [[nodiscard]] waiting_leave resolve_leave(const leaving& one);
  [[nodiscard]] std::vector<start_range> resolve_counts(const std::vector<start_count>& counts);
  void require_set(std::uint64_t set) const;
  [[nodiscard]] static std::uint64_t bit(int source) noexcept {
    return std::uint64_t{1} << static_cast<unsigned>(source);
  }
  [[noreturn]] void out_of_place(const std::string& text) const;

  tree tree_;
  std::vector<set_in_tree> sets_;
  node_options options_;
  replica log_;

  // client
  std::vector<operation> operations_;
  std::vector<std::uint32_t> free_operations_;
  std::vector<std::size_t> pending_in_set_;
  std::size_t pending_ = 0;
  std::map<key, verdict_ptr> poison_;
  std::vector<join_state> joins_;  // per set
  struct own_leave {
    departure how;
    std::string why;
  };
  std::optional<own_leave> leaving_;
  std::vector<std::optional<own_leave>> left_sets_;  // per set: left alone
  struct given_reason {
    std::uint32_t set;  // or none
    int rank;
    std::string why;
  };
  std::vector<given_reason> reasons_;  // for leaving, in the order in which they were given
  bool report_wanted_ = false;
  group_table groups_;
  verdict_ptr broken_;  // the negotiation has closed by a fault

  // inner node
  readiness_table table_;
  outbox up_;
  downstream down_;
  std::size_t first_sights_ = 0;  // records forwarded on first sight that are not complete
  std::uint64_t ended_ = 0;       // children that have ended
  std::uint64_t report_for_ = 0;  // sources that wait for a stall report
  bool asked_up_ = false;         // S has been sent, P has not come
  stall_inspector query_;

  // root
  rank_set left_;
  std::map<std::uint32_t, rank_set> leavers_;  // of sets that some have left alone, until they end
  std::map<key, rank_set> promised_;  // operations of listed members that leavers want completed
  std::size_t in_flight_ = 0;
  std::uint64_t arrivals_ = 0;
  bool cache_full_ = false;
  std::uint64_t queries_ = 0;
  std::vector<std::pair<key, int>> overdue_;
  std::vector<ready_queue::item> doomed_;
  fusion_planner planner_;
  std::vector<record_index> pack_;
  std::vector<std::uint32_t> ids_;  // of the pack
  std::vector<elected> chosen_;
  std::uint64_t now_ = 0;
  std::deque<std::vector<std::byte>> waiting_items_;
  std::vector<std::byte> item_;
  bool applying_ = false;

  std::vector<action> actions_;
  std::vector<verdict_ptr> verdicts_;
  std::vector<stall_report> reports_;
  std::vector<adjustment> adjustments_;
  observer observer_ = nullptr;
  void* observer_context_ = nullptr;
};
using node = basic_node<>;

}  // namespace cohort::protocol

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/protocol/node/aggregation.ipp>
#include <cohort/protocol/node/client.ipp>
#include <cohort/protocol/node/election.ipp>
#include <cohort/protocol/node/log.ipp>
#include <cohort/protocol/node/receive.ipp>
#include <cohort/protocol/node/stall.ipp>
#endif
