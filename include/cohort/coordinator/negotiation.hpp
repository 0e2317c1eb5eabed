// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One instance of a coordinator on one rank: the protocol's node, its messages over MPI, the
/// submissions that wait, and the data plane.

#include <cohort/comm/communicator.hpp>
#include <cohort/coordinator/data_plane.hpp>
#include <cohort/coordinator/options.hpp>
#include <cohort/coordinator/task.hpp>
#include <cohort/coordinator/timeline.hpp>
#include <cohort/core/ranks.hpp>
#include <cohort/protocol/node.hpp>
#include <cohort/protocol/validation.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cohort {

/// What a coordinator has done on this rank since it was made.
struct coordinator_statistics {
  std::uint64_t submitted = 0;  ///< operations
  std::uint64_t completed = 0;  ///< with a result
  std::uint64_t failed = 0;
  std::uint64_t packs = 0;          ///< data operations of more than one submission
  std::uint64_t packed = 0;         ///< submissions in them
  std::uint64_t messages_sent = 0;  ///< control messages, fragments counted one by one
  std::uint64_t bytes_sent = 0;     ///< in them
  std::uint64_t messages_received = 0;
  std::uint64_t size_exchanges = 0;  ///< of all_gather and all_to_all, where sizes were new
};

/// An operation that this rank has submitted and that is not complete, as `pending()` tells of it.
struct pending_operation {
  std::string name;
  std::string verb;
  std::string shape;
  std::string site;  ///< "file:line"
  std::chrono::nanoseconds age{};
  bool started = false;  ///< elected: data are under way
  bool asked = false;    ///< what follows was found by a stall report
  std::vector<int> ready;
  std::vector<int> missing;
  std::vector<int> unknown;  ///< silent, or behind a silent rank
};

namespace coordination {

class registry;
class negotiation;
class instance_handle;

/// A process set that is being made: what its members say first, and what comes of it.
struct creation {
  ranks members;         ///< in the numbers of the instance that makes it
  std::uint64_t id = 0;  ///< log count of its election; 0 before
  std::shared_ptr<instance_handle> made;
};

/// A persistent group on one rank: its tensors, a communicator and a data plane of its own. Its
/// starts need no message, for every one is the next collective on that communicator. [H1]
class persistent_state final : private data_plane::client {
 public:
  persistent_state(negotiation& owner, const coordinator_options& options)
      : owner_(owner), plane_(*this, options, 1) {}

  MPI_Comm made = MPI_COMM_NULL;  ///< MPI writes here until the group is elected and done

 private:
  friend class negotiation;
  inline void data_done(execution& what) noexcept override;
  inline void data_failed(execution& what, std::error_code why) noexcept override;
  void end(task& one, std::uint64_t number) noexcept;
  void push(task& one, std::uint64_t number);

  negotiation& owner_;
  protocol::signature sig_;  // of a start
  std::vector<tensor> members_;
  std::string text_;
  protocol::name_index name_ = protocol::none;
  mpi::comm comm_;
  data_plane plane_;
  std::uint64_t good_ = UINT64_MAX;  // starts from here on lack a rank [H4]
  bool removed_ = false;
  std::deque<std::pair<task*, std::uint64_t>> held_;  // complete, but not yet for sure [H3]
};

/// A control message on its way, or the receive for the next one. It frees itself when the engine
/// delivers it.
class control_operation final : public comm::request_operation {
 public:
  control_operation(negotiation& owner, std::size_t edge, bool sends) noexcept;
  static void* operator new(std::size_t bytes) { return progress::pool::allocate(bytes); }
  static void operator delete(void* block) noexcept {
    progress::pool::deallocate(block, sizeof(control_operation));
  }

 private:
  friend class negotiation;
  static bool advanced(request_operation* base);
  static void run(operation* base, action what);
  negotiation* owner_;  // null once it has ended
  std::size_t edge_;
  bool sends_;
};

/// Everything below runs with the request source locked, which serves all threads.
class negotiation final : public comm::look_hook,
                          private data_plane::client,
                          public std::enable_shared_from_this<negotiation> {
 public:
  /// Over the ranks of `parent`, whose collective order it joins: posts `MPI_Comm_idup` and does
  /// not block [D3]. Throws error(errc::invalid_argument) for options out of range.
  static std::shared_ptr<negotiation> make(const communicator& parent,
                                           const coordinator_options& options,
                                           std::shared_ptr<comm::any_backend> backend);
  negotiation(const communicator& parent, const coordinator_options& options,
              std::shared_ptr<comm::any_backend> backend);
  inline ~negotiation() override;

  /// Makes an instance of some ranks; `one.context` is a creation. Ranks that are not listed get
  /// none, at once. [D2]
  void add_set(task& one);
  /// Makes a persistent group of the task's tensors; `sig` is that of a start.
  void add_group(task& one, std::string_view name, protocol::signature sig,
                 const std::shared_ptr<persistent_state>& group, const std::source_location& site);
  void start_group(task& one, persistent_state& group);
  void remove_group(task& one, persistent_state& group, const std::source_location& site);

  /// The ranks of this instance, in the numbers of the coordinator that it belongs to.
  [[nodiscard]] const ranks& members() const noexcept { return members_; }
  /// This rank among those of the instance that share its node.
  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] progress::engine& engine() const noexcept { return engine_; }
  [[nodiscard]] comm::request_source& source() const noexcept { return source_; }
  [[nodiscard]] const coordinator_options& options() const noexcept { return options_; }
  [[nodiscard]] const communicator& parent() const noexcept { return parent_; }

  /// Takes a submission. It ends through the engine, exactly once, never inside this call. If the
  /// task has an error, it is announced and withdrawn everywhere [S3].
  void submit(task& one, std::string_view name, const protocol::signature& sig,
              const std::source_location& site, std::chrono::nanoseconds deadline);
  void join(task& one);
  /// Ends the await; the rank stays joined [J7].
  void stop_joining(task& one);
  /// Asks all ranks to forget it; false if it has been decided [W2].
  bool withdraw(task& one, protocol::withdrawal_reason reason);

  /// From now on this rank submits nothing; what it has submitted still completes.
  void leave(protocol::departure how = protocol::departure::drained);
  /// Completes when the instance is gone on this rank.
  void wait_closed(task& one);
  void stop_waiting(task& one);
  /// Leaves and waits in place.
  void leave_in_place();
  [[nodiscard]] bool closed() const noexcept { return closed_; }

  [[nodiscard]] std::vector<pending_operation> pending();
  [[nodiscard]] coordinator_statistics statistics();
  /// Asks who waits for whom; `pending()` has the answer once it has come.
  void ask();
  void step();
  [[nodiscard]] timeline& trace() noexcept { return *timeline_; }

  inline std::size_t at_look() override;
  inline void at_tick(clock::time_point now) override;

 private:
  friend class control_operation;
  friend class registry;
  friend class persistent_state;
  struct edge {
    int rank = -1;
    control_operation* receive = nullptr;
    bool sending = false;
    std::vector<std::byte> in;        // what is being received
    std::vector<std::byte> assembly;  // of fragments
    std::vector<std::byte> out;
    std::size_t sent = 0;  // bytes of `out`
  };

  // opening
  void open();
  void control_made(std::error_code error, communicator made);
  void compare_options();
  void options_compared(std::error_code error);
  void name_differing(std::error_code error);
  void slots_made(std::error_code error, communicator made);
  [[nodiscard]] static std::vector<std::uint64_t> option_values(const coordinator_options& options);
  [[nodiscard]] static protocol::tree make_tree(const communicator& parent,
                                                const coordinator_options& options);
  [[nodiscard]] static protocol::node_options node_options_of(const coordinator_options& options);

  // messages
  void post_receive(std::size_t index);
  int repost_receive(control_operation& op);
  bool received(control_operation& op);
  void take(int from, std::span<const std::byte> message);
  void advance();
  void flush();
  void send(std::size_t index);
  int post_fragment(std::size_t index, MPI_Request& request);
  void has_left(std::size_t index);
  bool sent(control_operation& op);
  void control_failed(control_operation& op);

  // actions
  void perform();
  void start(const protocol::action& one);
  void start_join(const protocol::action& one);
  void fail(const protocol::action& one);
  void close_by_fault();
  [[nodiscard]] neutral_task* make_neutral(const protocol::signature& sig);
  inline void data_done(execution& what) noexcept override;
  inline void data_failed(execution& what, std::error_code why) noexcept override;

  // tasks
  void link(task& one) noexcept;
  void complete(task& one) noexcept;
  void fail_all(const std::exception_ptr& why);
  void break_down(const std::exception_ptr& why);
  [[nodiscard]] std::exception_ptr error_of(std::string_view name, std::string_view verb,
                                            const protocol::verdict& why,
                                            const protocol::action& at) const;
  [[nodiscard]] std::exception_ptr refusal(std::string_view name) const;
  void report(const protocol::stall_report& what);
  void listed_elected(task& own, std::uint64_t log_count);
  void confirm_sets();
  void make_sets();
  void make_set(creation& one);
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
  void check_released();
  void finish_closing();
  [[nodiscard]] static std::uint64_t nanoseconds(clock::time_point when) noexcept {
    return static_cast<std::uint64_t>(when.time_since_epoch().count());
  }

  communicator parent_;
  communicator control_;  // messages on its data, operations posted whole on its exchange
  communicator slots_;    // later parts
  progress::engine& engine_;
  comm::request_source& source_;
  coordinator_options options_;
  std::shared_ptr<comm::any_backend> backend_;
  int rank_;
  int size_;
  ranks members_;
  int local_rank_ = 0;

  protocol::node node_;
  data_plane plane_;
  std::shared_ptr<timeline> timeline_;  // one for a coordinator and its sets
  std::uint32_t set_ = 0;               // in it: log count of the set's creation
  std::vector<edge> edges_;
  execution* pack_ = nullptr;  // being filled
  std::size_t done_ = 0;       // operations finished since the root's node was told

  task* joining_ = nullptr;  // null also if nobody awaits the join
  task* first_ = nullptr;
  task* last_ = nullptr;
  std::vector<task*> closing_;  // wait for the end
  std::vector<std::shared_ptr<persistent_state>> groups_;
  std::vector<task*> adding_;  // process sets: elected, earlier operations are not complete
  std::vector<task*> making_;  // agreed upon by all their members
  std::unordered_map<protocol::entry_index, std::shared_ptr<size_vector>> sizes_;
  std::unordered_map<protocol::name_index, std::size_t> in_use_;  // strict mode
  protocol::call_site site_;
  protocol::stall_report last_report_;
  bool has_report_ = false;
  std::size_t deadlines_ = 0;
  std::size_t completed_ = 0;  // tasks, ever
  clock::time_point warned_{};

  std::vector<std::int64_t> compared_;
  std::vector<std::uint64_t> gathered_;
  std::exception_ptr broken_;
  bool ready_ = false;  // open
  bool faulted_ = false;  // a data operation has failed here
  bool left_ = false;
  bool releasing_ = false;
  bool closed_ = false;
  bool leave_expired_ = false;
  bool abandoned_ = false;  // the context goes away
  std::size_t control_operations_ = 0;
  clock::time_point leave_until_ = clock::time_point::max();
  coordinator_statistics statistics_;
};

/// Keeps the instances of a context alive until they are closed, and abandons them at its end.
class registry final : public asio::execution_context::service {
 public:
  using key_type = registry;
  static inline asio::execution_context::id id;
  explicit registry(asio::execution_context& context) : service(context) {}

  void add(std::shared_ptr<negotiation> one) {
    std::erase_if(all_, [](const auto& each) { return each->closed(); });
    all_.push_back(std::move(one));
  }

 private:
  inline void shutdown() override;
  std::vector<std::shared_ptr<negotiation>> all_;
};

/// What the handles of an instance share: with the last of them the rank leaves.
class instance_handle {
 public:
  explicit instance_handle(std::shared_ptr<negotiation> instance)
      : instance_(std::move(instance)) {}
  instance_handle(const instance_handle&) = delete;
  instance_handle& operator=(const instance_handle&) = delete;
  ~instance_handle() { instance_->leave_in_place(); }
  [[nodiscard]] negotiation& operator*() const noexcept { return *instance_; }
  [[nodiscard]] negotiation* operator->() const noexcept { return instance_.get(); }

 private:
  std::shared_ptr<negotiation> instance_;
};

}  // namespace coordination
}  // namespace cohort

#include <cohort/coordinator/detail/data_plane.ipp>
#include <cohort/coordinator/detail/negotiation.ipp>
