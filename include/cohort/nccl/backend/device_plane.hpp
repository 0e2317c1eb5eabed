// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What a coordinator has elected on a device: packed, launched in the order of the log, unpacked.
///
/// The room `backend` has what a coordinator on devices uses. Elected operations enter it through
/// `comm::device_backend`, and go on to the queue of the device; their completions leave it.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/device/copy.hpp>
#include <cohort/nccl/backend.hpp>
#include <cohort/nccl/backend/elected_runs.hpp>
#include <cohort/nccl/backend/extras.hpp>
#include <cohort/nccl/backend/pack_memory.hpp>
#include <cohort/nccl/backend/submissions.hpp>
#include <cohort/nccl/communicator.hpp>
#include <cohort/nccl/queue/device_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::nccl {

class device_plane;

/// One operation that a coordinator has elected on a device: packed, called, unpacked. It is in the
/// issuing queue, and guarded by its lock.
///
/// An operation of which MPI does a part (\ref host_reducer) comes there twice: the first part
/// reduces within the node, or only packs; the second one brings what MPI has made of it.
class elected_work final : public work, public work_hooks {
 public:
  elected_work(std::shared_ptr<device_plane> plane, comm::device_call& what,
               comm::backend_completion done);

  /// Decides which tensors travel together. It fails with what goes wrong.
  void lay_out();
  /// Queues what comes before the calls of NCCL, on the stream for packing. False: the buffer is
  /// still in use by a pack that has not been launched.
  bool pack();

  // For what MPI does between two parts.
  /// It is about to be laid out, as the first of two parts. `by_mpi`: NCCL does nothing of it.
  void go_in_parts(bool by_mpi) noexcept {
    stage_ = stage::first_part;
    by_host_ = by_mpi;
  }
  [[nodiscard]] bool by_host() const noexcept { return by_host_; }
  [[nodiscard]] bool is_between_parts() const noexcept { return stage_ == stage::between_parts; }
  /// Null: nobody waits for it any more.
  [[nodiscard]] const comm::device_call* what() const noexcept { return what_; }
  [[nodiscard]] const elected_runs& runs() const noexcept { return runs_; }
  /// Where its pack lies.
  [[nodiscard]] std::byte* buffer() const;

  COHORT_INLINE void prepare(const device::stream& domain) override;
  [[nodiscard]] COHORT_INLINE cudaStream_t calls_on(const device::stream& domain) const override;
  [[nodiscard]] COHORT_INLINE device::event conclude(const device::stream& domain) override;
  [[nodiscard]] COHORT_INLINE std::optional<device::event> give_up(
      std::vector<buffer_use>& used) override;
  [[nodiscard]] COHORT_INLINE bool end_in_lap() override;

 private:
  friend class device_plane;
  friend class elected_calls;
  /// A result that is not in a pack, where NCCL has put it.
  struct loose_result {
    const comm::tensor* tensor;
    treatment how;
    const void* from;
    std::size_t count;
  };
  struct timed_until_here;
  void lay_out_packs();
  void start_times() noexcept;
  void forget_times(bool failed) noexcept;
  static void deliver(progress::operation* base, action what);
  /// Takes it off the lists of the plane. Whether somebody waits for it.
  [[nodiscard]] bool let_go();
  [[nodiscard]] std::span<const comm::tensor> tensors() const { return what_->tensors; }
  /// The stream for packing, behind what the buffers' streams had queued at submission.
  [[nodiscard]] const device::stream& packing();
  void begin_second_part(std::error_code why);
  void begin_capture(const device::stream& domain);
  void prepare_replay();
  void bring_all();
  [[nodiscard]] rank_part result_in(const comm::tensor& tensor) const;
  void take_all(const device::stream& on);

  std::shared_ptr<device_plane> plane_;
  pack_memory& memory_;
  comm::device_call* what_;  // null: nobody waits for it any more
  comm::backend_completion done_;
  comm::device_use use_;
  std::shared_ptr<call_graph> graph_;  // captured here, or replayed
  enum class stage : std::uint8_t { whole, first_part, between_parts, second_part };
  stage stage_ = stage::whole;
  bool by_host_ = false;               // NCCL cannot: MPI reduces over all ranks of the set
  until wanted_ = until::complete;     // of the caller; the first of two parts is always complete
  std::vector<buffer_use> kept_uses_;  // while that is under way
  elected_runs runs_;
  std::vector<loose_result> finals_;
  std::vector<device::batch_part> brought_;  // from other memory, since the output is registered
  pack_memory::block* block_ = nullptr;      // where its pack lies
  std::optional<std::uint64_t> turn_;        // there, until that is over
  bool prepared_ = false;
  bool packs_ = false;                             // something of it is on the stream for packing
  std::optional<device::event> ready_;             // which is over then
  std::unique_ptr<stage_timer::operation> timed_;  // while somebody records
  std::uint64_t timed_number_ = 0;
};

/// Makes the calls of one, and notes what is to be done to their results.
class elected_calls {
 public:
  explicit elected_calls(elected_work& op);
  void make();

 private:
  void add(op_kind kind, const treatment& how, const void* from, void* to, std::size_t count,
           std::size_t size, int root = 0);
  /// Of bytes.
  void move(op_kind kind, const void* from, void* to, std::size_t bytes, int root = 0) {
    add(kind, treatment(), from, to, bytes, 1, root);
  }
  [[nodiscard]] bool is_registered(const void* data) const;
  [[nodiscard]] std::byte* take_room(std::size_t bytes);
  [[nodiscard]] const void* input_of(const comm::tensor& tensor, const treatment& how);
  [[nodiscard]] void* room_for(const comm::tensor& tensor, std::size_t count);
  [[nodiscard]] const void* readable(const void* data, std::size_t size);
  [[nodiscard]] void* writable(void* data, std::size_t size);
  void finish(const comm::tensor& tensor, const treatment& how, const void* from,
              std::size_t count);
  void fused();
  void host();
  void reduce();
  void reduce_scatter();
  void all_gather();
  void all_to_all();
  void blocks();
  void rooted();
  void message();

  elected_work& op_;
  const comm::device_call& what_;
  int rank_;
  int ranks_;
};

/// Of one set.
struct device_set {
  communicator comm;  // empty while it is being made
  // Of the host's part, see extra/host_path.hpp:
  communicator node;               // hierarchical, and there are several nodes
  cohort::communicator leaders;    // of the nodes; empty on other ranks
  cohort::communicator everybody;  // for what NCCL cannot reduce, with that option
  std::error_code failed;

  /// A rank may be in a reduction that another will not join. MPI must not use the number of that
  /// communicator again, or what is still on its way is taken for something else.
  void keep_mpi() const {
    if (leaders) leaders.state()->keep();
    if (everybody) everybody.state()->keep();
  }
};

/// Guarded by the lock of the issuing source, but for `open`, `close` and `bring_down`.
class device_sets {
 public:
  explicit device_sets(device_plane& plane) noexcept : plane_(plane) {}

  [[nodiscard]] device_set& operator[](std::uint32_t set) { return all_[set]; }
  [[nodiscard]] const std::map<std::uint32_t, device_set>& all() const noexcept { return all_; }
  /// The place of the opening among the operations is that of the elected order: what was started
  /// before it and cannot be issued yet comes first, on all ranks.
  void open(std::uint32_t set, const cohort::communicator& over,
            std::function<void(std::exception_ptr)> done);
  /// 0: all of them. Those whose last handles are to go without the lock.
  [[nodiscard]] std::vector<device_set> close(std::uint32_t set, bool failed);
  void bring_down(std::error_code why, const std::string& text) const;
  /// What one communicator of a set is made with.
  [[nodiscard]] detail::making what_to_make(turn place, detail::problem bad = {}) const;

 private:
  [[nodiscard]] progress::look_task<device_set> make(cohort::communicator over, turn place,
                                                     turn node_place,
                                                     std::optional<turn> arena_place);
  void begin(std::uint32_t set, const cohort::communicator& over,
             const std::function<void(std::exception_ptr)>& done);
  void made(std::uint32_t set, device_set its, const std::exception_ptr& why);

  device_plane& plane_;
  std::map<std::uint32_t, device_set> all_;
};

/// The backend of one coordinator. Its state is guarded by the lock of the issuing source, but for
/// what is constant. What it may do without is in \ref extras, empty here: `make_device_plane`
/// makes one that has all of them.
class device_plane : public marking_backend, public std::enable_shared_from_this<device_plane> {
 public:
  explicit device_plane(const backend_options& options);

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }
  COHORT_INLINE void facts(std::vector<std::pair<std::string, std::uint64_t>>& all) const override;
  COHORT_INLINE void attach(const cohort::communicator& parent) override;
  COHORT_INLINE void open(std::uint32_t set, const cohort::communicator& over,
                          std::function<void(std::exception_ptr)> done) override;
  COHORT_INLINE void reserve(std::uint32_t set) override;
  [[nodiscard]] COHORT_INLINE std::string refuses(const comm::device_call& what) const override;
  [[nodiscard]] bool casts() const noexcept override { return true; }
  [[nodiscard]] const comm::device_arenas* arenas() const noexcept override {
    return extras_.arenas;
  }
  [[nodiscard]] COHORT_INLINE std::shared_ptr<comm::device_graph> make_graph(
      const std::string& name) override;
  COHORT_INLINE void start(comm::device_call& what, comm::backend_completion done) override;
  void sizes_known(comm::device_call& what) override {
    change([&] { what.sized = true; });
  }
  COHORT_INLINE bool deadline_passed(comm::device_call& what) override;
  COHORT_INLINE void fail(std::error_code why, const std::string& text) override;
  COHORT_INLINE bool forget(const comm::request_operation& op) override;
  [[nodiscard]] COHORT_INLINE std::string device_name() const override;
  COHORT_INLINE void record_times(bool yes) override;
  COHORT_INLINE void take_times(
      const std::function<void(const comm::device_span&)>& visit) override;
  COHORT_INLINE void close(std::uint32_t set) override;

  // For its parts and for extras.
  [[nodiscard]] const backend_options& options() const noexcept { return options_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] bool is_device() const noexcept {
    return device_ >= 0 && device_ < device::detail::most_devices;
  }
  [[nodiscard]] issue_source& source() const noexcept { return *source_; }
  [[nodiscard]] device_sets& sets() noexcept { return sets_; }
  [[nodiscard]] pack_memory& memory() noexcept { return memory_; }
  /// Set once nothing is started any more.
  [[nodiscard]] std::error_code failed() const noexcept { return failed_; }
  /// Calls `function` with the lock, and then issues what can be.
  template <class Function>
  void change(Function function) {
    {
      const auto lock = source_->lock();
      function();
      submit_what_can_be();
    }
    source_->wake();
  }
  /// With the lock: takes a place behind what was started, and begins when it comes.
  void begin_in_order(std::function<void()> begin) { hold({nullptr, std::move(begin)}); }
  /// Inside the next look, without the lock.
  void call_at_look(std::function<void()> what) const;
  /// Its second part is queued, before all that was elected later.
  void come_back(elected_work& op, std::exception_ptr why);

 protected:
  extras extras_;  // constant after the constructor

 private:
  friend class device_sets;
  friend class elected_work;
  friend class elected_calls;
  /// An operation that was started, or a set that was opened or an arena that was made after it.
  struct held {
    elected_work* op = nullptr;
    std::function<void()> begin{};  // of what is no operation; empty: only reserved
    std::uint32_t set = 0;          // of a place that is reserved
  };

  void hold(held one) { held_.push_back(std::move(one)); }
  void hold_opening(std::uint32_t set, std::function<void()> begin);
  [[nodiscard]] std::deque<held>::iterator reserved(std::uint32_t set);
  void submit_what_can_be();
  void queue(elected_work& op);
  void pack_ahead() noexcept;
  void forget(elected_work& op) noexcept;
  // Of deadlines.
  [[nodiscard]] std::string what_holds(const elected_work& op);
  [[nodiscard]] bool is_overdue(elected_work& op);
  void report_overdue(const comm::device_call& what, std::uint64_t sequence,
                      const std::string& text);

  backend_options options_;
  issue_source* source_ = nullptr;
  device_sets sets_;
  std::deque<held> held_;             // not in the issuing queue yet
  std::deque<elected_work*> queued_;  // in that queue, not launched
  std::vector<elected_work*> live_;   // not delivered
  elected_work* in_parts_ = nullptr;  // until its second part is queued, it holds those behind it
  std::error_code failed_;
  pack_memory memory_;
};

}  // namespace cohort::nccl

#endif
