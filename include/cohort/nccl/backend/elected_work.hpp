// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// One operation that a coordinator has elected on a device: packed, called, unpacked.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/device/batch.hpp>
#include <cohort/nccl/backend/pack_layout.hpp>
#include <cohort/nccl/backend/pack_memory.hpp>
#include <cohort/nccl/backend/submissions.hpp>
#include <cohort/nccl/extra/captured_graph.hpp>
#include <cohort/nccl/extra/step_times.hpp>
#include <cohort/nccl/queue/work.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::nccl {

class device_plane;

/// In the issuing queue. Guarded by its lock.
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
  friend class elected_calls;
  friend class host_path;
  /// A result that is not in a pack, where NCCL has put it.
  struct final_step {
    const comm::tensor* tensor;
    treatment how;
    const void* from;
    std::size_t count;
  };
  struct timed_until_here;
  static void deliver(progress::operation* base, action what);
  /// Takes it off the lists of the plane. Whether somebody waits for it.
  [[nodiscard]] bool let_go();
  [[nodiscard]] std::span<const comm::tensor> tensors() const { return what_->tensors; }
  [[nodiscard]] std::byte* buffer() const;
  /// The stream for packing, behind what the buffers' streams had queued at submission.
  [[nodiscard]] const device::stream& packing();
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
  std::shared_ptr<captured_calls> graph_;  // captured here, or replayed
  // Of two parts, where MPI reduces between them: see extra/host_path.hpp.
  enum class stage : std::uint8_t { whole, within_node, between_nodes, back };
  stage stage_ = stage::whole;
  bool by_host_ = false;               // NCCL cannot: MPI reduces over all ranks of the set
  until wanted_ = until::complete;     // of the caller; the first of two parts is always complete
  std::vector<buffer_use> kept_uses_;  // while that is under way
  pack_layout layout_;
  std::vector<final_step> finals_;
  std::vector<device::batch_part> brought_;  // from other memory, since the output is registered
  pack_memory::block* block_ = nullptr;      // where its pack lies
  std::optional<std::uint64_t> turn_;        // there, until that is over
  bool prepared_ = false;
  bool packs_ = false;                            // something of it is on the stream for packing
  std::optional<device::event> ready_;            // which is over then
  std::unique_ptr<step_times::operation> timed_;  // while somebody records
  std::uint64_t timed_number_ = 0;
};

/// Makes the calls of one, and notes what is to be done to their results.
class elected_calls {
 public:
  explicit elected_calls(elected_work& op);
  void make();

 private:
  call& add(op_kind kind, const element& as, const void* from, void* to, std::size_t count,
            std::size_t size, int root = 0);
  /// Of bytes.
  void move(op_kind kind, const void* from, void* to, std::size_t bytes, int root = 0) {
    add(kind, element{ncclUint8}, from, to, bytes, 1, root);
  }
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

}  // namespace cohort::nccl

#endif
