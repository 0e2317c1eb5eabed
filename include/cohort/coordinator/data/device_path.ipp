// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of coordinator/data/data_plane.hpp for operations on device memory.

#include <cohort/coordinator/data/data_plane.hpp>

#include <cohort/coordinator/data/device_call.hpp>

namespace cohort::coordination {

/// What of the call is known now: all but the sizes of all_gather and all_to_all.
template <class Any>
void basic_execution<Any>::fill_device_call() {
  if (!device_call_) device_call_ = std::make_unique<comm::device_call>();
  comm::device_call& given = *device_call_;
  given.sequence = log_count;
  given.set = here->set;
  given.sized = !exchanges();
  bool own = false;
  bool enqueued = true;
  for (const task* each : tasks) {
    const std::size_t first = given.tensors.size();
    describe(given, *each, here->rank);
    for (std::size_t i = first; i < given.tensors.size(); ++i) {
      comm::device_tensor& one = given.tensors[i];
      if (each->code == reduction_code::average) one.divisor = divisor(*each);
      one.all_bring = each->kind == op_kind::message ||
                      each->contributors == static_cast<std::uint64_t>(here->size);
    }
    if (!each->device) continue;
    given.marks.insert(given.marks.end(), each->device->marks.begin(), each->device->marks.end());
    if (each->device->captured) {
      given.use = each->device->use;
      given.graph = each->device->captured->graph;
    }
    if (!each->linked) continue;
    own = true;
    enqueued = enqueued && each->device->ends == until::enqueued;
  }
  given.ends = own && enqueued ? until::enqueued : until::complete;
}

// It takes its place among the launches before the sizes are known: these are exchanged beside it.
template <class Any>
void basic_execution<Any>::start_device() {
  fill_device_call();
  if (sized() && known) size_device_call();
  begin([this](lane& on) {
    on.on_device = true;
    auto& lanes = plane_.with_device_;
    if (lanes.size() == lanes.capacity()) lanes.reserve(2 * lanes.size() + 8);
    plane_.device_->start(*device_call_, comm::backend_completion(plane_.state_->engine, on));
    device_has_it_ = true;
    on.waits_for_turn_ = true;  // without a request, and not at its end
    lanes.push_back(&on);
    if (!exchanges()) count(on, bytes_);
  });
  if (exchanges()) begin([this](lane& on) { post_exchange(on); });
}

/// All ranks' sizes are there: makes the result.
template <class Any>
void basic_execution<Any>::size_device_call() {
  task& only = *tasks.front();
  comm::device_call& given = *device_call_;
  const std::vector<std::int64_t>& come = rows->rows;
  if (only.make_result != nullptr) {
    const auto& buffers = only.use_device().buffers;
    only.device->results = plane_.device_->results();
    const std::size_t before = buffers.size();
    given.tensors.front().out = only.make_result(only, come);
    for (std::size_t i = 1; i < given.tensors.size(); ++i) given.tensors[i].out = only[i].out;
    for (std::size_t i = before; i < buffers.size(); ++i) {
      plane_.device_->add_result(*only.device->marks.front(), buffers[i]);
    }
  }
  bytes_ = 0;
  for (const std::int64_t one : come) {
    given.received.push_back(static_cast<std::size_t>(one) * only.row_bytes);
    bytes_ += given.received.back();
  }
  const bool same = only.kind == op_kind::all_gather;  // the whole for every rank
  for (std::size_t i = 0; i < come.size(); ++i) {
    const std::size_t k = same ? 0 : i;
    given.sent.push_back(
        k < only.sizes.size() ? static_cast<std::size_t>(only.sizes[k]) * only.row_bytes : 0);
  }
}

/// Either the device is done, or the sizes are there.
template <class Any>
bool basic_execution<Any>::step_on_device(lane& on) {
  if (on.on_device) {
    std::erase(plane_.with_device_, &on);
    on.waits_for_turn_ = false;
    device_has_it_ = false;
  }
  if (given_up_) return false;
  if (on.failed()) broke(on.error());
  if (on.on_device && !failed_) hand_over_arena(*tasks.front(), *device_call_);
  if (!on.on_device && !failed_) {
    try {
      exchanged_ = true;
      take_sizes();
      plane_.queue_.exchanged(log_count);
      size_device_call();
      plane_.device_->sizes_known(*device_call_);
      count(on, bytes_);
      plane_.run();
    } catch (const std::system_error& problem) {
      broke(problem.code());
    } catch (...) {
      broke(std::make_error_code(std::errc::not_enough_memory));
    }
  }
  lane_ended(on);
  return false;
}

template <class Any>
bool basic_data_plane<Any>::deadline_passed(const task& over) {
  for (const lane* each : with_device_) {
    execution* const owner = each->owner_;
    if (owner == nullptr || &owner->plane_ != this) continue;
    const auto& tasks = owner->tasks;
    if (std::find(tasks.begin(), tasks.end(), &over) == tasks.end()) continue;
    return device_->deadline_passed(*owner->device_call_);
  }
  return false;
}

}  // namespace cohort::coordination
