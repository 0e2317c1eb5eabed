// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::barrier`: completes when every rank has started it.

#include <cohort/collectives/bodies/place.hpp>
#include <cohort/comm/body.hpp>
#include <cohort/mpi/native.hpp>

namespace cohort {
namespace collectives {
struct barrier_body;
}  // namespace collectives

/// Completes on no rank before all ranks have called it.
///
/// *Collective over* `comm`, in the same order on all ranks. Terminal cancellation detaches: the
/// other ranks still see this rank arrive.
/// *Completion*: `void(std::error_code)`.
/// *Cost*: MPI's; log2(n) empty messages per rank. *Source*: `MPI_Ibarrier`.
/// *Example*: `co_await cohort::barrier(world);`
template <completion_token_for<void(std::error_code)> Token = default_token>
auto barrier(const communicator& comm, Token&& token = Token());

/// Chosen when a call does not fit: says what is wrong with it.
template <class First, class... Rest>
explained barrier(const communicator&, First&&, Rest&&...) {
  comm::require_tokens<First, Rest...>();
  static_assert(collectives::detail::never<First, Rest...>,
                "this call does not fit: a barrier takes a communicator and a completion token");
  return {};
}

namespace collectives {

struct barrier_body {
  using signature = void(std::error_code);
  static constexpr const char* name = name_of(op_kind::barrier).data();
  static constexpr comm::cancels cancellation = comm::cancels::detach;

  [[nodiscard]] errc check(const comm::communicator_base&) const noexcept { return errc{}; }
  void explain(failure_text&) const {}
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  [[nodiscard]] std::array<std::int64_t, 4> agreed() const noexcept { return {}; }
  [[nodiscard]] comm::collective_call call() const noexcept {
    return {op_kind::barrier, nullptr, nullptr, 0, MPI_BYTE, MPI_OP_NULL, 0};
  }
  int post(const comm::poster& post) const {
    MPI_Request request = MPI_REQUEST_NULL;
    return post.add(MPI_Ibarrier(post.native(), &request), request);
  }
  std::tuple<> finish(std::error_code, const comm::outcome_of_requests&) const { return {}; }
};

}  // namespace collectives

template <completion_token_for<void(std::error_code)> Token>
auto barrier(const communicator& comm, Token&& token) {
  return comm::initiate(comm, collectives::barrier_body(), token);
}

}  // namespace cohort
