// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What is agreed upon in one order, on one rank: the protocol's node, its messages over MPI,
/// the submissions that wait, and the data plane.

#include <cohort/comm/channel.hpp>
#include <cohort/coordinator/data_plane.hpp>
#include <cohort/coordinator/sets/set_view.hpp>
#include <cohort/coordinator/timeline.hpp>
#include <cohort/progress/kept_objects.hpp>
#include <cohort/progress/look_task.hpp>
#include <cohort/progress/stall_watch.hpp>
#include <cohort/protocol/node.hpp>
#include <cohort/protocol/validation.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// Everything below runs with the request source locked, which serves all threads.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class negotiation final : private comm::look_hook,
                          private data_plane::client,
                          private comm::channel::client,
                          public std::enable_shared_from_this<negotiation<Any>> {
  using view = set_view<Any>;

 public:
  /// Over the ranks of `parent`, whose creations it joins in order; does not block [protocol D3].
  /// Options come from the environment where that has them. Throws error(errc::invalid_argument)
  /// for options out of range, of which the others are told.
  static std::shared_ptr<negotiation> make(const communicator& parent,
                                           const coordinator_options& options,
                                           std::shared_ptr<comm::any_backend> backend,
                                           std::shared_ptr<comm::device_backend> device = nullptr);
  negotiation(const communicator& parent, const coordinator_options& options,
              std::shared_ptr<comm::any_backend> backend,
              std::shared_ptr<comm::device_backend> device = nullptr, const creation& record = {});
  ~negotiation();

  /// All its ranks.
  [[nodiscard]] view& whole() noexcept { return *views_.begin()->second; }
  [[nodiscard]] const view& whole() const noexcept { return *views_.begin()->second; }
  /// As a handle keeps it, with the negotiation.
  [[nodiscard]] std::shared_ptr<instance> handle_of(view& one) {
    return {this->shared_from_this(), &one};
  }

  // At the end of the context: see progress::kept_until_closed.
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  void abandon();
  void drive();
  void settle_tasks();
  void destroy_tasks();

 private:
  friend view;
  struct compared_values;
  class persistent_state;
  struct edge {
    int rank = -1;
    bool asks = false;     // whether the other rank is there, or
    bool answers = false;  // that this one is, or
    bool settles = false;  // that all ranks have closed after a fault: to be said
  };

  // what a set asks for
  void submit(task& one, std::string_view name, const protocol::signature& sig,
              const std::source_location& site, std::chrono::nanoseconds deadline);
  void join(task& one);
  void stop_joining(task& one);
  bool withdraw(task& one, protocol::withdrawal_reason reason);
  void leave(std::uint32_t set, protocol::departure how);
  void end_in_place();
  void add_set(task& one);
  std::shared_ptr<group_state> add_group(task& one, std::string_view name, protocol::signature sig,
                                         const std::source_location& site);
  void start_group(task& one, group_state& which);
  void remove_group(task& one, group_state& which, const std::source_location& site);
  void ask();
  void step();
  std::error_code start_timeline(const std::string& path);
  void stop_timeline();

  std::size_t at_look() override;
  void at_tick(clock::time_point now) override;
  void list_waiting(std::string& text, clock::time_point at) override;

  // opening
  void open();
  [[nodiscard]] progress::look_task<> open_with_others();
  [[nodiscard]] progress::look_task<bool> compare_options(compared_values& own);
  [[nodiscard]] compared_values values_to_compare() const;
  [[nodiscard]] mismatch_error name_refusing(const std::vector<std::uint64_t>& gathered) const;
  [[nodiscard]] mismatch_error name_differing(const std::vector<std::uint64_t>& gathered,
                                              const std::vector<std::string>& fields) const;
  void slots_made(communicator made);
  [[nodiscard]] static protocol::tree make_tree(const communicator& parent,
                                                const coordinator_options& options);
  [[nodiscard]] static protocol::node_options node_options_of(const coordinator_options& options);

  // devices
  void open_device(view& of);
  void device_opened(std::uint32_t set, std::exception_ptr why);
  [[nodiscard]] std::string find_places(task& one) const;
  void admit(task& one, std::string_view name, const protocol::signature& sig);
  void require_device(task& one, std::string_view name, const protocol::signature& sig);
  void start_on_device(task& one, persistent_state& group);
  [[nodiscard]] std::string refuses_capture(const task& one) const;
  void describe_capture(task& one, const persistent_state& group, protocol::signature& sig);
  [[nodiscard]] std::string capture_text(const task& one, const persistent_state& group) const;
  void pass_deadline(task& over);
  void fail_device() noexcept;
  void close_device() noexcept;
  void watch_device(clock::time_point at);
  void keep_for(task& copy, const task& one) const;

  // sets in the log of this instance [protocol D1]
  void make_view(task& own, creation& record, mpi::comm shared);
  void open_made();
  void place_set();
  void unplace_set(std::uint32_t set);
  void release_ended();
  void end_makers(const std::exception_ptr& why);
  void watch_leaving(clock::time_point at);
  [[nodiscard]] bool opens_sets() const noexcept;
  [[nodiscard]] view& view_of(std::uint32_t set) { return *views_.at(set); }
  std::error_code record_timeline(const std::string& path);
  void end_timeline() noexcept;
  void take_device_times() noexcept;
  [[nodiscard]] std::vector<pending_operation> pending_in(const view& set) const;

  // messages
  void received(int from, unsigned kind, std::span<const std::byte> message) override;
  void sent(int to) override;
  void malformed(int from, const char* what) override;
  void failed(int peer, bool sends, std::error_code why) override;
  void settled() override { check_released(); }
  void advance();
  void flush();
  void say(int to, unsigned kind);
  [[nodiscard]] edge& edge_to(int rank);
  [[nodiscard]] std::exception_ptr no_connection(int peer, std::error_code why) const;
  [[nodiscard]] bool can_end(const edge& child) const noexcept;
  void tell_broken();
  [[noreturn]] void peer_broke(std::span<const std::byte> message);

  // actions
  void perform();
  void start(const protocol::action& one);
  void start_join(const protocol::action& one);
  void fail(const protocol::action& one);
  void close_by_fault();
  [[nodiscard]] std::exception_ptr fault_of(const task& one) const;
  void end_by_fault(execution& what, bool given_up);
  [[nodiscard]] std::size_t under_way() const noexcept;
  void give_up_data(bool all, bool devices);
  void settle();
  [[nodiscard]] std::unique_ptr<neutral_task> make_neutral(const protocol::signature& sig,
                                                           view& set);
  void data_done(execution& what) noexcept override;
  void data_started(const execution& what, comm::path_statistics coordinator_statistics::*by,
                    std::size_t bytes) noexcept override {
    (what.tasks.front()->view->counted.*by).add(bytes);
  }
  void data_broke(execution& what, std::error_code why) noexcept override;
  void data_failed(execution& what, std::error_code why) noexcept override;

  // tasks
  void link(task& one) noexcept;
  void unlink(task& one) noexcept;
  void complete(task& one) noexcept;
  void watch_operation(task& one) const noexcept;
  void fail_all(const std::exception_ptr& why);
  void break_down(const std::exception_ptr& why, bool known = false);
  [[nodiscard]] const char* undefined_on_device() const noexcept;
  /// `own`: why this rank has withdrawn it, if it has.
  [[nodiscard]] std::exception_ptr error_of(const view& set, std::string_view name,
                                            std::string_view verb, const protocol::verdict& told,
                                            std::optional<protocol::withdrawal_reason> own = {},
                                            const char* besides = "") const;
  [[nodiscard]] std::exception_ptr refusal(std::string_view name) const;
  bool end_unheard(task& one, protocol::withdrawal_reason reason);
  void warn_stalled(const std::string& lines);
  void report(const protocol::stall_report& what);
  void listed_elected(task& own, const protocol::action& at);
  [[nodiscard]] std::string pair_name(const task& one, std::string_view name) const;
  bool check_peer(task& one, std::string_view name) const;
  [[nodiscard]] std::string_view given_name(const task& one) const;
  void confirm_sets();
  [[nodiscard]] progress::look_task<> open_set(task& own);
  void set_made(task& own, mpi::comm base);
  void set_not_made(task& one, const std::exception_ptr& why);
  void set_failed(task& one, std::exception_ptr why);
  void make_set(creation& one, mpi::comm data);
  void group_elected(task& own);
  void drain_group(const protocol::action& one);

  /// A recording needs the time itself, which is stale after a computation otherwise.
  [[nodiscard]] clock::time_point now() const noexcept {
    return timeline_->active() ? clock::now() : engine_.coarse_now();
  }
  void trace_failure(const task& one, std::string_view name);
  void touch();
  void stay_awake();
  void leave_has_expired();
  void watch_undecided(clock::time_point at);
  void watch_plan(clock::time_point at);
  void watch_fault(clock::time_point at);
  void give_up();
  /// A process set that all members have asked for, and that waits for earlier operations here.
  [[nodiscard]] bool is_between(const task& one) const noexcept {
    return std::find(adding_.begin(), adding_.end(), &one) != adding_.end();
  }
  [[nodiscard]] task* stand_in_for(const task& one) const;
  void check_released();
  void finish_closing();
  void leave_to_mpi();
  [[nodiscard]] static std::uint64_t nanoseconds(clock::time_point when) noexcept {
    return static_cast<std::uint64_t>(when.time_since_epoch().count());
  }

  progress::engine& engine_;
  const coordinator_options options_;
  const int rank_;
  const int size_;
  std::map<std::uint32_t, std::unique_ptr<view>> views_;  // of sets of which this rank is a member
  communicator parent_;
  communicator control_;  // messages on its data, operations posted whole on its exchange
  communicator slots_;    // later parts
  comm::request_source& source_;
  std::shared_ptr<comm::any_backend> backend_;
  std::shared_ptr<comm::device_backend> device_;

  protocol::node node_;
  data_plane plane_;
  std::shared_ptr<timeline> timeline_;  // one for a coordinator and its sets
  comm::channel channel_;               // to the neighbours in the tree
  std::vector<edge> edges_;
  execution* pack_ = nullptr;  // being filled in
  std::size_t done_ = 0;       // operations finished since the root's node was told

  task* first_ = nullptr;
  task* last_ = nullptr;
  std::vector<std::shared_ptr<persistent_state>> groups_;
  std::vector<task*> adding_;   // process sets: between their two steps
  std::vector<task*> making_;   // agreed upon by all their members
  view* made_ = nullptr;        // to be opened when it has its place
  std::uint32_t unplaced_ = 0;  // the set that has none yet
  task* confirmed_ =
      nullptr;  // the only set [protocol D1] that this rank has confirmed and not opened
  std::deque<std::uint32_t> ended_;  // sets, in the order of the log
  std::unordered_map<protocol::entry_index, std::shared_ptr<size_vector>> sizes_;
  std::unordered_map<protocol::name_index, std::size_t> in_use_;  // strict mode
  protocol::call_site site_;
  protocol::stall_report last_report_;
  std::size_t deadlines_ = 0;
  std::uint64_t unsent_ = 0;   // bytes submitted since the last look
  std::size_t completed_ = 0;  // tasks, ever
  clock::time_point warned_{};
  clock::time_point last_tick_{};
  clock::time_point fault_until_ = clock::time_point::max();
  clock::time_point settled_at_ = clock::time_point::max();
  std::optional<protocol::verdict> fault_;  // the first one
  clock::time_point plan_waits_since_ = clock::time_point::max();
  clock::time_point pinged_{};    // when the parent was asked for a sign of life
  clock::time_point answered_{};  // when it last gave one

  std::string refused_;  // why this rank refuses its options: then it is opened only to say so
  std::exception_ptr broken_;
  std::exception_ptr to_break_;  // waits for the device's own reason
  clock::time_point device_until_ = clock::time_point::max();
  bool device_failed_ = false;    // and has been told
  int lost_ = -1;                 // the rank that has broken down first, as far as is known
  bool ready_ = false;            // open
  bool faulted_ = false;          // a data operation has failed, here or elsewhere
  bool closed_by_fault_ = false;  // all ranks hear of it
  bool settled_ = false;          // and have: none starts anything any more
  bool keeps_ = false;            // MPI still works on what this instance has
  bool closed_ = false;
  bool abandoned_ = false;    // the context goes away
  std::size_t openings_ = 0;  // of this instance and of sets, inside MPI
};

/// A persistent group on one rank: its tensors, a communicator and a data plane of its own. Its
/// starts need no message, for every one is the next collective on that communicator. On device
/// memory every start is an operation like any other. [protocol H1]
template <class Any>
class negotiation<Any>::persistent_state final : public group_state, private data_plane::client {
 public:
  persistent_state(negotiation& owner, view& set)
      : owner_(owner), view_(set), plane_(*this, owner.options_, 1) {}

  MPI_Comm made = MPI_COMM_NULL;  ///< MPI writes here until the group is elected and done

 private:
  friend class negotiation;
  void data_done(execution& what) noexcept override;
  void data_started(const execution& what, comm::path_statistics coordinator_statistics::*by,
                    std::size_t bytes) noexcept override {
    owner_.data_started(what, by, bytes);
  }
  void data_broke(execution& what, std::error_code why) noexcept override;
  void data_failed(execution& what, std::error_code why) noexcept override;
  void end(task& one, std::uint64_t number) noexcept;
  void push(task& one, std::uint64_t number);

  negotiation& owner_;
  view& view_;
  set_place place_;          // of its starts
  protocol::signature sig_;  // of a start
  std::vector<tensor> members_;
  std::unique_ptr<device_part> device_;  // of every start
  std::uint64_t starts_ = 0;             // on a device
  std::string text_;
  std::source_location site_;  // where it was made
  protocol::name_index name_ = protocol::none;
  mpi::comm comm_;
  data_plane plane_;
  std::uint64_t good_ = UINT64_MAX;  // starts from here on lack a rank [protocol H4]
  bool removed_ = false;
  std::deque<std::pair<task*, std::uint64_t>>
      held_;  // complete, but not yet for sure [protocol H3]
};

}  // namespace cohort::coordination
