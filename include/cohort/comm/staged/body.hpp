// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The body of a verb with arguments in device memory: the verb's own, with copies before and
/// after. What enters this room is the body of such a verb; what leaves it is an operation that is
/// posted when a carrier has brought the elements to the host, and ends when they are back.

#include <cohort/comm/operation.hpp>
#include <cohort/comm/staged/round_trip.hpp>
#include <cohort/mpi/request.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::comm {
namespace detail {

template <class Signature>
struct values_of;
template <class... Values>
struct values_of<void(std::error_code, Values...)> {
  using type = std::tuple<std::decay_t<Values>...>;
  static constexpr bool has_status = (std::same_as<Values, status> || ...);
};

template <class>
struct carriers_among;
template <class First, class... More>
struct carriers_among<std::tuple<First, More...>> : carriers_among<std::tuple<More...>> {};
template <class First, class... More>
  requires First::is_staged
struct carriers_among<std::tuple<First, More...>> {
  using type = typename First::carriers;
};

/// Calls `visit(field, buffer, is_read, is_written)` for the staged arguments of a body.
template <class Body, class Visit>
void for_each_staged(Body& body, Visit visit) {
  Body::each_buffer(body, [&](const char* field, auto& argument, bool is_read, bool is_written) {
    if constexpr (std::remove_cvref_t<decltype(argument)>::is_staged) {
      visit(field, argument.where(), is_read, is_written);
    }
  });
}

}  // namespace detail

/// `initiate` makes one of a body that has a staged argument. It is posted when the data are in the
/// memory that MPI is given, and ends when the result is in device memory.
template <class Body>
class staged_body {
  using values = detail::values_of<typename Body::signature>;
  using carriers = typename detail::carriers_among<typename Body::arguments>::type;

 public:
  using signature = typename Body::signature;
  static constexpr const char* name = Body::name;
  static constexpr bool gated = true;
  static constexpr bool keeps_turn = comm::keeps_turn<Body>;
  static constexpr cancels cancellation = Body::cancellation;

  explicit staged_body(Body&& body) : body_(std::move(body)) {}
  /// The round trip stops first, for it writes into the arguments.
  staged_body(staged_body&& other)
      : body_((other.round_trip_.stop(), std::move(other.body_))),
        phase_(other.phase_),
        round_trip_(std::move(other.round_trip_)),
        result_(std::move(other.result_)) {}

  [[nodiscard]] errc check(const communicator_base& state) const noexcept {
    if (state.options.device_memory == device_memory::refused) return errc::not_supported;
    bool claimed = false;
    if (goes_direct(state)) {
      detail::for_each_staged(body_, [&](const char*, const staged_buffer& one, bool, bool) {
        claimed = claimed || is_claimed(one);
      });
    }
    return claimed ? errc::device_ordered : body_.check(state);
  }
  void explain(failure_text& text) const {
    detail::for_each_staged(body_, [&](const char* field, const staged_buffer& one, bool, bool) {
      text.with(field, "memory of device " + std::to_string(one.where.device));
      if (can_be_direct && is_claimed(one)) text.note("which NCCL works on");
    });
    body_.explain(text);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return body_.bytes(); }
  [[nodiscard]] int peer() const noexcept
    requires requires(const Body& body) { body.peer(); }
  {
    return body_.peer();
  }
  [[nodiscard]] auto agreed() const
    requires requires(const Body& body) { body.agreed(); }
  {
    return body_.agreed();
  }

  void begin(poster& post, argument_check* check) {
    phase_ = phase::fetching;
    round_trip_.to = std::make_shared<round_trip>(post, check, carriers::make());
    const bool direct = goes_direct(post.base());
    detail::for_each_staged(body_,
                            [&](const char*, staged_buffer& one, bool is_read, bool is_written) {
                              if (one.bytes != 0)
                                round_trip_.to->load().add(one, is_read, is_written, direct);
                            });
    round_trip_.to->start_in();
    // The others are told in the comparison, and do not post what this rank never will.
    if (post.level() == checks::cross_rank) post.operation().fail(round_trip_.to->failure());
  }
  int post(poster& post) {
    if (phase_ == phase::fresh) {  // a message
      begin(post, nullptr);
      post.hold();
      return MPI_SUCCESS;
    }
    phase_ = phase::posted;
    const int rc = body_.post(post);
    if (rc == MPI_SUCCESS && !post.has_requests()) bring_out(post);
    return rc;
  }
  bool advance(poster& post) {
    post.resume();
    if (post.operation().failed()) return false;
    if (phase_ == phase::fetching) {
      post.check(this->post(post));
      return true;
    }
    if (phase_ == phase::storing) return false;
    if constexpr (requires { body_.advance(post); }) {
      if (body_.advance(post)) return true;
      if (post.operation().failed()) return false;
    }
    return bring_out(post);
  }
  void let_go() noexcept {
    if (round_trip_.to) round_trip_.to->let_go();
  }
  void give_up() {
    if (round_trip_.to) round_trip_.to->give_up();
  }

  typename values::type finish(std::error_code error, const outcome_of_requests& outcome) {
    if (!result_) result_.emplace(body_.finish(error, outcome));
    return std::move(*result_);
  }

 private:
  // Why this is no look task is told in docs/design/layers.md, "Operations of several stages".
  enum class phase : std::uint8_t { fresh, fetching, posted, storing };
  /// An operation is moved before it begins, and when it ends: then its round trip must not go on.
  struct round_trip_handle {
    round_trip_handle() noexcept {}
    round_trip_handle(round_trip_handle&& other) noexcept : to(std::move(other.to)) { stop(); }
    ~round_trip_handle() { stop(); }
    void stop() noexcept {
      if (to) to->forget();
    }
    std::shared_ptr<round_trip> to;
  };
  /// Where host code works on the elements before or after MPI, MPI is given a copy.
  static constexpr bool can_be_direct = !requires { requires Body::works_on_host; };

  [[nodiscard]] static bool goes_direct(const communicator_base& state) noexcept {
    return can_be_direct && state.options.device_memory == device_memory::cuda_aware;
  }
  [[nodiscard]] static bool is_claimed(const staged_buffer& one) noexcept {
    return one.bytes != 0 && carriers::is_claimed(one.where.device);
  }
  /// True if something is on its way.
  bool bring_out(poster& post) {
    const request_operation& op = post.operation();
    phase_ = phase::storing;
    // What the verb of MPI does at its end: it averages, and says what has come.
    result_.emplace(body_.finish({}, {op.status, op.left, op.message}));
    std::size_t most = std::numeric_limits<std::size_t>::max();
    if constexpr (values::has_status) most = std::get<status>(*result_).bytes();
    if (most == 0 || !round_trip_.to->start_out(most)) return false;
    post.hold();
    return true;
  }

  Body body_;
  phase phase_ = phase::fresh;
  round_trip_handle round_trip_;
  std::optional<typename values::type> result_;
};

namespace detail {

inline const bool are_included = [] {
  has_staged_verbs = true;
  return true;
}();

}  // namespace detail

}  // namespace cohort::comm
