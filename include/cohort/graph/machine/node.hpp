// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// One rank in one scope: the protocol of the task graph as a machine.

#include <cohort/graph/machine/action.hpp>
#include <cohort/graph/machine/definition_store.hpp>
#include <cohort/graph/machine/names.hpp>
#include <cohort/graph/machine/node_parts.hpp>
#include <cohort/graph/machine/ready_queue.hpp>
#include <cohort/graph/machine/record_table.hpp>
#include <cohort/graph/machine/site.hpp>
#include <cohort/graph/machine/stall.hpp>
#include <cohort/graph/machine/wave.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

template <class Any>
class basic_endpoint;

/// One rank in one scope. It reads like the rules of docs/design/graph.md, one function for one
/// rule.
///
/// *Use.* Call what has happened; then do what `actions` says, in order, and `clear_actions`; then
/// send what the endpoint's `take_message` gives. Any call may add actions, also to other nodes of
/// the endpoint, which share its tags. Nothing here blocks, calls back, or knows time.
///
/// A producer is idle while it has begun an await that has not ended, or waits for the end of the
/// window. With `resume` or `window_ended` it counts as busy again at once, so a caller may resume
/// its coroutine later.
template <class Any = void>
class basic_node {
 public:
  /// Opens the scope on this rank; producer 0 is there from the beginning. Handles what was sent
  /// to it before (graph O1), so it may have actions.
  basic_node(basic_endpoint<Any>& owner, scope_id id, const node_options& options,
             node_memory memory = {});
  basic_node(const basic_node&) = delete;
  basic_node& operator=(const basic_node&) = delete;
  ~basic_node();

  // ---- names ----
  /// The number of a family of that name on this rank; the first naming of the window is told
  /// (graph K3).
  std::uint32_t family(const family_facts& facts);
  /// Which window it is: names of an earlier one are stale (graph K4).
  [[nodiscard]] std::uint32_t window() const noexcept { return window_; }
  /// "factor(3)".
  [[nodiscard]] std::string text_of(const task_name& name) const;
  [[nodiscard]] std::string text_of(task_index which) const { return records_.text_of(which); }
  [[nodiscard]] const key& key_of(task_index which) const noexcept { return records_[which].what; }
  /// What a task that this rank knows does: as its home has decided, elsewhere as it was spawned
  /// here. Null if nobody has told. Its edges lead to other tasks.
  [[nodiscard]] const stored_definition* definition_of(task_index which) const noexcept {
    const index at = records_[which].definition;
    return at == none ? nullptr : &definitions_[at];
  }
  /// Makes a record if there is none.
  [[nodiscard]] task_index record_of(const task_name& task) { return records_.make(task); }
  [[nodiscard]] const scope_id& id() const noexcept { return id_; }
  [[nodiscard]] const node_options& options() const noexcept { return options_; }
  /// For ages in reports: any unit, any zero.
  void set_time(std::uint32_t now) noexcept { records_.set_time(now); }

  // ---- the program of this rank ----
  spawn_result spawn(const task_name& task, const definition_view& what, spawn_site site);
  /// Its home puts the value of a source; elsewhere refused.
  /// The hash is as by `note_hash`, if the value is that of the task.
  spawn_result put(const task_name& task, content_ptr value, spawn_site site,
                   const value_hash* hash = nullptr);
  /// The end of a handle of an earlier window, which its caller has found (graph K4).
  [[nodiscard]] content_ptr stale(const task_name& task, std::uint32_t named_in,
                                  spawn_site site) const;
  /// A spawn that its caller refuses: for a stale dependency, say. The report has it (graph S5).
  spawn_result refuse(const task_name& task, errc code, const std::string& why, spawn_site site);
  await_start await(producer who, const task_name& task, bool takes, spawn_site site);
  /// The await is not continued: no `resume` follows (graph C4). Its claim stands.
  void withdraw(await_number which);
  [[nodiscard]] producer fork();
  void end(producer who);  ///< it will not do anything any more
  /// The producer waits for the end of the window. `window_ended` tells when all ranks' have.
  void end_window(producer who, window_end how);
  /// An empty text, a code of 0 and a rank below 0 are filled in.
  void cancel(failure cause);

  // ---- the scheduler of this rank ----
  /// Takes the task that is to run next; nothing if none is ready.
  [[nodiscard]] std::optional<running_task> start_next() {
    if (ready_.empty()) return std::nullopt;
    return start_ready(ready_.take());
  }
  /// Of those whose functions are wanted. The others wait for `start_next`; each is looked at once.
  template <class Predicate>
  [[nodiscard]] std::optional<running_task> start_next_if(Predicate is_wanted) {
    const auto next = ready_.take_if(
        [&](index task) { return is_wanted(definitions_[records_[task].definition].function); });
    if (!next) return std::nullopt;
    return start_ready(*next);
  }
  [[nodiscard]] bool has_ready() const noexcept { return !ready_.empty(); }
  void ended(task_index which, content_ptr what);
  /// What `ended` gets for a task that has thrown: all facts but those of the exception.
  [[nodiscard]] failure failure_of(task_index which, std::string_view what,
                                   std::vector<std::byte> exception = {}) const;

  /// Of a task that is running here: the hash that its value will have.
  void note_hash(task_index which, const value_hash& hash) { hashes_[which] = hash; }
  /// That of a value, or of a task that is running here. Null if there is none.
  [[nodiscard]] const value_hash* noted_hash(task_index which) const {
    const auto at = hashes_.find(which);
    return at == hashes_.end() ? nullptr : &at->second;
  }

  // ---- actions ----
  [[nodiscard]] std::span<action> actions() noexcept { return actions_; }
  void clear_actions() { actions_.clear(); }
  [[nodiscard]] const window_report& report() const noexcept {
    return report_;
  }  ///< of the last window
  [[nodiscard]] const std::optional<failure>& cause() const noexcept {
    return cause_;
  }  ///< of the cancellation
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  /// Of a node that has closed: for another one. Then it is only destroyed.
  [[nodiscard]] node_memory leave_memory() noexcept;

  // ---- timers: what it would do only when idle, it may do before ----
  /// For want_delay (graph W1) and announce_delay (graph A2).
  [[nodiscard]] bool has_wants() const noexcept { return unsent_count_ != 0; }
  [[nodiscard]] bool has_announcements() const noexcept { return !fresh_.empty(); }
  /// Another rank wants a task that nobody has spawned, as far as is known here, and there is an
  /// announcement that was not compared (graph A3).
  [[nodiscard]] bool has_comparisons() const noexcept {
    return compare_count_ != 0 && unknown_count_ != 0;
  }
  /// A patient node could contribute to the wave, which would find only that something waits in
  /// vain (graph T3).
  [[nodiscard]] bool has_contribution() const noexcept { return is_patient() && can_contribute(); }
  void flush_wants();
  void flush_announcements();
  void flush_comparisons();
  void flush_contribution();

  // ---- stall reports (graph Q1) ----
  /// Asks the homes of all that waits here, and of these. One that is under way is given up.
  void start_report(std::span<const task_index> also = {});
  /// Whether all that were asked have answered.
  [[nodiscard]] bool has_report() const noexcept { return asked_.empty(); }
  /// What has been answered; homes that have not are silent.
  [[nodiscard]] stall_report report_so_far() const;
  [[nodiscard]] stall_report take_report();  ///< the same, and it is over

 private:
  friend class basic_endpoint<Any>;
  friend struct inspector;
  using index = std::uint32_t;

  struct alone {};
  /// One that its endpoint does not know yet.
  basic_node(alone, basic_endpoint<Any>& owner, scope_id id, const node_options& options,
             node_memory memory);

  // front: names, spawns and their refusals
  [[nodiscard]] index resolve(index task, const definition_view& what, spawn_site site, bool here);
  spawn_result refuse_elsewhere(const task_name& task, spawn_site site);
  [[nodiscard]] std::string wrong_use(const stored_definition& what);
  spawn_result spawn_again(index task, index made, const content_ptr& value);
  [[nodiscard]] content_ptr refused_by_end() const;

  // announcer
  void announce(index task);
  [[nodiscard]] digest128 hash_of(index task) const;
  void send_list(int home);
  void on_digest(int from, const digest_message& one);
  void on_diff(int from);
  void on_list(int from, const list_message& all);

  // home: decide, run
  void keep_definition(record& one, index made);
  [[nodiscard]] bool are_equal(const stored_definition& one,
                               const stored_definition& other) const noexcept;
  void declare(index task, index made, int from, const content_ptr& value);
  void note_declaration(index task, int rank, index definition);
  [[nodiscard]] bool has_diverged(index task) const;
  [[nodiscard]] index own_definition(index task) const;
  void start(record& one, index task);
  [[nodiscard]] content* take_present(stored_definition& what);
  void link(record& value, record& task, edge& each, index at);
  void claim_inputs(record& task, stored_definition& what, index first);
  /// `by_its_value`: what it takes has just been made, or has come.
  void try_ready(record& one, index task, bool by_its_value = false);
  void hand_over_inputs(const record& task);
  running_task start_ready(index task);
  void finish(index task, content_ptr what);
  [[nodiscard]] bool set_value(index task, const content_ptr& what);
  void serve(const record& one, index task);
  void note_failure(const key& task, const failure& why);
  void wake(index value, const content_ptr& what);
  void wake_edge(index at, const content_ptr& what);

  // awaits and producers
  void check_producer(producer who) const;
  [[nodiscard]] index new_await(producer who, index value, bool takes, spawn_site site);
  void free_await(index slot);
  [[nodiscard]] await_number number_of(index slot) const noexcept;
  [[nodiscard]] key key_of_await(index slot) const noexcept;
  template <class Visit>
  void for_each_await(index value, Visit visit) const;
  void end_await(index slot, content_ptr what, bool may_move);
  void fetched(index slot, const content_ptr& what);
  void end_awaits(index value, const content_ptr& what);

  // values: want, give, push
  [[nodiscard]] peer& peer_of(index value, int rank);
  void need(index value);
  void note_unknown(index value);
  void known_now(record& value);
  void want(index value);
  void forget_want(index value);
  void send_wants_of(index value);
  void send_want(index value);
  void send_claim(index value, index who);
  void on_want(int from, const want_message& one);
  void give(index value, int to);
  void push(index value, int to, index task);
  void consumer(index value, index task, use_kind use);
  [[nodiscard]] content_ptr why_it_stays(index value, int to) const;
  void send_value(index value, int to, bool pushed);
  void use_pushed(index value);
  [[nodiscard]] std::optional<value_hash> hash_to_send(index value) const;
  void on_val(int from, value_message one);
  void on_credit(int from, const credit_message& one);
  void arrive(index value, content_ptr what);

  // large values
  void offer(index value, int to);
  void ask_tag(index value, std::size_t size);
  void on_offer(int from, const offer_message& one);
  void on_grant(int from, const grant_message& one);
  void granted(index value, int from, int tag, std::size_t size);
  void bulk(int from, index value, std::vector<std::byte> bytes);
  [[nodiscard]] bool has_open_offers(index value) const;

  // take
  [[nodiscard]] index keep_taker(const taker& one);
  [[nodiscard]] index taker_of_edge(index at);
  [[nodiscard]] index taker_of_task(index task);
  [[nodiscard]] index taker_of_await(index slot);
  [[nodiscard]] index taker_of(const told_taker& one);
  [[nodiscard]] told_taker told(index one) const;
  void ask_claim(index value, index who);
  void claim(index value, index who);
  void confirm(index value, index who);
  [[nodiscard]] bool has_claim(index slot) const;
  void on_taken(int from, const taken_message& one);
  void end_late(index value);
  void hand_over(index value);
  void forget(index value);
  void on_release(int from, const release_message& one);
  void refuse_late(index value, int to);
  template <class Visit>
  void for_each_waiter(index value, Visit visit) const;  // visit(task)

  // cancellation and loss
  void cancel_scope(failure cause, bool tell, bool once_more = false);
  void end_tasks();
  void on_cancel(int from, const cancel_message& one);
  void disconnect(int rank, const std::string& why);
  void lose(int rank, const std::string& why);
  void heard_goodbye(int rank);
  void break_up(failure cause);
  void leave();

  // the wave and the window
  [[nodiscard]] bool idle() const noexcept {
    return busy_ == 0 && running_ == 0 && ready_.empty() && !closed_;
  }
  [[nodiscard]] bool passive() const noexcept;
  [[nodiscard]] bool is_patient() const noexcept;
  [[nodiscard]] bool can_contribute() const noexcept;
  bool contribute();
  [[nodiscard]] contribution own_contribution();
  void note_named(contribution& all);
  void note_reports(contribution& all);
  void on_up(int from, contribution one);
  void on_down(int from, const verdict& what, std::span<const std::byte> body);
  void apply(const verdict& what, std::span<const std::byte> body);
  void apply_not_spawned(const std::vector<key>& keys);
  void apply_cycle();
  void end_of_window(const verdict& what);
  void tell_window_ended();
  [[nodiscard]] std::optional<window_end> asked_for() const noexcept;
  void clear();
  void clear_exchange();
  void repeat();

  // messages
  template <class Message>
  void send(int to, message_kind kind, const Message& what);
  void send_body(int to, message_kind kind, std::span<const std::byte> body);
  void receive(int from, message_kind kind, std::uint64_t epoch, std::span<const std::byte> body);
  void handle(int from, message_kind kind, std::span<const std::byte> body);
  void unpark();
  void settle() {
    if (wakes_.empty() && !first_failure_here_ && (busy_ != 0 || running_ != 0 || !ready_.empty()))
      return;
    settle_slowly();
  }
  void settle_slowly();
  void run_wakes();
  void flush_when_idle();
  [[nodiscard]] index known(const key& what, int home, const char* verb);

  // sentences
  [[nodiscard]] content_ptr fail(errc code, const key& root, std::string task, int rank,
                                 std::string text) const;
  [[nodiscard]] content_ptr not_spawned(index value, const std::string& who) const;
  [[nodiscard]] content_ptr cyclic(index task) const;
  [[nodiscard]] content_ptr taken(index value, index winner, const std::string& loser) const;
  [[nodiscard]] std::string taker_text(index one) const;
  [[nodiscard]] std::string task_text(index task) const;
  [[nodiscard]] std::string await_text(spawn_site site) const;
  [[nodiscard]] content_ptr stays_at_home(index value, int to, const std::string& why) const;
  [[nodiscard]] std::string difference(const stored_definition& one,
                                       const stored_definition& other) const;
  [[nodiscard]] std::string divergence_text(index task) const;
  [[nodiscard]] std::vector<int> ranks_of(index task, index definition) const;
  void report_own(index task, bool refused, std::string text);
  [[nodiscard]] failure cancelled_failure() const;

  // stalls
  void on_ask(int from, const ask_message& one);
  void on_tell(int from, const tell_message& one);
  [[nodiscard]] told_state state_of(const key& what);

  basic_endpoint<Any>& owner_;
  scope_id id_;
  node_options options_;
  int rank_;
  int ranks_;
  wave_place place_;
  std::uint32_t window_ = 0;
  std::uint64_t epoch_ = 0;  // verdicts and fences applied (graph T7)

  // tasks and values
  record_table records_;
  definition_store definitions_;
  ready_queue ready_;
  std::uint32_t running_ = 0;
  std::uint64_t waiting_ = 0;                  // tasks
  std::uint64_t failed_ = 0;                   // tasks, in this window
  std::optional<failed_task> first_failure_;   // of the smallest key
  std::optional<failure> first_failure_here_;  // to be the cause (graph F4)
  std::vector<wake_up> wakes_;                 // [graph F3]

  // the program
  std::vector<producer_state> producers_;
  std::uint32_t busy_ = 1;  // producers that are
  std::vector<waiting_await> awaits_;
  index free_await_ = none;
  index starting_ = none;  // an await that is just beginning
  await_start started_;

  // announcements
  std::vector<announcement> announced_;  // by home
  std::vector<int> fresh_;               // homes
  std::vector<index> own_;               // tasks that are at home and were spawned here
  std::size_t summed_ = 0;               // of these
  task_sum own_sum_;
  std::uint32_t compare_count_ = 0;

  // values that other ranks have to do with
  std::vector<account> accounts_;  // by rank
  arena<peer> peers_;
  index_table peer_table_;
  arena<declaration> declarations_;
  std::vector<index> diverged_;  // tasks whose divergence is to be told
  std::vector<index> unknown_;   // at home: wanted, and not spawned; some are spawned since
  std::uint32_t unknown_count_ = 0;
  std::vector<index> unsent_;                           // values that are wanted; some twice
  std::vector<std::pair<index, index>> unsent_claims_;  // value, taker
  std::uint32_t unsent_count_ = 0;
  std::uint32_t queued_ = 0;                              // grants that wait for a tag
  std::unordered_map<index, value_hash> hashes_;          // of values (graph U4)
  std::unordered_map<index, std::size_t> offers_;         // parked (graph L2)
  std::unordered_map<index, content_ptr> held_;           // taken, and still offered (graph M3)
  std::unordered_map<index, std::vector<index>> asking_;  // takers that wait for an answer
  std::unordered_map<index, std::vector<index>> remote_takers_;  // spawned here, tasks elsewhere
  arena<taker> takers_;

  // the wave
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  bool up_ = false;  // it has contributed
  std::array<std::optional<contribution>, 2> ups_;
  wave_root root_;
  bool told_options_ = false;
  std::vector<report_item> reports_;  // not told yet
  std::uint32_t own_reports_ = 0;     // in this window
  window_report report_;
  std::vector<parked_message> parked_;  // of later epochs (graph T7)

  // ends
  bool cancelled_ = false;
  bool broken_ = false;
  bool closed_ = false;
  std::optional<failure> cause_;
  content_ptr cancelled_content_;

  // stall report
  std::uint64_t query_ = 0;
  std::vector<int> asked_;
  std::vector<std::pair<key, stalled_task>> stalled_;
  std::vector<told_state> answers_;
  std::vector<action> actions_;
  std::vector<std::byte> body_;
};

using node = basic_node<>;

}  // namespace cohort::graph::machine

#include <cohort/graph/machine/endpoint.hpp>

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/graph/machine/node/announcer.ipp>
#include <cohort/graph/machine/node/awaits.ipp>
#include <cohort/graph/machine/node/ends.ipp>
#include <cohort/graph/machine/node/front.ipp>
#include <cohort/graph/machine/node/home.ipp>
#include <cohort/graph/machine/node/receive.ipp>
#include <cohort/graph/machine/node/sentences.ipp>
#include <cohort/graph/machine/node/stall.ipp>
#include <cohort/graph/machine/node/take.ipp>
#include <cohort/graph/machine/node/transfer.ipp>
#include <cohort/graph/machine/node/values.ipp>
#include <cohort/graph/machine/node/wave.ipp>
#endif
