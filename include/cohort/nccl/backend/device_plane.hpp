// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What a coordinator has elected on a device: packed, launched in the order of the log, unpacked.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/comm/joint.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/device/pinned_vector.hpp>
#include <cohort/device/vector.hpp>
#include <cohort/nccl/backend.hpp>
#include <cohort/nccl/backend/pack_moves.hpp>
#include <cohort/nccl/backend/treatment.hpp>
#include <cohort/nccl/communicator.hpp>
#include <cohort/nccl/extra/captured_graph.hpp>
#include <cohort/nccl/extra/fusion_arena.hpp>
#include <cohort/nccl/extra/step_times.hpp>
#include <cohort/nccl/queue/look_condition.hpp>

#include <array>
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

/// What a submission has touched.
class submission_mark final : public comm::device_mark {
 public:
  std::vector<buffer_use> uses;
  std::vector<device::event> after;
};

/// One elected operation in the issuing queue.
class elected_work final : public work, public work_steps {
 public:
  elected_work(std::shared_ptr<device_plane> plane, comm::device_call& what,
               comm::backend_completion done);

  /// Decides which tensors travel together.
  void lay_out();
  /// Queues what comes before the calls of NCCL, on the stream for packing. False: the buffer is
  /// still in use by a pack that has not been launched.
  bool pack();

  void prepare(const device::stream& domain) override;
  [[nodiscard]] cudaStream_t calls_on(const device::stream& domain) const override;
  [[nodiscard]] device::event conclude(const device::stream& domain) override;
  [[nodiscard]] std::optional<device::event> give_up(std::vector<buffer_use>& used) override;
  [[nodiscard]] bool end_in_lap() override;

 private:
  friend class device_plane;
  /// Of an arena.
  struct range {
    std::byte* begin;
    std::size_t bytes;
  };
  /// Tensors that one call reduces, or broadcasts.
  struct run {
    std::size_t first;
    std::size_t tensors;
    std::size_t begin;  // in the buffer, if they are packed
    std::size_t bytes;
    treatment how;
    bool packed;
    std::optional<range> direct;  // where they lie side by side in an arena
  };
  /// A result that is not in a pack, where NCCL has put it.
  struct final_step {
    const comm::device_tensor* tensor;
    treatment how;
    const void* from;
    std::size_t count;
  };
  struct timed_until_here;
  static void deliver(progress::operation* base, action what);
  /// Takes it off the lists of the plane. Whether somebody waits for it.
  [[nodiscard]] bool let_go();
  [[nodiscard]] std::span<const comm::device_tensor> tensors() const { return what_->tensors; }
  [[nodiscard]] std::byte* take_room(std::size_t bytes);
  [[nodiscard]] const void* input_of(const comm::device_tensor& tensor, const treatment& how);
  /// The stream for packing, behind what the buffers' streams had queued at submission.
  [[nodiscard]] const device::stream& packing();
  void begin_capture(const device::stream& domain);
  void prepare_replay();
  void bring_all();
  void take_all(const device::stream& on);
  void finish(const comm::device_tensor& tensor, const treatment& how, const void* from,
              std::size_t count);
  [[nodiscard]] treatment treatment_of(const comm::device_tensor& of) const;
  void lay_out_alike(std::size_t first, std::size_t count, const treatment& how);
  [[nodiscard]] void* room_for(const comm::device_tensor& tensor, std::size_t count);
  // See detail/fusion_arena.ipp.
  [[nodiscard]] std::optional<range> range_of(std::size_t first, std::size_t count) const;
  [[nodiscard]] const void* readable(const void* data, std::size_t size);
  [[nodiscard]] void* writable(void* data, std::size_t size);
  [[nodiscard]] std::byte* pack_memory() const;
  void make_calls();
  void call_fused();
  void call_host();
  [[nodiscard]] std::pair<std::size_t, std::size_t> result_in(
      const comm::device_tensor& tensor) const;
  void call_reduce();
  void call_reduce_scatter();
  void call_all_gather();
  void call_all_to_all();
  void call_blocks();
  void call_rooted();
  void call_message();
  call& add(call::kind kind, const element& as, const void* from, void* to, std::size_t count,
            std::size_t size, int root = 0);
  template <class Visit>
  void for_each_packed(Visit visit) const;

  std::shared_ptr<device_plane> plane_;
  comm::device_call* what_;  // null: nobody waits for it any more
  comm::backend_completion done_;
  comm::device_use use_;
  std::shared_ptr<captured_calls> graph_;  // captured here, or replayed
  enum class stage : std::uint8_t { whole, within_node, between_nodes, back };
  stage stage_ = stage::whole;
  bool by_host_ = false;               // NCCL cannot: MPI reduces over all ranks of the set
  until wanted_ = until::complete;     // of the caller; the first of two parts is always complete
  std::vector<buffer_use> kept_uses_;  // while that is under way
  std::vector<run> runs_;
  std::vector<final_step> finals_;
  std::vector<device::batch_part> brought_;  // from other memory, since the output is registered
  std::size_t packed_bytes_ = 0;
  std::size_t block_ = 0;  // which buffer
  std::uint64_t turn_ = 0;
  bool has_turn_ = false;
  bool prepared_ = false;
  bool packs_ = false;                            // something of it is on the stream for packing
  std::optional<device::event> ready_;            // which is over then
  std::unique_ptr<step_times::operation> timed_;  // while somebody records
  std::uint64_t timed_number_ = 0;
};

/// The backend of one coordinator. Its state is guarded by the lock of the issuing source, but for
/// what is constant.
class device_plane final : public comm::device_backend,
                           public std::enable_shared_from_this<device_plane> {
 public:
  explicit device_plane(const backend_options& options);
  ~device_plane() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }
  void facts(std::vector<std::pair<std::string, std::uint64_t>>& all) const override;
  void attach(const cohort::communicator& parent) override;
  void open(std::uint32_t set, const cohort::communicator& over,
            std::function<void(std::exception_ptr)> done) override;
  void reserve(std::uint32_t set) override;
  [[nodiscard]] bool reduces_on_host() const noexcept override { return options_.host_path; }
  [[nodiscard]] std::string refuses(const comm::device_call& what) const override;
  [[nodiscard]] bool casts() const noexcept override { return true; }
  [[nodiscard]] bool makes_arenas() const noexcept override { return true; }
  [[nodiscard]] comm::arena_place place_of(const void* data, std::size_t bytes,
                                           std::shared_ptr<const void>& lease) const override;
  [[nodiscard]] std::shared_ptr<comm::device_graph> make_graph(const std::string& name) override;
  [[nodiscard]] std::shared_ptr<comm::device_mark> mark(
      std::span<const comm::device_buffer> buffers, const stream_ref& on) override;
  [[nodiscard]] stream_ref results() override;
  void add_result(comm::device_mark& to, const comm::device_buffer& made) override;
  void start(comm::device_call& what, comm::backend_completion done) override;
  void sizes_known(comm::device_call& what) override;
  [[nodiscard]] comm::device_buffer keep(const comm::device_buffer& of,
                                         std::shared_ptr<comm::device_mark>& mark) override;
  bool deadline_passed(comm::device_call& what) override;
  void fail(std::error_code why, const std::string& text) override;
  bool forget(const comm::request_operation& op) override;
  [[nodiscard]] std::string device_name() const override;
  void record_times(bool yes) override;
  void take_times(const std::function<void(const comm::device_span&)>& visit) override;
  void close(std::uint32_t set) override;

 private:
  friend class elected_work;
  /// The communicator of a set.
  struct set_state {
    communicator comm;               // empty while it is being made
    communicator node;               // hierarchical, and there are several nodes
    cohort::communicator leaders;    // of the nodes; empty on other ranks
    cohort::communicator everybody;  // for what NCCL cannot reduce, with that option
    std::error_code failed;
  };
  /// An arena that is being made.
  struct arena_job {
    comm::device_call* what;  // null: nobody waits for it any more
    comm::backend_completion done;
    std::vector<std::uint32_t> sets;  // opened before it
  };
  /// An operation that was started, or a set that was opened or an arena that was made after it.
  struct held {
    elected_work* op = nullptr;
    std::function<void()> begin_opening{};  // of what is no operation; empty: only reserved
    std::uint32_t set = 0;                  // of a place that is reserved
  };
  /// Memory for packs. A pack may be laid there when the one before has been launched: then it is
  /// known which event ends that one's use.
  struct block {
    device::vector<std::byte> memory;
    std::optional<device::event> used;
    std::uint64_t given = 0;  // turns
    std::uint64_t over = 0;
    std::vector<std::uint64_t> later;  // turns that ended before some that were given earlier

    void end(std::uint64_t turn) {
      later.push_back(turn);
      while (std::erase(later, over) != 0) ++over;
    }
  };
  /// Pinned memory through which host code works on a stream's data, piece by piece.
  static constexpr std::size_t staging_bytes = std::size_t{1} << 18U;
  static constexpr std::size_t between_bytes = std::size_t{1} << 23U;  // the same between nodes

  void made(std::uint32_t set, set_state its, std::exception_ptr why);
  void submit_what_can_be(std::vector<work*>& ended);
  [[nodiscard]] std::deque<held>::iterator reserved(std::uint32_t set);
  void pack_ahead() noexcept;
  void call_at_look(std::function<void()> what) const;
  void finish_outside(std::vector<work*>& ended);
  [[nodiscard]] progress::look_task<set_state> make_set(cohort::communicator over, turn place,
                                                        turn node_place,
                                                        std::optional<turn> arena_place);
  [[nodiscard]] progress::look_task<> make_node(cohort::communicator node, turn place,
                                                set_state& its);
  [[nodiscard]] progress::look_task<> take_what_blocks();
  // See detail/fusion_arena.ipp.
  void start_arena(comm::device_call& what, comm::backend_completion done);
  void begin_arena(const std::shared_ptr<arena_job>& job);
  [[nodiscard]] progress::look_task<> make_arena(std::shared_ptr<arena_job> job, turn place);
  void arena_made(const std::shared_ptr<arena_job>& job, std::error_code why);
  [[nodiscard]] progress::look_task<> enlist_all_on(std::shared_ptr<communicator_state> comm,
                                                    turn place);
  static void enlist_on(communicator_state& comm, const fusion_memory& memory);
  [[nodiscard]] bool registers() const noexcept;
  [[nodiscard]] bool is_registered(const void* data) const;
  void go_between(elected_work& op);
  /// One reduction of MPI, in a piece.
  struct between_part {
    std::size_t offset;
    std::size_t count;
    MPI_Datatype type;
    MPI_Op operation;
    int root;  // -1: all get the result
  };
  /// Of a pack, what is copied to the host and back at a time.
  struct between_piece {
    std::byte* at;
    std::size_t bytes;
    std::vector<between_part> parts;
  };
  [[nodiscard]] static std::string not_of_mpi(const comm::device_call& what);
  [[nodiscard]] bool goes_by_host(const comm::device_call& what) const noexcept;
  [[nodiscard]] std::vector<between_piece> pieces_of(const elected_work& op);
  [[nodiscard]] std::vector<between_piece> pieces_for_host(const elected_work& op);
  [[nodiscard]] progress::look_task<> reduce_between(std::vector<between_piece> pieces,
                                                     cohort::communicator over);
  [[nodiscard]] progress::look_task<> reduce_piece(const between_piece& piece,
                                                   cohort::communicator over);
  void come_back(elected_work& op, std::exception_ptr why);
  // See detail/overdue.ipp.
  [[nodiscard]] std::string what_holds(const elected_work& op) const;
  [[nodiscard]] bool is_overdue(elected_work& op);
  void tell_overdue(const comm::device_call& what, std::uint64_t sequence, const std::string& text);
  void run_moves(const device::stream& on, device::pinned_vector<std::byte>& staging,
                 captured_calls* graph);
  [[nodiscard]] bool is_device() const noexcept {
    return device_ >= 0 && device_ < device::detail::most_devices;
  }
  void check_stream(const device::stream& one, const char* field) const;
  void check_buffer(const comm::device_buffer& one) const;

  backend_options options_;
  int device_;
  issue_source* source_ = nullptr;
  std::map<std::uint32_t, set_state> sets_;
  std::deque<held> held_;             // not in the issuing queue yet
  std::deque<elected_work*> queued_;  // in that queue, not launched
  elected_work* between_ = nullptr;   // of two parts, the second is not in the queue: it holds all
  std::vector<elected_work*> live_;   // not delivered
  std::error_code failed_;
  std::shared_ptr<fusion_table> arenas_ = std::make_shared<fusion_table>();
  std::vector<std::shared_ptr<arena_job>> arena_jobs_;
  bool arenas_made_ = false;  // at this position of the log
  std::optional<device::stream> packing_;
  std::optional<device::stream> unpacking_;
  std::optional<device::stream> results_;  // memory is taken there, and nothing waits
  std::array<block, 2> blocks_;
  std::uint64_t packs_ = 0;
  pack_moves moves_;  // of one pack; empty between
  std::shared_ptr<const pack_kernels> kernels_;
  std::string no_kernels_;  // why, until that is told
  device::pinned_vector<std::byte> pack_staging_;
  device::pinned_vector<std::byte> unpack_staging_;
  step_times times_;
  std::shared_ptr<device::pinned_vector<std::byte>> graph_staging_;
};

}  // namespace cohort::nccl

#endif
