// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::wait`: awaits any MPI request: persistent, one-sided, file, another library's.

#include <cohort/comm/body.hpp>
#include <cohort/mpi/request.hpp>

#include <tuple>
#include <utility>

namespace cohort {
namespace p2p {
struct wait_body;
}

/// Completes when `request` does.
///
/// The handle is moved out at initiation: the variable reads `MPI_REQUEST_NULL`. On completion it
/// is given what MPI leaves, null or the inactive persistent request; after a cancellation, or when
/// a future was dropped, nothing. So the variable must live until then. A null or inactive request
/// completes at once with an empty status. *Completion*: `void(std::error_code, status)`.
/// *Cancellation*: terminal; the await ends and the engine keeps the request until MPI is done,
/// with buffers that stay the caller's duty. *Errors*: of the request. One whose communicator still
/// has MPI's default handler ends the job when it fails: give it `MPI_ERRORS_RETURN` (an
/// environment that started MPI does so for WORLD). *Cost*: nothing beyond the request. *Source*:
/// `MPI_Testsome`. *Example*: `auto st = co_await cohort::wait(world, request);`
template <completion_token_for<void(std::error_code, status)> Token = default_token>
auto wait(const communicator& comm, MPI_Request& request, Token&& token = Token());

namespace p2p {

struct wait_body {
  using signature = void(std::error_code, status);
  static constexpr const char* name = "wait";
  static constexpr comm::cancels cancellation = comm::cancels::detach;

  [[nodiscard]] errc check(const comm::communicator_base&) const noexcept { return errc{}; }
  void explain(failure_text&) const {}
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  int post(comm::poster& post) {
    const MPI_Request taken = std::exchange(*variable, MPI_REQUEST_NULL);
    post.operation().status = status().native();
    if (taken == MPI_REQUEST_NULL) return MPI_SUCCESS;
    // MPI_Testsome never reports an inactive persistent request, MPI_Test does, at once.
    int done = 0;
    MPI_Request tested = taken;
    const int rc = MPI_Test(&tested, &done, &post.operation().status);
    if (rc == MPI_SUCCESS && done == 0) return post.add(MPI_SUCCESS, tested);
    post.operation().left = tested;
    return rc;
  }
  std::tuple<status> finish(std::error_code, const comm::outcome_of_requests& outcome) {
    if (!outcome.is_dropped && outcome.left != MPI_REQUEST_NULL) *variable = outcome.left;
    return status(outcome.status);
  }

  MPI_Request* variable;
};

}  // namespace p2p

template <completion_token_for<void(std::error_code, status)> Token>
auto wait(const communicator& comm, MPI_Request& request, Token&& token) {
  return comm::initiate(comm, p2p::wait_body{&request}, token);
}

}  // namespace cohort
