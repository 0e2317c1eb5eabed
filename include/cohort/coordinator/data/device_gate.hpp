// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The backend for devices: whether it is open, what it refuses, what it keeps, when it
/// fails.

#include <cohort/comm/device_backend.hpp>
#include <cohort/coordinator/data/device_calls.hpp>
#include <cohort/coordinator/instance.hpp>
#include <cohort/core/log.hpp>
#include <cohort/protocol/validation.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cohort::coordination {

template <class Any>
class negotiation;

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

/// What enters are submissions on device memory, which leave marked; and sets, which leave open.
template <class Any>
class device_gate {
 public:
  device_gate(negotiation<Any>& log, std::shared_ptr<comm::device_backend> backend) noexcept
      : log_(log), backend_(std::move(backend)) {}

  [[nodiscard]] explicit operator bool() const noexcept { return backend_ != nullptr; }
  [[nodiscard]] comm::device_backend& operator*() const noexcept { return *backend_; }
  [[nodiscard]] comm::device_backend* operator->() const noexcept { return backend_.get(); }
  [[nodiscard]] comm::device_backend* get() const noexcept { return backend_.get(); }
  [[nodiscard]] bool failed() const noexcept { return failed_; }

  /// Lets the backend make what operations of a set need.
  void open(set_view<Any>& of) {
    const std::uint32_t set = of.place.set;
    of.opening = true;
    try {
      backend_->open(set, of.over(), [weak = log_.weak_from_this(), set](std::exception_ptr why) {
        if (const auto self = weak.lock()) self->device.opened(set, std::move(why));
      });
    } catch (...) {
      opened(set, std::current_exception());
    }
  }
  /// Marks what the streams have queued.
  void admit(task& one, std::string_view name, const protocol::signature& sig) {
    try {
      require(one, name, sig);
      require_apart(one);
      one.device->marks.push_back(backend_->mark(one.device->buffers, one.device->on));
    } catch (...) {
      one.fail(std::current_exception());
    }
  }
  /// What is not for this backend is a mistake of this rank.
  void require(task& one, std::string_view name, const protocol::signature& sig) {
    std::string why;
    if (!backend_) {
      why = "this set has no backend for devices";
    } else if (one.kind == op_kind::arena_add && backend_->arenas() == nullptr) {
      why = std::string(backend_->name()) + " makes none";
    } else if ((one.flags & protocol::signature_flag::half_on_wire) != 0 && !backend_->casts()) {
      why = "its backend for devices rounds nothing to 16 bits";
    } else {
      const comm::request_source::guard hold(log_.source);
      comm::device_call what;
      const set_view<Any>& set = *one.view;
      describe(what, one, set.rank());
      what.set = set.place.set;
      if (!log_.faults.broken && !log_.sets.whole().left)
        why = backend_->refuses(what);  // else refused in any case
    }
    if (why.empty()) return;
    throw error(errc::not_supported, "rank " + std::to_string(log_.rank) + ": " +
                                         std::string(one.verb()) + " '" + std::string(name) +
                                         "' of " + protocol::element_name(sig) +
                                         " in device memory: " + why);
  }
  /// Finds out what of a task lies in arenas, and keeps that memory. In words, for the signature;
  /// empty where none does. Only what is reduced or broadcast in place can stay there.
  [[nodiscard]] std::string locate(task& one) const {
    const comm::device_arenas* const arenas = backend_ ? backend_->arenas() : nullptr;
    if (arenas == nullptr || !one.device) return {};
    const bool may_stay = is_fusible(one.kind);
    bool any = false;
    std::size_t next = 0;
    for (comm::device_buffer& each : one.device->buffers) {
      if (!may_stay && each.lease) continue;
      const comm::arena_place place = arenas->locate(each);
      if (!may_stay || next == one.tensors()) continue;
      tensor& its = one[next++];  // in place there is one buffer for each tensor, in their order
      if (its.kernels == nullptr || its.in != its.out || its.wire != nullptr) continue;
      its.place = place;
      any = any || place.arena != 0;
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
  /// The deadline of an operation that has been elected has passed. If no device has it yet, the
  /// next tick asks again.
  void pass_deadline(task& over) {
    if (over.space == memory_space::host || log_.faults.broken || log_.faults.any()) return;
    log_.tasks.set_deadline(over, clock::now());
    if (!over.withdrawn) over.withdrawn = log_.plane.deadline_passed(over);
  }
  /// A stream goes on with what was queued behind an operation that has failed.
  [[nodiscard]] const char* undefined() const noexcept {
    if (!backend_) return "";
    return "; on devices, what was to be written and what is queued behind it is undefined";
  }
  /// Nothing is started any more, and what is on a device must not be waited for.
  void fail() noexcept {
    if (!backend_ || std::exchange(failed_, true)) return;
    try {
      std::error_code code = errc::data_operation_failed;
      std::string text = log_.faults.first ? log_.faults.first->text : std::string();
      try {
        if (log_.faults.broken) std::rethrow_exception(log_.faults.broken);
      } catch (const std::system_error& problem) {
        code = problem.code();
        text = problem.what();
      } catch (const std::exception& problem) {
        text = problem.what();
      }
      backend_->fail(code, text);
      log_.touch();
    } catch (const std::exception& problem) {
      log::write(log::level::error, problem.what());
    }
  }
  void close() noexcept {
    if (!backend_) return;
    try {
      backend_->close(0);
    } catch (const std::exception& problem) {
      log::write(log::level::error, problem.what());
    }
  }
  // A peer that has gone may be what the opening waits for.
  void watch(clock::time_point at) {
    if (!log_.sets.whole().opening || !(log_.faults.to_break || log_.faults.any())) return;
    if (until_ == clock::time_point::max()) until_ = at + log_.engine.drain_bound();
    if (at < until_) return;
    log_.sets.whole().opening = false;
    if (log_.faults.to_break)
      return log_.faults.break_down(std::exchange(log_.faults.to_break, nullptr));
    log_.life.check_released();
  }
  /// As the context ends: whether what is being opened may still be waited for.
  [[nodiscard]] bool may_open_at(clock::time_point at) {
    if (until_ == clock::time_point::max()) until_ = at + log_.engine.drain_bound() / 4;
    return at < until_;
  }

 private:
  void opened(std::uint32_t set, std::exception_ptr why) {
    const comm::request_source::guard hold(log_.source);
    set_view<Any>& one = log_.sets.at(set);
    if (!std::exchange(one.opening, false)) return;
    if (one.is_whole()) {
      if (!why) why = std::exchange(log_.faults.to_break, nullptr);
      if (why && !log_.faults.broken && !log_.faults.any()) return log_.faults.break_down(why);
      if (log_.sets.adds()) log_.touch();
      return log_.life.check_released();
    }
    if (task* const own = std::exchange(one.maker, nullptr)) {
      if (why) {
        own->fail(std::move(why));
        one.leave(protocol::departure::abandoned);
      } else {
        static_cast<creation*>(own->context)->made =
            std::make_shared<instance_handle>(log_.handle_of(one));
      }
      log_.tasks.complete(*own);
    }
    log_.touch();
  }

  negotiation<Any>& log_;
  std::shared_ptr<comm::device_backend> backend_;
  clock::time_point until_ = clock::time_point::max();
  bool failed_ = false;  // and has been told
};

}  // namespace cohort::coordination
