// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What takes part in an operation that nobody waits for on this rank.

#include <cohort/coordinator/bundle.hpp>
#include <cohort/coordinator/instance.hpp>
#include <cohort/core/copy.hpp>
#include <cohort/protocol/validation.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace cohort::coordination {

template <class Any>
class negotiation;

/// What a rank that has joined does in an operation of the others: it brings neutral elements, and
/// takes what comes into memory of its own. Also what stands in for an operation whose awaiter has
/// given up: it brings a copy of the data, or takes part in making a process set and lets go of it
/// [protocol W4].
class stand_in final : public task {
 public:
  explicit stand_in(const protocol::signature& sig = protocol::signature()) : task(&run) {
    take(sig);
    space = sig.space;
  }
  std::vector<std::byte> memory;  ///< for what comes, and for neutral elements
  std::vector<std::byte> inputs;  ///< copied data
  std::unique_ptr<creation> set;  ///< that is being made
  /// For `make_result`.
  static void* own_result(task& self, std::span<const std::int64_t> rows) {
    std::size_t all = 0;
    for (const std::int64_t one : rows) all += static_cast<std::size_t>(one);
    auto& memory = static_cast<stand_in&>(self).memory;
    memory.resize(all * self.row_bytes);
    return memory.data();
  }

 private:
  static void run(operation* base, action) { delete static_cast<stand_in*>(base); }
};

/// One tensor for each member of a bundle.
COHORT_INLINE void take_members(stand_in& one, const protocol::signature& sig, bool with_counts) {
  const auto members = parse_members(sig.members);
  if (!members) {
    throw protocol::protocol_error(protocol::fault::malformed, "a bundle of '" + sig.members + "'");
  }
  one.others.resize(members->size() - 1);
  for (std::size_t i = 0; i < members->size(); ++i) {
    tensor& each = one[i];
    each.kernels = kernels_for((*members)[i].element);
    if (with_counts) each.count = static_cast<std::size_t>((*members)[i].count);
  }
}

/// Neutral elements for an operation of the others.
template <class Any>
std::unique_ptr<stand_in> make_neutral(const protocol::signature& sig, set_view<Any>& set) {
  auto one = std::make_unique<stand_in>(sig);
  one->view = &set;
  one->root = set.inside(sig.root);
  const std::size_t count = static_cast<std::size_t>(sig.dimensions.elements());
  tensor& only = one->first;
  const bool named = sig.element != unnamed_element;
  only.kernels = named ? kernels_for(sig.element) : &kernels_of<std::byte>;
  only.count = named ? count : count * sig.element_size;
  if (sig.kind == op_kind::barrier) only = tensor{};
  if (sig.kind == op_kind::message) {
    one->sends = one->root == set.rank();
    one->peer = one->sends ? set.inside(static_cast<int>(sig.detail)) : one->root;
  }
  const bool on_device = sig.space != memory_space::host;  // its backend brings them
  if (is_sized(sig.kind)) {
    one->row_bytes = count * sig.element_size;
    if (!on_device) one->make_result = &stand_in::own_result;
    only.count = 0;
    if (on_device && !sig.members.empty()) {
      take_members(*one, sig, false);
      one->row_counts = one->tensors();
      one->row_bytes = 1;
    }
    return one;
  }
  // Else one block of bytes.
  if (!sig.members.empty() && sig.detail == 0) take_members(*one, sig, true);
  if (on_device) return one;
  // reduce_scatter has its result behind its input.
  const std::size_t parts = sig.kind == op_kind::reduce_scatter ? 2 : 1;
  const auto room_of = [](const tensor& what) { return packs::aligned(what.bytes()); };
  std::size_t room = 64;
  for (std::size_t i = 0; i < one->tensors(); ++i) {
    if ((*one)[i].kernels != nullptr) room += parts * room_of((*one)[i]);
  }
  one->memory.resize(room);
  std::byte* at = one->memory.data();
  for (std::size_t i = 0; i < one->tensors(); ++i) {
    tensor& each = (*one)[i];
    if (each.kernels == nullptr) continue;
    each.in = at;
    each.out = parts == 2 ? at + room_of(each) : at;
    if (each.kernels->operation != nullptr) each.operation = each.kernels->operation(one->code);
    if (each.kernels->fill != nullptr) each.kernels->fill(at, each.count, one->code);
    at += parts * room_of(each);
  }
  if (sig.kind == op_kind::reduce_scatter && sig.members.empty()) {
    const auto rows = sig.dimensions.size() == 0 ? std::int64_t{1} : sig.dimensions[0];
    const auto row = rows == 0 ? std::size_t{0} : count / static_cast<std::size_t>(rows);
    for (int rank = 0; rank < set.size(); ++rank) {
      const std::size_t mine = part_of(static_cast<std::size_t>(rows), rank, set.size());
      one->sizes.push_back(static_cast<std::int64_t>(mine * row));
    }
  }
  return one;
}

/// The data of an operation whose awaiter has given up, in memory of the backend. What comes is not
/// wanted.
template <class Any>
void keep_for(negotiation<Any>& log, task& copy, const task& one) {
  const set_view<Any>& set = *one.view;
  const bool reads = brings_data(one.kind, one.root == set.rank());
  if (one.device->use != comm::device_use::run) {
    // It is about the group's own memory, which lives as long as the group.
    device_part& part = copy.use_device();
    part.buffers = one.device->buffers;
    part.marks = one.device->marks;
    part.use = one.device->use;
    part.graph = one.device->graph;
    return;
  }
  for (std::size_t i = 0; i < one.tensors(); ++i) {
    tensor& to = copy[i];
    const void* const from = std::exchange(to.in, nullptr);
    to.out = nullptr;
    if (!reads || to.kernels == nullptr || to.bytes() == 0 || one.device->marks.empty()) continue;
    for (const comm::device_buffer& each : one.device->buffers) {
      if (each.data != from) continue;
      std::shared_ptr<comm::device_mark> mark = one.device->marks.front();
      comm::device_buffer kept = log.device->keep(each, mark);
      to.in = kept.data;
      device_part& part = copy.use_device();
      part.buffers.push_back(std::move(kept));
      part.marks.push_back(std::move(mark));
      break;
    }
  }
}

/// For an operation whose awaiter has given up.
template <class Any>
task* stand_in_for(negotiation<Any>& log, const task& one) {
  const set_view<Any>& set = *one.view;
  auto copy = std::make_unique<stand_in>();
  copy->kind = one.kind;
  copy->space = one.space;
  copy->flags = one.flags;
  copy->code = one.code;
  copy->root = one.root;
  copy->peer = one.peer;
  copy->sends = one.sends;
  copy->prescale = one.prescale;
  copy->postscale = one.postscale;
  copy->first = one.first;
  copy->others = one.others;
  copy->sizes = one.sizes;
  copy->row_bytes = one.row_bytes;
  copy->row_counts = one.row_counts;
  copy->made = one.made;
  if (is_persistent(one.kind)) copy->context = one.context;  // the group stays
  copy->name = one.name;
  copy->epoch = one.epoch;
  copy->view = one.view;
  if (one.kind == op_kind::barrier && log.node.name(one.name).listed) {
    copy->set = std::make_unique<creation>(*static_cast<creation*>(one.context));
    copy->context = copy->set.get();
    copy->operation_ref = one.operation_ref;
    return copy.release();
  }
  if (one.space != memory_space::host) {
    keep_for(log, *copy, one);
    return copy.release();
  }
  if (one.make_result != nullptr) copy->make_result = &stand_in::own_result;
  // Inputs are copied, and what comes goes behind them.
  const bool is_root = one.root == set.rank();
  const bool reads = brings_data(one.kind, is_root);
  const std::size_t results =
      one.kind == op_kind::gather && is_root ? static_cast<std::size_t>(set.size()) : 1;
  const auto room_of = [](const tensor& what) {
    return what.kernels == nullptr ? 0 : packs::aligned(what.place_of(what.bytes()));
  };
  std::size_t room = 64;
  for (std::size_t i = 0; i < one.tensors(); ++i) room += (1 + results) * room_of(one[i]);
  copy->inputs.resize(room);
  std::byte* at = copy->inputs.data();
  for (std::size_t i = 0; i < one.tensors(); ++i) {
    const tensor& from = one[i];
    tensor& to = (*copy)[i];
    if (from.kernels == nullptr) continue;
    if (reads) copy_bytes(at, from.in, from.place_of(from.bytes()));
    to.in = at;
    to.out = from.in == from.out ? at : at + room_of(from);
    at += (1 + results) * room_of(from);
  }
  return copy.release();
}

}  // namespace cohort::coordination
