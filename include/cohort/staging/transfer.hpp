// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The copies of one operation between device memory and what MPI is given.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/comm/operation.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/device/copy.hpp>
#include <cohort/device/pinned_block.hpp>
#include <cohort/device/state.hpp>
#include <cohort/progress/stall_watch.hpp>
#include <cohort/staging/staged_range.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::staging {

class transfer_source;

/// The two ways of an operation's data. It goes on in looks of the engine, which are all there is
/// when a context ends or a future is dropped, and none of its steps blocks.
///
/// 1. `start_in`: pinned memory, from the pool or from a thread; copies to it behind what the
///    buffers' streams have queued; an event behind each, asked for at each look. Then the
///    operation is posted, or leaves with what has failed, but not before the copies are over.
/// 2. `start_out`: copies back, and their events. Then the operation ends.
///
/// *Threads*: all but `let_go` and `give_up` with the guard of the source of MPI held.
class transfer : public std::enable_shared_from_this<transfer> {
 public:
  transfer(transfer_source& source, comm::poster& post, comm::argument_check* check,
           std::vector<std::shared_ptr<stage>> stages)
      : source_(source),
        state_(post.state()),
        op_(&post.operation()),
        done_(post.completion()),
        check_(check),
        stages_(std::move(stages)) {}

  inline void start_in();
  /// `most`: bytes of a stage that have come.
  inline void start_out(std::size_t most);

  /// What has gone wrong on the way that is under way.
  [[nodiscard]] std::error_code failure() const noexcept { return why_; }
  /// The awaiter has left: memory that is borrowed is not touched any more, and no result is
  /// delivered.
  void let_go() noexcept { wanted_ = false; }
  [[nodiscard]] bool is_wanted() const noexcept { return wanted_; }
  /// It ends before MPI has anything of it, if it still can.
  void give_up() {
    given_up_ = true;
    state_.engine.started();
  }
  /// The operation goes, without the guard. As a rule the transfer is over by then.
  void forget() noexcept {
    if (!under_way_.load(std::memory_order_acquire)) return;
    const comm::request_source::guard hold(state_.source);
    op_ = nullptr;
  }

  // Called by the source.
  /// A step. True when there are no more of them: `go_on` is next.
  inline bool step() noexcept;
  inline void go_on();
  /// The engine ends: a receive is posted, so that what is sent with it arrives, and cancelled.
  void leave() noexcept { leaves_ = op_ != nullptr && op_->cancellable && !comes_back_; }
  /// Nobody looks any more. The operation is leaked, as those that MPI still has are.
  void abandon() noexcept {
    under_way_.store(false, std::memory_order_release);
    if (op_ != nullptr) op_->settle();
  }
  /// One line for reports.
  [[nodiscard]] inline std::string line(progress::engine::clock::time_point now) const;

  progress::pending_age age;

 private:
  struct awaited_memory {
    stage* of;
    device::stream on;
    device::polled_block block;
  };
  struct mark {
    device::event event;
    bool is_copy;  // of this operation: not before it is over may the memory be used again
  };

  inline void begin();
  inline void ask_for_memory();
  inline void take_memory();
  [[nodiscard]] inline bool is_over(const mark& one) noexcept;
  void fail(std::error_code why) noexcept {
    if (!why_) why_ = why;
  }
  /// In place of an exception of `what`.
  template <class Function>
  void attempt(Function what) noexcept {
    try {
      what();
    } catch (const std::system_error& failed) {
      fail(failed.code());
    } catch (...) {
      fail(std::make_error_code(std::errc::not_enough_memory));
    }
  }

  transfer_source& source_;
  comm::communicator_state& state_;
  comm::request_operation* op_;  // null: it has gone
  comm::backend_completion done_;
  comm::argument_check* check_;  // of a collective that is not posted yet
  std::vector<std::shared_ptr<stage>> stages_;
  std::vector<awaited_memory> memory_;
  std::vector<mark> marks_;
  std::error_code why_;
  bool comes_back_ = false;  // the result
  bool leaves_ = false;
  std::atomic<bool> under_way_{false};
  std::atomic<bool> wanted_{true};
  std::atomic<bool> given_up_{false};
};

/// A stream in capture would take the copy into its graph, and no event tells of it.
inline void refuse_capture(const device::stream& on) {
  if (on.is_capturing()) throw error(errc::not_supported, "the stream is being captured");
}

inline void transfer::start_in() {
  begin();
  attempt([this] {
    ask_for_memory();
    take_memory();
  });
}

inline void transfer::ask_for_memory() {
  for (const auto& one : stages_) {
    if (one->is_empty()) continue;
    const device::stream on = one->stream();
    if (one->direct) {
      marks_.push_back({on.record(), false});
    } else {
      refuse_capture(on);
      memory_.push_back({one.get(), on, device::polled_block(one->bytes, on.device())});
    }
  }
}

/// Queues the copies to what has come.
inline void transfer::take_memory() {
  for (std::size_t i = 0; i < memory_.size();) {
    if (!memory_[i].block.has_come()) {
      ++i;
      continue;
    }
    awaited_memory one = std::move(memory_[i]);
    memory_.erase(memory_.begin() + static_cast<std::ptrdiff_t>(i));
    auto block = one.block.take();
    stage& of = *one.of;
    of.memory = device::pinned_vector<std::byte>(block.release(), of.bytes, one.on);
    if (!of.is_read) continue;
    refuse_capture(one.on);
    device::copy(one.on, device::span<const std::byte>(of.data, of.bytes, one.on), of.memory);
    marks_.push_back({one.on.record(), true});
  }
}

inline void transfer::start_out(std::size_t most) {
  comes_back_ = true;
  begin();
  attempt([this, most] {
    for (const auto& one : stages_) {
      const std::size_t bytes = std::min(most, one->bytes);
      if (!one->is_written || one->direct || bytes == 0 || !wanted_) continue;
      const device::stream on = one->stream();
      refuse_capture(on);
      device::copy(on, std::span<const std::byte>(one->memory.data(), bytes),
                   device::span<std::byte>(one->data, bytes, on));
      marks_.push_back({on.record(), true});
    }
  });
}

/// Asks CUDA. What has gone with its device is over too.
inline bool transfer::is_over(const mark& one) noexcept {
  const int device = one.event.device();
  const std::uint32_t made_in = one.event.generation();
  device::device_state& state = device::state_of(device);
  if (!state.holds(made_in)) {
    const cudaError_t lost = state.lost();
    fail(device::make_error(lost == cudaSuccess ? cudaErrorContextIsDestroyed : lost));
    return true;
  }
  const device::detail::relaxed_capture may_ask;
  const cudaError_t code = one.event.query();
  if (code == cudaErrorNotReady) return false;
  if (code == cudaSuccess) return true;
  // The event was good when it was recorded, so a refusal means that its context has gone.
  if (code == cudaErrorInvalidResourceHandle) state.context_gone(made_in);
  device::detail::note(code, device, made_in);
  fail(device::make_error(code));
  return true;
}

inline bool transfer::step() noexcept {
  if (op_ == nullptr) return true;
  const bool ends = why_ || (given_up_ && !comes_back_);
  if (!ends) attempt([this] { take_memory(); });
  if (ends || why_) {
    memory_.clear();
    std::erase_if(marks_, [](const mark& one) { return !one.is_copy; });
  }
  std::erase_if(marks_, [this](const mark& one) { return is_over(one); });
  return memory_.empty() && marks_.empty();
}

inline void transfer::go_on() {
  under_way_.store(false, std::memory_order_release);
  if (op_ == nullptr) return;
  comm::request_operation& op = *op_;
  std::error_code why = std::exchange(why_, {});
  if (!why && !comes_back_) {
    if (given_up_) why = asio::error::operation_aborted;
    if (const errc bad = state_.source.usable(); bad != errc{}) why = bad;
  }
  const bool leaves = std::exchange(leaves_, false) && !why;
  comm::communicator_state& state = state_;
  if (check_ != nullptr) {
    std::exchange(check_, nullptr)->open(why);
  } else {
    done_.in_look(why);
  }
  if (leaves) state.source.cancel(op);
}

inline std::string transfer::line(progress::engine::clock::time_point now) const {
  std::string text = "an operation that has gone";
  if (op_ != nullptr) {
    text = "rank " + std::to_string(op_->rank) + ": " + op_->verb + " #" +
           std::to_string(op_->sequence) + ", " + std::to_string(op_->bytes) + " bytes";
  }
  text += comes_back_ ? ", going back to the device, " : ", coming from the device, ";
  return text + age.text(now);
}

}  // namespace cohort::staging

// Brings the body of `begin`.
#include <cohort/staging/transfer_source.hpp>

#endif
