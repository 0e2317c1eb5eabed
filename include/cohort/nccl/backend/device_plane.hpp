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
#include <cohort/nccl/backend.hpp>
#include <cohort/nccl/backend/elected_work.hpp>
#include <cohort/nccl/backend/pack_memory.hpp>
#include <cohort/nccl/backend/submissions.hpp>
#include <cohort/nccl/communicator.hpp>
#include <cohort/nccl/extra/fusion_arena.hpp>
#include <cohort/nccl/extra/host_path.hpp>
#include <cohort/nccl/extra/step_times.hpp>

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

/// Of one set.
struct device_set {
  communicator comm;               // empty while it is being made
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

 private:
  [[nodiscard]] progress::look_task<device_set> make(cohort::communicator over, turn place,
                                                     turn node_place,
                                                     std::optional<turn> arena_place);
  [[nodiscard]] progress::look_task<> make_node(cohort::communicator node, turn place,
                                                device_set& its);
  void begin(std::uint32_t set, const cohort::communicator& over,
             const std::function<void(std::exception_ptr)>& done);
  void made(std::uint32_t set, device_set its, const std::exception_ptr& why);
  [[nodiscard]] detail::making what_to_make(turn place, detail::problem bad = {}) const;

  device_plane& plane_;
  std::map<std::uint32_t, device_set> all_;
};

/// The backend of one coordinator. Its state is guarded by the lock of the issuing source, but for
/// what is constant.
class device_plane final : public comm::device_backend,
                           public std::enable_shared_from_this<device_plane> {
 public:
  explicit device_plane(const backend_options& options);

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
                                           std::shared_ptr<const void>& lease) const override {
    return arenas_.place_of(data, bytes, lease);
  }
  [[nodiscard]] std::shared_ptr<comm::device_graph> make_graph(const std::string& name) override;
  [[nodiscard]] std::shared_ptr<comm::device_mark> mark(
      std::span<const comm::device_buffer> buffers, const stream_ref& on) override {
    return submissions_.mark(buffers, on);
  }
  [[nodiscard]] stream_ref results() override { return submissions_.results(); }
  void add_result(comm::device_mark& to, const comm::device_buffer& made) override {
    submissions_.add_result(to, made);
  }
  void start(comm::device_call& what, comm::backend_completion done) override;
  void sizes_known(comm::device_call& what) override {
    change([&](auto&) { what.sized = true; });
  }
  [[nodiscard]] comm::device_buffer keep(const comm::device_buffer& of,
                                         std::shared_ptr<comm::device_mark>& mark) override {
    return submissions_.keep(of, mark);
  }
  bool deadline_passed(comm::device_call& what) override;
  void fail(std::error_code why, const std::string& text) override;
  bool forget(const comm::request_operation& op) override;
  [[nodiscard]] std::string device_name() const override;
  void record_times(bool yes) override;
  void take_times(const std::function<void(const comm::device_span&)>& visit) override;
  void close(std::uint32_t set) override;

 private:
  friend class device_sets;
  friend class elected_work;
  friend class elected_calls;
  friend class fusion_arenas;
  friend class host_path;
  /// An operation that was started, or a set that was opened or an arena that was made after it.
  struct held {
    elected_work* op = nullptr;
    std::function<void()> begin{};  // of what is no operation; empty: only reserved
    std::uint32_t set = 0;          // of a place that is reserved
  };

  /// Calls `function(ended)` with the lock, and then issues what can be. What has `ended` is told
  /// by the next look.
  template <class Function>
  void change(Function function) {
    std::vector<work*> ended;
    source_->exclusively([&] {
      function(ended);
      submit_what_can_be(ended);
    });
    source_->end_at_next_look(ended);
    source_->wake();
  }
  void hold(held one) { held_.push_back(std::move(one)); }
  void hold_opening(std::uint32_t set, std::function<void()> begin);
  [[nodiscard]] std::deque<held>::iterator reserved(std::uint32_t set);
  void submit_what_can_be(std::vector<work*>& ended);
  void begin(elected_work& op, const device_set& set);
  void queue(elected_work& op, std::vector<work*>& ended);
  void pack_ahead() noexcept;
  void forget(elected_work& op) noexcept;
  void call_at_look(std::function<void()> what) const;
  // See backend/overdue.ipp.
  [[nodiscard]] std::string what_holds(const elected_work& op);
  [[nodiscard]] bool is_overdue(elected_work& op);
  void tell_overdue(const comm::device_call& what, std::uint64_t sequence, const std::string& text);
  [[nodiscard]] bool is_device() const noexcept {
    return device_ >= 0 && device_ < device::detail::most_devices;
  }

  backend_options options_;
  int device_;
  issue_source* source_ = nullptr;
  device_sets sets_;
  std::deque<held> held_;             // not in the issuing queue yet
  std::deque<elected_work*> queued_;  // in that queue, not launched
  std::vector<elected_work*> live_;   // not delivered
  std::error_code failed_;
  submissions submissions_;
  pack_memory memory_;
  // Of the room `extra`.
  fusion_arenas arenas_;
  host_path host_;
  step_times times_;
};

}  // namespace cohort::nccl

#endif
