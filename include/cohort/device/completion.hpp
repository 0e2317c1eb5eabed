// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `co_await cohort::device::done(stream)`: waits for queued work without blocking a thread.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/core/asio.hpp>
#include <cohort/device/stream.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/polled_source.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

namespace cohort::device {

class completion_source;

/// An operation that a device works on: an event, and the stream that it was recorded in.
class completion_operation : public progress::operation {
 public:
  [[nodiscard]] std::error_code error() const noexcept { return error_; }
  void fail(std::error_code why) noexcept {
    if (!error_) error_ = why;
  }

 protected:
  completion_operation(function run, stream on) noexcept : operation(run), on_(std::move(on)) {}
  ~completion_operation() = default;

  stream on_;  // a handle: it must not be destroyed while it is looked at
  event mark_;

 private:
  friend class completion_source;
  std::error_code error_;
  completion_operation* next_ = nullptr;  // in its lane
  bool pending_ = false;
  progress::pending_age age_;
};

/// The source of an engine that polls CUDA events. One per context, found with
/// `asio::use_service<completion_source>(io)`.
///
/// Operations stand in *lanes*, one per stream, in the order of their events, so only the head of
/// each lane is asked for.
///
/// A sticky error, or a device that was reset, ends everybody who waits for that device, on
/// whichever stream and in whichever context. *Threads*: every function from any thread.
class completion_source final : public progress::dear_source<std::mutex>,
                                public asio::execution_context::service {
 public:
  using key_type = completion_source;
  static inline asio::execution_context::id id;

  /// For `asio::use_service`. Throws error(errc::invalid_argument) if COHORT_STALL_WARNING is no
  /// duration.
  template <std::derived_from<asio::execution_context> Context>
  explicit completion_source(Context& context);
  inline ~completion_source() override { engine_.detach(this); }

  /// Takes over an operation whose event is recorded.
  void add(completion_operation& op);
  /// Ends the wait with `operation_aborted`, unless it has ended. The work on the device goes on.
  void cancel(completion_operation& op);

  // Called by the engine. How much the program's streams have to move is not known: 0 bytes.
  inline std::size_t test(progress::ready_queue& ready) override;
  inline void leave() override;
  void end() override { leave(); }

 private:
  struct lane {
    int device;
    cudaStream_t stream;
    completion_operation* head;
    completion_operation* last;
  };
  inline void shutdown() override {}  // the engine ends the operations

  void count(int by) noexcept {
    pending_.store(pending_.load(std::memory_order_relaxed) + static_cast<std::size_t>(by),
                   std::memory_order_relaxed);
  }
  inline void list(progress::pending_lines& lines) override;
  void finish(completion_operation& op, std::error_code why, progress::ready_queue& ready);
  std::size_t look_at(lane& one, progress::ready_queue& ready);
  std::size_t end_gone(progress::ready_queue& ready);

  std::vector<lane> lanes_;  // none is empty
  std::uint32_t seen_changes_ = device_state::changes().load();
};

namespace detail {
struct start_done;
}  // namespace detail

/// Waits until what `on` has queued when this is called has been done. *Completion*:
/// `void(std::error_code)`.
///
/// The handler's associated executor says which loop polls: that of the `asio::io_context` on which
/// a coroutine runs, for example. Tokens without such an executor, as `as_future`, need the second
/// form, and a call of the first does not compile. One that hides another kind of context completes
/// with errc::invalid_argument.
///
/// *Cancellation*, total: the wait ends with `operation_aborted`, also under `with_deadline`; the
/// work goes on, and so must the memory that it uses. A future dropped in flight lets go.
/// *Errors*: CUDA's codes; a sticky one ends everybody who waits for the device, and makes every
/// later call for it fail; errc::not_supported while the stream is captured.
/// *Cost*: an event of the pool, and one `cudaEventQuery` per stream and lap, or look where nothing
/// but devices is waited for.
/// *Example*: `backward(m, compute.get()); co_await cohort::device::done(compute);`
template <completion_token_for<void(std::error_code)> Token = default_token>
auto done(const stream& on, Token&& token = Token());
template <completion_token_for<void(std::error_code)> Token = default_token>
auto done(asio::io_context& io, const stream& on, Token&& token = Token());

}  // namespace cohort::device

#include <cohort/device/detail/completion.ipp>

#endif
