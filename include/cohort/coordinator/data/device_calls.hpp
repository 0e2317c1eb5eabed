// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a backend for devices is told of an operation, and when.

#include <cohort/comm/device_backend.hpp>
#include <cohort/coordinator/data/whole_calls.hpp>
#include <cohort/coordinator/instance.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <system_error>
#include <utility>

namespace cohort::coordination {

/// One tensor of an operation on a device, as this rank sees it, which is `rank` of the set.
[[nodiscard]] inline tensor device_tensor_of(const tensor& what, const task& of, int rank) {
  tensor one = what;
  const bool is_root = of.root == rank;
  if (!brings_data(of.kind, is_root)) one.in = nullptr;
  if (!gets_result(of.kind, is_root)) one.out = nullptr;
  if (what.kernels->element == unnamed_element && of.code == reduction_code::no_reduction) {
    one.count = what.bytes();
    one.kernels = &kernels_of<std::byte>;
  }
  if (one.operation == MPI_OP_NULL && one.kernels->operation != nullptr) {
    one.operation = one.kernels->operation(of.code);  // neutral elements, by a number
  }
  take_factors(one, of);
  return one;
}

/// Of the operation of a task alone; what is known when it is elected is in its tensors then.
inline void describe(comm::device_call& call, const task& of, int rank) {
  call.kind = of.kind;
  call.reduction = of.code;
  call.root = std::max(of.kind == op_kind::message ? of.peer : of.root, 0);
  call.verb = of.verb().data();
  if (of.kind == op_kind::arena_add) call.reserves = of.row_bytes;
  for (std::size_t i = 0; i < of.tensors(); ++i) {
    if (of[i].kernels != nullptr) call.tensors.push_back(device_tensor_of(of[i], of, rank));
  }
}

/// What the backend has made, once the operation has ended.
inline void hand_over_arena(task& of, comm::device_call& made) {
  auto arena = std::move(made.arena);
  if (of.kind != op_kind::arena_add || of.context == nullptr) return;
  *static_cast<std::shared_ptr<comm::device_arena>*>(of.context) = std::move(arena);
}

/// The call of an execution on device memory. It takes its place among the launches when its turn
/// comes; sizes, if it has any, are exchanged over MPI beside that.
template <class Any>
class device_calls {
 public:
  explicit device_calls(basic_execution<Any>& of) noexcept : of_(of) {}

  std::unique_ptr<comm::device_call> call;  ///< made by the first that is on a device
  bool has_it = false;                      ///< the device, and may touch memory of callers

  // It takes its place among the launches before the sizes are known: these are exchanged beside
  // it.
  void start() {
    fill();
    if (of_.sized() && of_.known) add_sizes();
    auto on = of_.new_lane();
    on->on_device = true;
    auto& lanes = of_.plane_.with_device_;
    if (lanes.size() == lanes.capacity()) lanes.reserve(2 * lanes.size() + 8);
    of_.plane_.device_->start(*call, comm::backend_completion(of_.plane_.state_->engine, *on));
    has_it = true;
    on->waits_for_turn_ = true;  // without a request, and not at its end
    lanes.push_back(on.get());
    if (!of_.exchanges()) of_.count(*on, of_.bytes_);
    static_cast<void>(on.release());
    if (!of_.exchanges()) return;
    auto beside = of_.new_lane();
    of_.sizes_.exchange(*beside);
    static_cast<void>(beside.release());
  }
  /// Either the device is done, or the sizes are there.
  void go_on(lane& on) {
    if (on.on_device) return hand_over_arena(*of_.tasks.front(), *call);
    of_.sizes_.take();
    of_.plane_.queue_.exchanged(of_.log_count);
    add_sizes();
    of_.plane_.device_->sizes_known(*call);
    of_.count(on, of_.bytes_);
    of_.plane_.run();
  }
  void reset() noexcept {
    if (!call) return;
    call->tensors.clear();
    call->marks.clear();
    call->sent.clear();
    call->received.clear();
    call->use = comm::device_use::run;
    call->graph.reset();
    call->arena.reset();
  }

 private:
  /// What of the call is known now: all but the sizes of all_gather and all_to_all.
  void fill() {
    if (!call) call = std::make_unique<comm::device_call>();
    comm::device_call& given = *call;
    given.sequence = of_.log_count;
    given.set = of_.here->set;
    given.sized = !of_.exchanges();
    bool own = false;
    bool enqueued = true;
    for (const task* each : of_.tasks) {
      describe(given, *each, of_.here->rank);
      if (!each->device) continue;
      given.marks.insert(given.marks.end(), each->device->marks.begin(), each->device->marks.end());
      if (each->device->graph) {
        given.use = each->device->use;
        given.graph = each->device->graph;
      }
      if (!each->linked) continue;
      own = true;
      enqueued = enqueued && each->device->ends == until::enqueued;
    }
    given.ends = own && enqueued ? until::enqueued : until::complete;
  }
  /// All ranks' sizes are there: makes the result.
  void add_sizes() {
    task& only = *of_.tasks.front();
    comm::device_call& given = *call;
    const std::vector<std::int64_t>& come = of_.rows->rows;
    if (only.make_result != nullptr) {
      const auto& buffers = only.use_device().buffers;
      only.device->results = of_.plane_.device_->results();
      const std::size_t before = buffers.size();
      given.tensors.front().out = only.make_result(only, come);
      for (std::size_t i = 1; i < given.tensors.size(); ++i) given.tensors[i].out = only[i].out;
      for (std::size_t i = before; i < buffers.size(); ++i) {
        of_.plane_.device_->add_result(*only.device->marks.front(), buffers[i]);
      }
    }
    of_.bytes_ = 0;
    for (const std::int64_t one : come) {
      given.received.push_back(static_cast<std::size_t>(one) * only.row_bytes);
      of_.bytes_ += given.received.back();
    }
    const bool same = only.kind == op_kind::all_gather;  // the whole for every rank
    for (std::size_t i = 0; i < come.size(); ++i) {
      const std::size_t k = same ? 0 : i;
      given.sent.push_back(
          k < only.sizes.size() ? static_cast<std::size_t>(only.sizes[k]) * only.row_bytes : 0);
    }
  }

  basic_execution<Any>& of_;
};

}  // namespace cohort::coordination
