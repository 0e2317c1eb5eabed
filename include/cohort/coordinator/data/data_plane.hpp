// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Does what has been elected: starts it in log order, packs, posts to a backend or MPI,
/// unpacks.

#include <cohort/comm/backend.hpp>
#include <cohort/comm/communicator.hpp>
#include <cohort/comm/creation.hpp>
#include <cohort/comm/device_backend.hpp>
#include <cohort/coordinator/data/fusion_allocator.hpp>
#include <cohort/coordinator/instance.hpp>
#include <cohort/coordinator/options.hpp>
#include <cohort/coordinator/task.hpp>
#include <cohort/coordinator/timeline.hpp>
#include <cohort/mpi/blocks.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/progress/pool.hpp>
#include <cohort/protocol/start_queue.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::coordination {

template <class Any>
class basic_lane;
template <class Any>
class basic_execution;
template <class Any>
class basic_data_plane;
using lane = basic_lane<void>;
using execution = basic_execution<void>;
using data_plane = basic_data_plane<void>;

/// Where the operations of a set run: as which of its ranks, and on which communicators. `shared`
/// is for first parts and for operations posted whole, each slot for later parts of one.
struct set_place {
  std::uint32_t set = 0;  ///< its number in the log
  int rank = 0;
  int size = 1;
  MPI_Comm shared = MPI_COMM_NULL;
  std::vector<MPI_Comm> slots;
};

/// How far a pack has been filled or emptied.
struct pack_position {
  std::uint32_t tensor = 0;  ///< of the pack: the first that is not done
  std::size_t end = 0;       ///< where the one before it ends, in bytes
};

/// One chain of requests: it posts, and when MPI is done it posts again or ends. It frees itself
/// when the engine delivers it, so nobody need wait for that.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_lane final : public comm::request_operation, public comm::staging {
 public:
  explicit basic_lane(execution& owner) noexcept : request_operation(&run), owner_(&owner) {
    advance_ = &advanced;
    advances_failed_ = true;
  }
  static void* operator new(std::size_t bytes) { return progress::pool::allocate(bytes); }
  static void operator delete(void* block) noexcept {
    progress::pool::deallocate(block, sizeof(lane));
  }

  /// For a backend that packs itself.
  void lay(std::size_t offset, std::span<std::byte> to) noexcept override;
  void take(std::size_t offset, std::span<const std::byte> from) noexcept override;

  std::uint32_t call = 0;  ///< of the execution: what is under way
  bool on_device = false;  ///< a backend for devices has it, and MPI nothing
  fusion_allocator::buffer pack;

 private:
  friend execution;
  friend data_plane;
  static bool advanced(request_operation* base);
  static void run(operation* base, action what);
  execution* owner_;  // null once it has ended
  pack_position laid_;
  pack_position taken_;
  bool staged_ = false;
};

/// Sizes that ranks have told each other: those of one exchange.
struct size_vector {
  std::uint64_t log_count = 0;
  std::vector<std::int64_t> rows;
  bool large = false;  ///< on any rank the bytes may not fit an int, and MPI needs that
};

/// One elected operation, or a pack, under way on this rank.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_execution {
 public:
  explicit basic_execution(data_plane& plane) noexcept;
  basic_execution(const basic_execution&) = delete;
  basic_execution& operator=(const basic_execution&) = delete;

  std::vector<task*> tasks;
  std::uint64_t log_count = 0;
  bool known = false;  ///< sizes are those of `rows`
  bool is_join = false;
  std::uint64_t newest = 0;  ///< join: log count of this rank's newest data
  std::shared_ptr<size_vector> rows;
  const set_place* here = nullptr;
  clock::time_point elected;
  clock::time_point begun;

  /// Looks at the tasks: from here on it is known how many parts there are.
  void prepare();
  [[nodiscard]] bool exchanges() const noexcept { return sized() && !known; }
  /// For MPI.
  [[nodiscard]] bool later_parts() const noexcept {
    return (exchanges() && !on_device()) || calls_.size() > 1;
  }
  /// All of a pack are in one memory space.
  [[nodiscard]] bool on_device() const noexcept {
    return !is_join && tasks.front()->space != memory_space::host;
  }
  /// Posts the first part. Throws std::system_error or std::bad_alloc.
  void start(std::uint32_t slot);
  [[nodiscard]] bool has_started() const noexcept { return started_; }
  /// Whether MPI may write to memory of a caller now; all else lies here, or in neutral tasks.
  [[nodiscard]] bool borrows() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Copying into and out of packs, for the timeline.
  struct span {
    phase what;
    clock::time_point begin;
    clock::time_point end;
    std::size_t bytes;
  };
  [[nodiscard]] const std::vector<span>& spans() const noexcept { return spans_; }
  /// A join's result: the rank with the newest data.
  [[nodiscard]] std::uint64_t newest_rank() const noexcept {
    return join_value_ % static_cast<std::uint64_t>(here->size);
  }
  /// So that it can be used again.
  void reset() noexcept;

 private:
  friend lane;
  friend data_plane;
  /// Tensors that travel together, or a piece of one.
  struct call {
    std::uint32_t first = 0;
    std::uint32_t tensors = 1;
    std::size_t offset = 0;  // units, of a piece
    std::size_t count = 0;
  };

  [[nodiscard]] bool sized() const noexcept {
    return !is_join && protocol::is_sized(tasks.front()->kind);
  }
  [[nodiscard]] bool fuses() const noexcept {
    const op_kind kind = tasks.front()->kind;
    return !is_join && !on_device() && (kind == op_kind::all_reduce || kind == op_kind::broadcast);
  }
  /// What calls count in: elements to reduce, else bytes, for a rank that has joined may not know
  /// the element.
  [[nodiscard]] std::size_t unit_of(const tensor& what) const noexcept {
    return tasks.front()->kind == op_kind::all_reduce ? what.kernels->size : 1;
  }
  [[nodiscard]] static std::size_t aligned(std::size_t offset, std::size_t bytes) noexcept;
  [[nodiscard]] std::int64_t divisor(const task& of) const noexcept;
  [[nodiscard]] static mpi::layout layout_of(const void* data, std::size_t bytes);
  /// A tensor that may be of another type in the memory of callers; the same on all ranks, also
  /// those that bring neutral elements.
  [[nodiscard]] static bool converts(const tensor& what, const task& of) noexcept;
  /// Whether it travels in a buffer of the library.
  [[nodiscard]] bool packs(const call& what) const noexcept {
    const auto& [head, of] = tensors_[what.first];
    return what.tensors > 1 || converts(*head, *of);
  }
  void split();
  /// Bytes that are under way at a time.
  [[nodiscard]] std::size_t load() const noexcept;
  static void lay_values(void* out, const void* in, std::size_t n, const tensor& what,
                         const task& of);
  void finish_values(void* out, const void* in, std::size_t n, const tensor& what,
                     const task& of) const;
  [[nodiscard]] std::size_t pack_bytes(const call& what) const noexcept;
  /// Goes on from `at` with bytes of the pack; `visit` gets a tensor, its task, where in it, and
  /// where in the range, `gap` a part of the range that belongs to none.
  template <class Visit, class Gap>
  void walk_pack(const call& what, pack_position& at, std::size_t offset, std::size_t bytes,
                 Visit visit, Gap gap) const;
  void fill_pack(const call& what, pack_position& at, std::size_t offset, std::span<std::byte> to);
  void empty_pack(const call& what, pack_position& at, std::size_t offset,
                  std::span<const std::byte> from);
  void post_call(lane& on, MPI_Comm where);
  void finish_call(lane& on);
  void post_alone(lane& on, MPI_Comm where);
  void post_reduce(lane& on, MPI_Comm where, const tensor& what, const void* in, void* out,
                   std::size_t count, int root);
  /// Where in `scratch_` the tensors of an operation that is not packed lie, if they are scaled or
  /// converted, and where their results, if these are converted; returns how much room that is.
  template <class Visit>
  std::size_t walk_scratch(Visit visit) const;
  template <class Post>
  void lay_scratch(Post post);
  void post_bundle(lane& on, MPI_Comm where);
  void finish_alone();
  void post_exchange(lane& on);
  void take_sizes();
  void post_sized(lane& on, MPI_Comm where);
  void post_messages(lane& on, MPI_Comm where, std::byte* out, std::span<const std::size_t> come);
  void add(lane& on, int return_code, const MPI_Request& request);
  bool stage(lane& on, std::size_t count, MPI_Comm where);
  bool give_to_backend(lane& on, comm::collective_call what, MPI_Comm where);
  /// Counts what has just been posted or given away.
  void count(const lane& on, std::size_t bytes) noexcept;
  // On a device.
  void fill_device_call();
  void start_device();
  void size_device_call();
  bool step_on_device(lane& on);
  template <class Post>
  void begin(Post post);
  lane& new_lane();
  /// The requests of a lane are complete. True if it goes on.
  bool step(lane& on);
  void lane_ended(lane& on) noexcept;
  /// Ends it, or tells at once that it has broken, though MPI still has parts.
  void settle() noexcept;
  void broke(std::error_code why) noexcept;

  data_plane& plane_;
  std::vector<std::pair<const tensor*, const task*>> tensors_;
  std::vector<call> calls_;
  std::uint32_t next_call_ = 0;
  std::uint32_t slot_ = 0;
  std::uint32_t lanes_ = 0;  // under way
  bool started_ = false;
  bool given_up_ = false;  // for good: it is never used again
  bool exchanged_ = false;
  std::size_t bytes_ = 0;
  std::size_t load_ = 0;
  std::uint64_t join_value_ = 0;
  fusion_allocator::buffer scratch_;
  std::vector<std::int64_t> told_;  // what an exchange sends
  std::optional<mpi::blocks> sent_;
  std::optional<mpi::blocks> received_;
  std::unique_ptr<comm::creation> creation_;  // of a persistent group's communicator, under way
  std::error_code failed_;
  std::vector<span> spans_;
  tools::range watched_;                            // from the start to the end
  std::unique_ptr<comm::device_call> device_call_;  // made by the first that is on a device
  bool device_has_it_ = false;                      // and may touch memory of callers
};

/// Owns the communicators of an instance and the executions in progress on them. Everything here
/// runs with the request source locked.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_data_plane {
 public:
  /// Who is told.
  class client {
   public:
    virtual void data_done(execution& what) noexcept = 0;
    /// Something of it has been started.
    virtual void data_started(const execution& what,
                              comm::path_statistics coordinator_statistics::*by,
                              std::size_t bytes) noexcept = 0;
    /// Something of an operation could not be posted here, and MPI still works on other parts. The
    /// tasks are not complete: `data_failed` follows, or the operation is given up.
    virtual void data_broke(execution& what, std::error_code why) noexcept = 0;
    /// An operation has failed here, and MPI has nothing of it; its tasks are not complete.
    virtual void data_failed(execution& what, std::error_code why) noexcept = 0;

   protected:
    ~client() = default;
  };

  basic_data_plane(client& owner, const coordinator_options& options, std::uint32_t slots)
      : fusion(static_cast<std::size_t>(options.fusion_buffer) + 64 * 1024),
        owner_(owner),
        options_(options),
        queue_(slots) {}

  /// What is pushed before runs now. There is one backend at most.
  void open(comm::communicator_state& on, comm::any_backend* backend,
            comm::device_backend* device = nullptr) {
    state_ = &on;
    backend_ = backend;
    device_ = device;
  }

  /// An execution to fill in.
  [[nodiscard]] execution& make(const set_place& here);
  /// In log order. Where it throws std::bad_alloc nothing must be started any more.
  void push(execution& what);
  /// Takes back what was made and not pushed.
  void recycle(execution& what);
  /// Starts what can be started. Also when a slot is free again, or sizes are known, while what has
  /// had the slot, or has exchanged the sizes, goes on.
  void run() noexcept;
  /// What has not been started never will be: they come back through `visit`.
  template <class Visit>
  void drop_waiting(Visit visit);
  /// What is under way ends with `why` before its next part.
  void post_no_more(std::error_code why) noexcept;
  /// Leaves what is under way to MPI; if not `all`, only what works on no memory of callers; what a
  /// device has, only if `devices`. It stays as it is, so this plane must never be destroyed;
  /// `visit` ends its tasks.
  template <class Visit>
  void give_up(bool all, bool devices, Visit visit);
  /// False where no device has the operation.
  bool deadline_passed(const task& over);
  [[nodiscard]] std::size_t under_way() const noexcept { return under_way_; }
  [[nodiscard]] std::size_t on_devices() const noexcept { return with_device_.size(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }
  /// Whether everything before a position of the log is complete here.
  [[nodiscard]] bool complete_before(std::uint64_t log_count) const noexcept {
    if (!waiting_.empty() && waiting_.front()->log_count < log_count) return false;
    for (const auto& one : all_) {
      if (one->started_ && one->log_count < log_count) return false;
    }
    return true;
  }
  /// Starts nothing behind this position of the log.
  void hold_behind(std::uint64_t log_count) noexcept { holds_behind_ = log_count; }
  void hold_nothing() noexcept { holds_behind_ = UINT64_MAX; }
  /// Whether everything before it has been started.
  [[nodiscard]] bool started_what_it_may() const noexcept {
    return waiting_.empty() || waiting_.front()->log_count > holds_behind_;
  }
  /// Whether nothing at a place waits or is under way.
  [[nodiscard]] bool idle_at(const set_place& place) const noexcept {
    for (const auto& one : all_) {
      if (one->here == &place) return false;
    }
    return true;
  }
  template <class Visit>
  void for_each_under_way(Visit visit) {
    for (const auto& one : all_) {
      if (one->started_) visit(*one);
    }
  }

  fusion_allocator fusion;
  bool traced = false;  ///< note when packs are filled and emptied

 private:
  friend execution;
  friend lane;
  void done(execution& what);

  client& owner_;
  const coordinator_options& options_;
  comm::communicator_state* state_ = nullptr;
  comm::any_backend* backend_ = nullptr;
  comm::device_backend* device_ = nullptr;
  protocol::start_queue queue_;
  protocol::steady_fifo<execution*> waiting_;
  std::vector<std::unique_ptr<execution>> all_;
  std::vector<execution*> free_;
  std::vector<lane*> with_backend_;
  std::vector<lane*> with_device_;
  std::vector<lane*> given_up_;
  std::size_t under_way_ = 0;
  std::size_t bytes_under_way_ = 0;
  std::uint64_t holds_behind_ = UINT64_MAX;
  bool running_ = false;
};

}  // namespace cohort::coordination
