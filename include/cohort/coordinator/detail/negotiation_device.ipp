// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of coordinator/negotiation.hpp: the backend for devices.

#include <cohort/coordinator/negotiation.hpp>

#include <cohort/coordinator/device_call.hpp>
#include <cohort/protocol/validation.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// Lets the backend make what operations of a set need.
template <class Any>
void negotiation<Any>::open_device(view& of) {
  const std::uint32_t set = of.place.set;
  of.opening = true;
  try {
    device_->open(set, of.over(), [weak = this->weak_from_this(), set](std::exception_ptr why) {
      if (const auto self = weak.lock()) self->device_opened(set, std::move(why));
    });
  } catch (...) {
    device_opened(set, std::current_exception());
  }
}

template <class Any>
void negotiation<Any>::device_opened(std::uint32_t set, std::exception_ptr why) {
  const comm::request_source::guard hold(source_);
  view& one = view_of(set);
  if (!std::exchange(one.opening, false)) return;
  if (one.is_whole()) {
    if (!why) why = std::exchange(to_break_, nullptr);
    if (why && !broken_ && !faulted_) return break_down(why);
    if (!adding_.empty()) touch();
    return check_released();
  }
  if (task* const own = std::exchange(one.maker, nullptr)) {
    if (why) {
      own->fail(std::move(why));
      one.leave(protocol::departure::abandoned);
    } else {
      static_cast<creation*>(own->context)->made =
          std::make_shared<instance_handle>(handle_of(one));
    }
    complete(*own);
  }
  touch();
}

// ---- the timeline ----------------------------------------------------------------------------

template <class Any>
std::error_code negotiation<Any>::record_timeline(const std::string& path) {
  end_timeline();
  timeline_options recording;
  recording.ring = static_cast<std::size_t>(options_.timeline_ring);
  if (device_) recording.device = device_->device_name();
  const std::error_code bad = timeline_->start(path, recording);
  if (device_ && !bad) device_->record_times(true);
  return bad;
}

/// What a device has not done by then is not in the file.
template <class Any>
void negotiation<Any>::end_timeline() noexcept {
  if (!timeline_->active()) return;
  take_device_times();
  if (device_) device_->record_times(false);
  timeline_->stop();
}

/// What the device has done since the last time.
template <class Any>
void negotiation<Any>::take_device_times() noexcept {
  if (!device_ || !timeline_->active()) return;
  static constexpr std::array rows{phase::device_pack, phase::device_reduce, phase::device_unpack};
  try {
    device_->take_times([this](const comm::device_span& one) {
      timeline_->device(rows[static_cast<std::size_t>(one.what)], one.verb,
                        static_cast<std::uint32_t>(view_of(one.set).id), one.sequence, one.tensors,
                        one.bytes, one.begin, one.end);
    });
  } catch (const std::exception&) {
    // No memory. What has been taken and is not written is lost.
  }
}

/// What is not for this backend is a mistake of this rank.
template <class Any>
void negotiation<Any>::require_device(task& one, std::string_view name,
                                      const protocol::signature& sig) {
  const auto code = static_cast<reduction_code>(sig.reduction);
  std::string why;
  if (!device_) {
    why = "this set has no backend for devices";
  } else if (one.kind == op_kind::arena_add && !device_->makes_arenas()) {
    why = std::string(device_->name()) + " makes none";
  } else if ((one.flags & protocol::signature_flag::half_on_wire) != 0 && !device_->casts()) {
    why = "its backend for devices rounds nothing to 16 bits";
  } else if (!devices_have(code) && !device_->reduces_on_host()) {
    why = "devices have no " + name_of(code);
  } else {
    const comm::request_source::guard hold(source_);
    comm::device_call what;
    describe(what, one, one.view->rank());
    what.set = one.view->place.set;
    if (!broken_ && !whole().left) why = device_->refuses(what);  // else refused in any case
  }
  if (why.empty()) return;
  throw error(errc::not_supported, "rank " + std::to_string(rank_) + ": " +
                                       std::string(one.verb()) + " '" + std::string(name) +
                                       "' of " + protocol::element_name(sig) +
                                       " in device memory: " + why);
}

/// Finds out what of a task lies in arenas, and keeps that memory. In words, for the signature;
/// empty where none does. Only what is reduced or broadcast in place can stay there.
template <class Any>
std::string negotiation<Any>::find_places(task& one) const {
  if (!device_ || !one.device) return {};
  for (comm::device_buffer& each : one.device->buffers) {
    if (!each.lease) static_cast<void>(device_->place_of(each.data, each.bytes, each.lease));
  }
  if (one.kind != op_kind::all_reduce && one.kind != op_kind::broadcast) return {};
  bool any = false;
  for (std::size_t i = 0; i < one.tensors(); ++i) {
    tensor& each = i == 0 ? one.first : one.others[i - 1];
    if (each.kernels == nullptr || each.in != each.out || each.wire != nullptr) continue;
    std::shared_ptr<const void> lease;  // its buffer has one
    each.place = device_->place_of(each.out, each.bytes(), lease);
    any = any || each.place.arena != 0;
  }
  std::string text;
  for (std::size_t i = 0; any && i < one.tensors(); ++i) {
    const comm::arena_place& place = one[i].place;
    if (i != 0) text += ", ";
    if (place.arena == 0) {
      text += "none";
    } else {
      text += std::to_string(place.arena) + "+" + std::to_string(place.offset);
      if (!place.padded) text += " inside";
    }
  }
  return text;
}

/// Buffers of one operation share no memory, but for an output that is the input.
COHORT_INLINE void require_apart(const task& one) {
  struct range {
    const std::byte* begin;
    const comm::device_buffer* of;
  };
  std::vector<range> all;
  for (const comm::device_buffer& each : one.device->buffers) {
    if (each.bytes != 0) all.push_back({static_cast<const std::byte*>(each.data), &each});
  }
  std::sort(all.begin(), all.end(),
            [](const range& a, const range& b) { return std::less<>()(a.begin, b.begin); });
  for (std::size_t i = 1; i < all.size(); ++i) {
    const comm::device_buffer& before = *all[i - 1].of;
    const comm::device_buffer& after = *all[i].of;
    const bool in_place = one.kind == op_kind::all_reduce && one.others.empty() &&
                          before.data == after.data && before.bytes == after.bytes;
    if (in_place || std::less_equal<>()(all[i - 1].begin + before.bytes, all[i].begin)) continue;
    throw error(errc::invalid_argument,
                std::string(before.field) + " and " + after.field + " overlap in device memory");
  }
}

/// Marks what the streams have queued.
template <class Any>
void negotiation<Any>::admit(task& one, std::string_view name, const protocol::signature& sig) {
  try {
    require_device(one, name, sig);
    require_apart(one);
    one.device->marks.push_back(device_->mark(one.device->buffers, one.device->on));
  } catch (...) {
    one.fail(std::current_exception());
  }
}

/// Why this rank, and every other, cannot capture the group.
template <class Any>
std::string negotiation<Any>::refuses_capture(const task& one) const {
  comm::device_call what;
  describe(what, one, one.view->rank());
  what.set = one.view->place.set;
  what.use = comm::device_use::capture;
  for (comm::device_tensor& each : what.tensors) each.divisor = one.view->size();
  return device_->refuses(what);
}

/// The n-th start on one rank belongs to the n-th on the others, as submissions of a name do. A
/// capture and a replay are starts that must be the same on all ranks.
template <class Any>
void negotiation<Any>::start_on_device(task& one, persistent_state& group) {
  protocol::signature sig = group.sig_;
  {
    const comm::request_source::guard hold(source_);
    if (group.name_ == protocol::none || group.removed_) {
      ++one.view->counted.submitted;
      one.fail(broken_ ? broken_ : refusal(group.text_));
      return complete(one);
    }
    device_part& part = one.use_device();
    if (part.use == comm::device_use::capture && !broken_ && !whole().left && !faulted_) {
      if (const std::string why = refuses_capture(one); !why.empty()) {
        ++one.view->counted.submitted;
        one.fail(std::make_exception_ptr(
            error(errc::not_supported, capture_text(one, group) + ": " + why)));
        return complete(one);
      }
    }
    ++group.starts_;
    part.buffers = group.device_->buffers;  // a removal gives them back
    if (part.on.device < 0) part.on = group.device_->on;
    if (part.use != comm::device_use::replay) part.ends = group.device_->ends;
  }
  try {
    describe_capture(one, group, sig);
  } catch (...) {
    one.fail(std::current_exception());  // of this rank alone, and the others hear of it
  }
  submit(one, group.text_ + ": start", sig, group.site_, std::chrono::nanoseconds::zero());
}

/// Says in the signature how the group is started, so that this is the same on all ranks.
template <class Any>
void negotiation<Any>::describe_capture(task& one, const persistent_state& group,
                                        protocol::signature& sig) {
  device_part& part = *one.device;
  if (part.use == comm::device_use::run) return;
  const captured_state* const known = part.captured.get();
  if (part.use == comm::device_use::replay) {
    const bool is_its = known != nullptr && known->graph && known->group == &group;
    sig.detail = is_its ? 1 + known->start : 1;
    if (const comm::device_buffer* const span = part.without_order(); is_its && span != nullptr) {
      throw error(errc::invalid_argument,
                  capture_text(one, group) + ": " + span->field + lacks_order);
    }
    if (is_its) return;
    throw error(errc::invalid_argument,
                capture_text(one, group) + ": what is to be replayed was not captured of it");
  }
  sig.detail = 1;
  part.ends = until::complete;
  part.captured->group = &group;
  part.captured->start = group.starts_;
  part.captured->graph = device_->make_graph("the graph of persistent group '" + group.text_ + "'");
  if (part.captured->graph) return;
  throw error(errc::not_supported,
              capture_text(one, group) + ": " + std::string(device_->name()) + " captures nothing");
}

template <class Any>
std::string negotiation<Any>::capture_text(const task& one, const persistent_state& group) const {
  const bool replays = one.device->use == comm::device_use::replay;
  return "rank " + std::to_string(group.view_.rank()) + ": " + (replays ? "replay" : "capture") +
         " of persistent group '" + group.text_ + "' of " + protocol::element_name(group.sig_);
}

/// A deadline over what has been elected. What the device has not got yet is asked for again.
template <class Any>
void negotiation<Any>::pass_deadline(task& over) {
  if (over.space == memory_space::host || broken_ || faulted_) return;
  if (over.deadline == clock::time_point::max()) ++deadlines_;
  over.deadline = std::min(over.deadline, clock::now());
  if (!over.withdrawn) over.withdrawn = plane_.deadline_passed(over);
}

/// Nothing is started any more, and what is on a device must not be waited for.
template <class Any>
void negotiation<Any>::fail_device() noexcept {
  if (!device_ || std::exchange(device_failed_, true)) return;
  try {
    std::error_code code = errc::data_operation_failed;
    std::string text = fault_ ? fault_->text : std::string();
    try {
      if (broken_) std::rethrow_exception(broken_);
    } catch (const std::system_error& problem) {
      code = problem.code();
      text = problem.what();
    } catch (const std::exception& problem) {
      text = problem.what();
    }
    device_->fail(code, text);
    touch();
  } catch (const std::exception& problem) {
    log::write(log::level::error, problem.what());
  }
}

template <class Any>
void negotiation<Any>::close_device() noexcept {
  if (!device_) return;
  try {
    device_->close(0);
  } catch (const std::exception& problem) {
    log::write(log::level::error, problem.what());
  }
}

// A peer that has gone may be what the opening waits for.
template <class Any>
void negotiation<Any>::watch_device(clock::time_point at) {
  if (!whole().opening || !(to_break_ || faulted_)) return;
  if (device_until_ == clock::time_point::max()) device_until_ = at + engine_.drain_bound();
  if (at < device_until_) return;
  whole().opening = false;
  if (to_break_) return break_down(std::exchange(to_break_, nullptr));
  check_released();
}

/// The data of an operation whose awaiter has given up, in memory of the backend. What comes is not
/// wanted.
template <class Any>
void negotiation<Any>::keep_for(task& copy, const task& one) const {
  const bool reads = (one.kind != op_kind::scatter && one.kind != op_kind::broadcast &&
                      one.kind != op_kind::message) ||
                     one.root == one.view->rank();
  if (one.device->use != comm::device_use::run) {
    // It is about the group's own memory, which lives as long as the group.
    device_part& part = copy.use_device();
    part.buffers = one.device->buffers;
    part.marks = one.device->marks;
    part.use = one.device->use;
    part.captured = one.device->captured;
    return;
  }
  for (std::size_t i = 0; i < one.tensors(); ++i) {
    tensor& to = i == 0 ? copy.first : copy.others[i - 1];
    const void* const from = std::exchange(to.in, nullptr);
    to.out = nullptr;
    if (!reads || to.kernels == nullptr || to.bytes() == 0 || one.device->marks.empty()) continue;
    for (const comm::device_buffer& each : one.device->buffers) {
      if (each.data != from) continue;
      std::shared_ptr<comm::device_mark> mark = one.device->marks.front();
      comm::device_buffer kept = device_->keep(each, mark);
      to.in = kept.data;
      device_part& part = copy.use_device();
      part.buffers.push_back(std::move(kept));
      part.marks.push_back(std::move(mark));
      break;
    }
  }
}

}  // namespace cohort::coordination
