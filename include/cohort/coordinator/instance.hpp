// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What verbs submit, and to whom: one named operation on one rank, with its tensors and the
/// handler that waits for them, and the interface of an instance.

#include <cohort/comm/device_backend.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/coordinator/options.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/kinds.hpp>
#include <cohort/core/pack_layout.hpp>
#include <cohort/core/ranks.hpp>
#include <cohort/core/tool_range.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/protocol/message.hpp>
#include <cohort/protocol/signature.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::coordination {

using clock = std::chrono::steady_clock;
using comm::tensor;
using mpi::element_kernels;
using mpi::kernels_for;
using mpi::kernels_of;
using mpi::unnamed_element;
using mpi::wire_kernels;

/// What a submission on device memory has beside its tensors.
struct device_part {
  std::vector<comm::device_buffer> buffers;  ///< of the tensors, and of a result
  stream_ref on;
  stream_ref results;  ///< the backend's, once the operation is elected
  until ends = until::complete;
  std::vector<std::shared_ptr<comm::device_mark>> marks;
  comm::device_use use = comm::device_use::run;
  std::shared_ptr<comm::device_graph> graph;  ///< where it is captured, or what it replays

  /// A buffer that nothing orders with what comes after an enqueued operation, or null.
  [[nodiscard]] const comm::device_buffer* without_order() const noexcept {
    if (ends != until::enqueued || on.device >= 0) return nullptr;
    for (const comm::device_buffer& each : buffers) {
      if (each.bytes != 0 && !each.lease && each.where.producer == nullptr) return &each;
    }
    return nullptr;
  }
};
inline constexpr const char* lacks_order =
    ": until::enqueued needs the option `on`, for this span has no stream";

template <class Any>
class set_view;

/// What the data plane knows of a submission. The verb fills it in; the handler lies behind it.
class task : public progress::operation {
 public:
  op_kind kind = op_kind::barrier;
  std::uint8_t flags = 0;
  reduction_code code = reduction_code::no_reduction;
  int root = -1;
  int peer = -1;       ///< message: the rank at the other end
  bool sends = false;  ///< message: from here
  double prescale = 1;
  double postscale = 1;
  compression wanted = compression::none;  ///< until it is submitted
  memory_space space = memory_space::host;
  set_view<void>* view = nullptr;  ///< the set that it is submitted to
  std::unique_ptr<device_part>
      device;                  ///< null on the host, and where neutral elements are brought
  tensor first;                ///< the only one, but for bundles
  std::vector<tensor> others;  ///< of a bundle

  /// For what is not known before the operation runs. `rows` is one number per rank; returns where
  /// the data go. May throw std::bad_alloc.
  using result_function = void* (*)(task&, std::span<const std::int64_t> rows);
  result_function make_result = nullptr;
  void* context = nullptr;          ///< for it
  MPI_Comm* made = nullptr;         ///< group_create: where MPI writes the communicator
  std::vector<std::int64_t> sizes;  ///< all_gather: the own rows; all_to_all: rows for each rank
  std::size_t row_bytes = 0;        ///< of a row of these; arena_add: of the arena
  std::size_t row_counts = 1;       ///< all_gather: how many numbers of rows each rank has

  std::exception_ptr error;
  std::uint64_t contributors = 0;  ///< ranks that bring data; known when it is elected
  std::uint64_t number = 0;        ///< the result of join()

  // The queue's notes.
  protocol::operation_ref operation_ref;
  protocol::name_index name = protocol::none;
  protocol::epoch epoch = 0;
  task* before = nullptr;  ///< all of an instance are linked
  task* after = nullptr;
  clock::time_point submitted;
  clock::time_point deadline = clock::time_point::max();  ///< withdrawn when it passes
  bool linked = false;
  bool started = false;    ///< elected
  bool is_start = false;   ///< of a persistent group, of which several may be pending
  bool withdrawn = false;  ///< asked for; once it is elected: its backend knows of the deadline
  protocol::withdrawal_reason withdrawn_for = protocol::withdrawal_reason::cancelled;
  std::chrono::nanoseconds undecided{0};  ///< since then, while this rank was looking
  bool holds_name = false;
  tools::range watched;  ///< its negotiation, and then what follows

  /// What the data plane needs of a signature.
  void take(const protocol::signature& sig) noexcept {
    kind = sig.kind;
    flags = sig.flags;
    code = static_cast<reduction_code>(sig.reduction);
    root = sig.root;
    prescale = sig.prescale;
    postscale = sig.postscale;
  }
  [[nodiscard]] std::size_t tensors() const noexcept { return 1 + others.size(); }
  [[nodiscard]] const tensor& operator[](std::size_t i) const noexcept {
    return i == 0 ? first : others[i - 1];
  }
  [[nodiscard]] tensor& operator[](std::size_t i) noexcept {
    return i == 0 ? first : others[i - 1];
  }
  /// The `i`-th, which is the last so far.
  void put(std::size_t i, const tensor& what) {
    if (i == 0) {
      first = what;
    } else {
      others.push_back(what);
    }
  }
  /// As its caller knows it; a literal.
  [[nodiscard]] std::string_view verb() const noexcept {
    if (kind == op_kind::message) return name_of(sends ? op_kind::send : op_kind::recv);
    return name_of(kind);
  }
  void fail(std::exception_ptr why) noexcept {
    if (!error) error = std::move(why);
  }
  void fail(errc what, const std::string& why) {
    fail(std::make_exception_ptr(cohort::error(what, why)));
  }
  device_part& use_device() {
    space = memory_space::device;
    if (!device) device = std::make_unique<device_part>();
    return *device;
  }

 protected:
  explicit task(function run) noexcept : operation(run) {}
  ~task() = default;
};

inline constexpr const char* join_verb = "join";
inline constexpr const char* not_open = ", the coordinator is not open on all ranks";

/// The token of an operation that has ended here before it was decided.
inline constexpr std::uint64_t nobody = 1;
[[nodiscard]] inline task* task_of(std::uint64_t token) noexcept {
  return token == nobody ? nullptr : reinterpret_cast<task*>(token);
}
/// A moment as the protocol counts time.
[[nodiscard]] inline std::uint64_t nanoseconds(clock::time_point when) noexcept {
  return static_cast<std::uint64_t>(when.time_since_epoch().count());
}

}  // namespace cohort::coordination

namespace cohort {

/// What tuning has done; on rank 0, where it is decided.
struct tuning_statistics {
  std::uint64_t steps = 0;   ///< of the program, as they were found
  std::uint64_t trials = 0;  ///< changes that were tried
  std::uint64_t kept = 0;    ///< of these, those that stayed
};

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
  // Operations as they are started: a pack is one, and each piece of a large tensor is one.
  comm::path_statistics by_mpi;
  comm::path_statistics by_backend;  ///< the backend for the host, such as shared memory
  comm::path_statistics by_device;   ///< the backend for devices, such as NCCL
  tuning_statistics tuning;          ///< `options()` has the present numbers
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

class instance_handle;

/// A process set that is being made: what its members say first, and what comes of it.
struct creation {
  ranks members;                     ///< in the numbers of the instance that makes it
  std::optional<communicator> like;  ///< whose ranks they are, until they are looked up
  std::uint64_t id = 0;              ///< log count of its election; 0 before
  std::uint32_t number = 0;  ///< of a set in the log of that instance; 0: it has a log of its own
  std::shared_ptr<instance_handle> made;
};

/// A persistent group on one rank, as its handles see it.
class group_state {
 public:
  group_state(const group_state&) = delete;
  group_state& operator=(const group_state&) = delete;
  virtual ~group_state() = default;

 protected:
  group_state() noexcept {}
};

/// A coordinator or a process set on one rank. Behind it lies all that negotiates; an interface, so
/// that only who makes a coordinator compiles that, not all who await its operations. There is one
/// implementation, `set_view`.
class instance {
 public:
  instance(const instance&) = delete;
  instance& operator=(const instance&) = delete;
  virtual ~instance() = default;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// The ranks of this instance, in the numbers of the coordinator that it belongs to.
  [[nodiscard]] const ranks& members() const noexcept { return members_; }
  /// As those of a communicator of these ranks.
  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  [[nodiscard]] int local_size() const noexcept { return local_size_; }
  [[nodiscard]] bool is_homogeneous() const noexcept { return is_homogeneous_; }
  [[nodiscard]] progress::engine& engine() const noexcept { return engine_; }
  /// As the program and the environment have chosen them.
  [[nodiscard]] const coordinator_options& options() const noexcept { return options_; }

  /// Takes a submission. It ends through the engine, exactly once, never inside this call. If the
  /// task has an error, it is announced and withdrawn everywhere [protocol S3].
  virtual void submit(task& one, std::string_view name, const protocol::signature& sig,
                      const std::source_location& site, std::chrono::nanoseconds deadline) = 0;
  virtual void join(task& one) = 0;
  /// Ends the await; the rank stays joined [protocol J7].
  virtual void stop_joining(task& one) = 0;
  /// Asks all ranks to forget it; false if it has been decided [protocol W2].
  virtual bool withdraw(task& one, protocol::withdrawal_reason reason) = 0;

  /// From now on this rank submits nothing; what it has submitted still completes, if it drains.
  /// The errors of the others say `why`.
  virtual void leave(protocol::departure how, std::string_view why = {}) = 0;
  /// Completes when the instance is gone on this rank.
  virtual void wait_closed(task& one) = 0;
  virtual void stop_waiting(task& one) = 0;
  /// Leaves and waits in place, for destructors.
  virtual void leave_in_place() = 0;

  /// The name that it was submitted under; empty if it had none. With the source locked.
  [[nodiscard]] virtual std::string_view name_of(const task& one) const = 0;

  /// Makes an instance of some ranks; `one.context` is a creation. Ranks that are not listed get
  /// none, at once. [protocol D2]
  virtual void add_set(task& one) = 0;
  /// Makes a persistent group of the task's tensors; `sig` is that of a start.
  virtual std::shared_ptr<group_state> add_group(task& one, std::string_view name,
                                                 protocol::signature sig,
                                                 const std::source_location& site) = 0;
  virtual void start_group(task& one, group_state& group) = 0;
  virtual void remove_group(task& one, group_state& group, const std::source_location& site) = 0;

  [[nodiscard]] virtual std::vector<pending_operation> pending() = 0;
  [[nodiscard]] virtual coordinator_statistics statistics() = 0;
  /// With the numbers that are in force.
  [[nodiscard]] virtual coordinator_options present_options() = 0;
  /// Asks who waits for whom; `pending()` has the answer once it has come.
  virtual void request_report() = 0;
  virtual void step() = 0;
  virtual std::error_code start_timeline(const std::string& path) = 0;
  virtual void stop_timeline() = 0;

 protected:
  instance(const communicator& parent, const coordinator_options& options)
      : engine_(parent.state()->engine),
        options_(options),
        rank_(parent.rank()),
        size_(parent.size()),
        members_(ranks::all(parent.size())),
        local_rank_(parent.local_rank()),
        local_size_(parent.local_size()),
        is_homogeneous_(parent.is_homogeneous()) {}

  progress::engine& engine_;
  coordinator_options options_;
  int rank_;
  int size_;
  ranks members_;
  int local_rank_;
  int local_size_;
  bool is_homogeneous_;
};

/// ": " and why; empty for a receive that MPI has cancelled of itself. Its process has gone, and
/// "cancelled" would mislead, for nobody has asked for that.
[[nodiscard]] inline std::string reason_of(std::error_code why) {
  return why == asio::error::operation_aborted ? std::string() : ": " + why.message();
}

/// Opens an instance over the ranks of `parent`. A template for one type alone, so that only who
/// makes a coordinator compiles what is behind it.
template <std::same_as<communicator> Communicator>
[[nodiscard]] std::shared_ptr<instance> open_instance(const Communicator& parent,
                                                      const coordinator_options& options,
                                                      std::shared_ptr<comm::any_backend> backend,
                                                      std::shared_ptr<comm::device_backend> device);

/// What the handles of an instance share: with the last of them the rank leaves.
class instance_handle {
 public:
  explicit instance_handle(std::shared_ptr<instance> where) : where_(std::move(where)) {}
  instance_handle(const instance_handle&) = delete;
  instance_handle& operator=(const instance_handle&) = delete;
  ~instance_handle() { where_->leave_in_place(); }
  [[nodiscard]] instance& operator*() const noexcept { return *where_; }

 private:
  std::shared_ptr<instance> where_;
};

}  // namespace coordination
}  // namespace cohort
