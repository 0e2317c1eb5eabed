// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The copies of one operation between device memory and what MPI is given.

#include <cohort/device/native.hpp>

#if COHORT_HAS_CUDA

#include <cohort/comm/operation.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/device/completion.hpp>
#include <cohort/device/copy.hpp>
#include <cohort/device/make_pinned.hpp>
#include <cohort/device/state.hpp>
#include <cohort/staging/staged_range.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::staging {

/// What the two ways of an operation's data share with the operation. It outlives the operation
/// where a copy does.
///
/// 1. `bring_in`: pinned memory, copies to it behind what the buffers' streams have queued, and the
///    end of that work. 2. `resume` lets the operation go on. 3. `bring_out`: copies back.
class transfer : public std::enable_shared_from_this<transfer> {
 public:
  transfer(comm::communicator_state& state, comm::backend_completion done,
           comm::argument_check* check, std::vector<std::shared_ptr<stage>> stages)
      : state_(state), done_(done), check_(check), stages_(std::move(stages)) {}

  void start_in() {
    asio::post(state_.engine.get_executor(), [self = shared_from_this()] {
      asio::co_spawn(self->state_.engine.get_executor(), self->bring_in(),
                     [self](std::exception_ptr why) { self->resume(code_of(why)); });
    });
  }
  /// `most`: bytes of a stage that have come.
  void start_out(std::size_t most) {
    asio::post(state_.engine.get_executor(), [self = shared_from_this(), most] {
      asio::co_spawn(self->state_.engine.get_executor(), self->bring_out(most),
                     [self](std::exception_ptr why) { self->resume(code_of(why)); });
    });
  }

  /// The awaiter has left: memory that is borrowed is not touched any more, and no result is
  /// delivered.
  void let_go() noexcept { wanted_ = false; }
  [[nodiscard]] bool is_wanted() const noexcept { return wanted_; }
  /// It ends before MPI has anything of it, if it still can.
  void give_up() noexcept { given_up_ = true; }
  /// The operation has gone.
  void forget() noexcept {
    const comm::request_source::guard hold(state_.source);
    owned_ = false;
  }
  [[nodiscard]] std::vector<std::shared_ptr<stage>>& stages() noexcept { return stages_; }

 private:
  [[nodiscard]] static std::error_code code_of(const std::exception_ptr& why) {
    if (!why) return {};
    try {
      std::rethrow_exception(why);
    } catch (const std::system_error& failed) {
      return failed.code();
    } catch (...) {
      return std::make_error_code(std::errc::not_enough_memory);
    }
  }

  [[nodiscard]] asio::awaitable<void> bring_in() {
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    std::vector<device::stream> busy;
    for (const auto& one : stages_) {
      if (one->is_empty()) continue;
      const device::stream on = one->stream();
      if (!one->direct) {
        auto making = device::make_pinned<std::byte>(one->bytes, on);
        one->memory = co_await std::move(making);
        if (one->is_read) {
          device::copy(on, device::span<const std::byte>(one->data, one->bytes, on), one->memory);
        }
      }
      if (one->is_read || one->direct) busy.push_back(on);
    }
    for (const device::stream& on : busy) {
      auto there = device::done(on);
      co_await std::move(there);
    }
  }
  [[nodiscard]] asio::awaitable<void> bring_out(std::size_t most) {
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    std::vector<device::stream> busy;
    for (const auto& one : stages_) {
      const std::size_t bytes = std::min(most, one->bytes);
      if (!one->is_written || one->direct || bytes == 0 || !wanted_) continue;
      const device::stream on = one->stream();
      device::copy(on, std::span<const std::byte>(one->memory.data(), bytes),
                   device::span<std::byte>(one->data, bytes, on));
      busy.push_back(on);
    }
    for (const device::stream& on : busy) {
      auto there = device::done(on);
      co_await std::move(there);
    }
  }

  void resume(std::error_code why) {
    {
      const comm::request_source::guard hold(state_.source);
      if (!owned_) return;
      if (check_ != nullptr) {
        std::exchange(check_, nullptr)->open(why);
      } else {
        if (given_up_ && !why && !posted_) why = asio::error::operation_aborted;
        posted_ = true;
        done_.in_look(why);
      }
    }
    state_.engine.started();
  }

  comm::communicator_state& state_;
  comm::backend_completion done_;
  comm::argument_check* check_;  // of a collective that is not posted yet
  std::vector<std::shared_ptr<stage>> stages_;
  std::atomic<bool> wanted_{true};
  std::atomic<bool> given_up_{false};
  bool posted_ = false;
  bool owned_ = true;
};

}  // namespace cohort::staging

#endif
