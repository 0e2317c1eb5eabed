// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A request to ask MPI for where there is no other, so that it makes progress.

#include <cohort/mpi/environment.hpp>
#include <cohort/mpi/native.hpp>

#include <new>

namespace cohort::mpi {

/// A generalized request that nothing ends. Asking for it makes progress on all that MPI has, in
/// Open MPI and MPICH; a probe on MPI_COMM_SELF makes none in MPICH. Every call with MPI's lock
/// held.
class progress_request {
 public:
  progress_request() noexcept {}
  progress_request(const progress_request&) = delete;
  progress_request& operator=(const progress_request&) = delete;
  ~progress_request() { reset(); }
  /// Ends it, if MPI may be called.
  void reset() {
    cancel_at_finalize(&end, this);
    if (running() && is_allowed_thread()) end(this);
  }

  void make_progress() {
    if (request_ == MPI_REQUEST_NULL) begin();
    int done = 0;
    MPI_Request_get_status(request_, &done, MPI_STATUS_IGNORE);
  }

 private:
  void begin() noexcept try {
    MPI_Grequest_start([](void*, MPI_Status*) { return MPI_SUCCESS; },
                       [](void*) { return MPI_SUCCESS; }, [](void*, int) { return MPI_SUCCESS; },
                       nullptr, &request_);
    if (request_ != MPI_REQUEST_NULL) at_finalize(&end, this);
  } catch (const std::bad_alloc&) {  // it stays until MPI goes
  }
  static void end(void* of) noexcept {
    MPI_Request& request = static_cast<progress_request*>(of)->request_;
    if (request == MPI_REQUEST_NULL) return;
    MPI_Grequest_complete(request);
    MPI_Request_free(&request);
  }

  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace cohort::mpi
