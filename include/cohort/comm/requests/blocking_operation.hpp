// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The operation behind a verb that blocks. It lies on the caller's stack.

#include <cohort/comm/mpi_blocking.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/comm/requests/body_operation.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/progress/value_of.hpp>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>

namespace cohort::comm::detail {

/// A blocking call of MPI that was made.
struct mpi_call {
  int return_code;
  std::uint64_t number;  ///< of the operation
};

template <class Body>
class blocking_operation final : public body_operation<Body> {
  using parent = body_operation<Body>;
  using typename parent::action;
  friend parent;

 public:
  blocking_operation(communicator_ref comm, Body&& body) : parent(&ended, comm, std::move(body)) {}

  /// Starts it, waits, and returns what it has to say or throws.
  auto run() {
    start_and_wait();
    if (this->failed()) [[unlikely]]
      throw std::system_error(this->error(), why_);
    const outcome_of_requests seen{this->status, this->left, this->message};
    return progress::shaped(this->body_.finish({}, seen));
  }
  /// Throws what MPI's blocking call has said.
  [[noreturn]] void fail_after(const mpi_call& made) {
    this->sequence = made.number;
    this->fail(mpi::make_error(made.return_code));
    this->end_unposted(*this);
    throw std::system_error(this->error(), why_);
  }

 private:
  void start_and_wait() {
    using waiting = progress::engine::in_place;
    waiting place(this->owner(), waiting::on_trouble::stay);
    place.begin();
    parent::start(*this);
    place.wait(&is_over, &is_over_);
  }

  void posted() const noexcept {}
  void tell(const failure_text& text) { why_ = text.str(); }

  static bool is_over(const void* flag) {
    return static_cast<const std::atomic<bool>*>(flag)->load(std::memory_order_acquire);
  }
  static void ended(progress::operation* base, action what) {
    auto& self = static_cast<blocking_operation&>(*base);
    if (what == action::destroy) self.fail(errc::engine_stopped);
    self.end(what != action::destroy, self);
    progress::engine& engine = self.owner();
    self.is_over_.store(true, std::memory_order_release);  // the operation may be gone then
    engine.end_wait();
  }

  std::atomic<bool> is_over_{false};
  std::string why_;
};

/// A blocking call of MPI does what `Body` does.
template <class Body>
concept blocks_in_mpi = requires(Body& body, MPI_Comm on, MPI_Status& status) {
  { body.block(on, status) } -> std::same_as<int>;
};
template <class Body>
concept is_collective = requires(Body& body) {
  { body.call() } -> std::same_as<collective_call>;
} && !requires { Body::gated; };

/// By a blocking call of MPI, if this thread may stay there; else it has to be started.
template <class Body>
[[nodiscard]] std::optional<mpi_call> call_mpi(communicator_state& state, Body& body,
                                               MPI_Status& status) {
  if (state.blocks == nullptr || state.options.checks != checks::local) return {};
  if (state.source.usable() != errc{} || body.check(state) != errc{}) return {};
  if (state.engine.is_in_handler() || state.engine.stopped()) return {};
  if (state.engine.has_own_thread()) return {};  // which calls MPI too
  std::uint64_t number = 0;
  if constexpr (blocks_in_mpi<Body>) {
    if (body.bytes() > mpi::max_int_count) return {};
    {
      const request_source::guard hold(state.source);
      if (!state.source.is_quiet()) return {};
      number = ++state.sequence;
    }
    return mpi_call{body.block(state.data.native(), status), number};
  } else {
    const collective_call call = body.call();
    {
      const request_source::guard hold(state.source);
      if (state.queues || !state.blocks->takes(call)) return {};
      number = ++state.sequence;
      state.by_backend.add(body.bytes());
    }
    return mpi_call{state.blocks->run(call), number};
  }
}

/// Does it by MPI's blocking call, or starts it and waits; returns what it has to say or throws.
template <class Body>
auto run_blocking(const communicator& comm, Body&& body) {
  if (!comm) throw error(errc::invalid_communicator, Body::name);
  if constexpr (blocks_in_mpi<Body> || is_collective<Body>) {
    outcome_of_requests seen{{}, MPI_REQUEST_NULL, MPI_MESSAGE_NULL};
    if (const auto made = call_mpi(*comm.state(), body, seen.status)) {
      if (made->return_code == MPI_SUCCESS) [[likely]]
        return progress::shaped(body.finish({}, seen));
      blocking_operation<Body>(comm.ref(), std::move(body)).fail_after(*made);
    }
  }
  return blocking_operation<Body>(comm.ref(), std::move(body)).run();
}

}  // namespace cohort::comm::detail
