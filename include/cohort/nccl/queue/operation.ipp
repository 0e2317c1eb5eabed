// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `nccl/operation.hpp`.

#include <cohort/nccl/operation.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace cohort::nccl::detail {

inline bool overlap(const buffer_use& a, const buffer_use& b) noexcept {
  const auto* const x = static_cast<const std::byte*>(a.data);
  const auto* const y = static_cast<const std::byte*>(b.data);
  return a.bytes != 0 && b.bytes != 0 && x < y + b.bytes && y < x + a.bytes;
}

// 1. What is wrong with the arguments. 2. What the streams have queued so far is marked: the
// caller's, and those of the buffers.
COHORT_INLINE std::error_code prepare(work& op, const request& asked) {
  communicator_state& comm = *op.comm;
  failure_text text(comm.rank, std::string("nccl ") + op.verb);
  const auto wrong = [&](errc code) {
    comm.remember(text.with_code(code));
    return make_error_code(code);
  };
  if (asked.bad != errc{}) {
    text.note(asked.facts);
    return wrong(asked.bad);
  }
  for (const buffer_use& use : op.uses) {
    if (!use.unusable) continue;
    comm.remember({use.unusable, text.with("field", use.field).str() + ": " +  //
                                     use.unusable.message()});
    return use.unusable;
  }
  if (op.user->device() != comm.device) {
    text.with("stream.device", op.user->device()).with("communicator.device", comm.device);
    return wrong(errc::wrong_device);
  }
  // Its handle means another stream on the thread that laps.
  const auto of_thread = [](const device::stream& one) { return one.get() == cudaStreamPerThread; };
  if (of_thread(*op.user)) {
    text.note("stream: cudaStreamPerThread cannot be waited for from another thread");
    return wrong(errc::invalid_argument);
  }
  for (const buffer_use& use : op.uses) {
    if (use.bytes == 0 || !use.producer || !of_thread(*use.producer)) continue;
    text.with("field", use.field).note("is made on cudaStreamPerThread");
    return wrong(errc::invalid_argument);
  }
  for (const buffer_use& use : op.uses) {
    if (use.bytes == 0 || use.device == comm.device) continue;
    text.with("field", use.field).with("device", use.device);
    text.with("communicator.device", comm.device);
    return wrong(errc::wrong_device);
  }
  if ((op.more.empty() || asked.never_in_place) && op.uses.size() == 2 &&
      overlap(op.uses[0], op.uses[1])) {
    const bool in_place =
        asked.may_be_in_place && !asked.never_in_place && op.one.from == asked.in_place_at;
    if (!in_place) {
      text.note("the input and the output overlap");
      return wrong(errc::invalid_argument);
    }
  }
  try {
    device::check_usable(comm.device);
    op.after.push_back(op.user->record());
    for (std::size_t i = 0; i < op.uses.size(); ++i) {
      const auto& producer = op.uses[i].producer;
      const auto same = [&](const buffer_use& other) { return other.producer == producer; };
      const auto here = op.uses.begin() + static_cast<std::ptrdiff_t>(i);
      if (!producer || *producer == *op.user || std::any_of(op.uses.begin(), here, same)) continue;
      op.after.push_back(producer->record());
    }
  } catch (const std::system_error& failed) {
    comm.remember({failed.code(), text.str() + ": " + failed.what()});
    return failed.code();
  }
  return {};
}

COHORT_INLINE void fill(work& op, request& asked) {
  op.comm = std::move(asked.comm);
  op.verb = asked.verb;
  op.ends = asked.ends;
  op.one = asked.one;
  op.more = std::move(asked.more);
  op.uses = std::move(asked.uses);
  op.user = std::move(asked.user);
  op.bytes = asked.bytes;
  op.everybody = asked.everybody;
}

COHORT_INLINE bool borrows_memory(const std::vector<buffer_use>& uses) {
  return std::any_of(uses.begin(), uses.end(),
                     [](const buffer_use& use) { return use.bytes != 0 && !use.lease; });
}

COHORT_INLINE std::error_code join(work& whole, std::vector<request>& parts) {
  whole.joined = std::make_shared<work_set>(whole);
  const auto wrong = [&](errc code, const std::string& fact) {
    failure_text text(whole.comm->rank, std::string("nccl ") + whole.verb);
    whole.comm->remember(text.note(fact).with_code(code));
    return make_error_code(code);
  };
  std::vector<int> devices;
  for (request& asked : parts) {
    const std::string which = std::string(asked.verb) + ": ";
    if (!asked.comm) return wrong(errc::invalid_communicator, which + "no communicator");
    if (&asked.comm->source != &whole.comm->source) {
      return wrong(errc::invalid_argument, which + "a communicator of another io_context");
    }
    const int device = asked.comm->device;
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
      return wrong(errc::invalid_argument,
                   which + "device " + std::to_string(device) + " has two parts");
    }
    devices.push_back(device);
    asked.ends = whole.ends;
    partial_work& part = whole.joined->parts.emplace_back();
    fill(part, asked);
    part.part_of = whole.joined.get();
    whole.bytes += part.bytes;
    if (const std::error_code bad = prepare(part, asked)) return bad;
  }
  return {};
}

}  // namespace cohort::nccl::detail
