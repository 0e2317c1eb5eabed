// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The backend of backend_choice::mpi_blocking.

#include <cohort/comm/backend.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/native.hpp>

#include <climits>
#include <cstddef>
#include <string_view>

namespace cohort::comm {

/// Calls MPI's blocking collectives, with no lock held.
class mpi_blocking final : public any_backend {
 public:
  explicit mpi_blocking(MPI_Comm on) noexcept : on_(on) {}

  /// In bytes, which are equal on all ranks where the types of a movement are not.
  [[nodiscard]] bool takes(const collective_call& call) noexcept override {
    int size = 1;
    MPI_Type_size(call.type, &size);
    return call.count <= INT_MAX && call.count * static_cast<std::size_t>(size) <= INT_MAX;
  }
  void start(const collective_call& call, backend_completion done) override {
    const int rc = block(call);
    done(rc == MPI_SUCCESS ? std::error_code() : mpi::make_error(rc));
  }
  [[nodiscard]] std::string_view name() const noexcept override { return "blocking"; }

  /// MPI's return code.
  [[nodiscard]] int block(const collective_call& call) const {
    const int count = static_cast<int>(call.count);
    const void* const in = call.in;
    void* const out = call.out;
    const MPI_Datatype type = call.type;
    switch (call.kind) {
      case op_kind::all_reduce:
        return MPI_Allreduce(in, out, count, type, call.op, on_);
      case op_kind::reduce:
        return MPI_Reduce(in, out, count, type, call.op, call.root, on_);
      case op_kind::reduce_scatter:
        return MPI_Reduce_scatter_block(in, out, count, type, call.op, on_);
      case op_kind::broadcast:
        return MPI_Bcast(out, count, type, call.root, on_);
      case op_kind::all_gather:
        return MPI_Allgather(in, count, type, out, count, type, on_);
      case op_kind::gather:
        return MPI_Gather(in, count, type, out, count, type, call.root, on_);
      case op_kind::scatter:
        return MPI_Scatter(in, count, type, out, count, type, call.root, on_);
      case op_kind::all_to_all:
        return MPI_Alltoall(in, count, type, out, count, type, on_);
      case op_kind::barrier:
        return MPI_Barrier(on_);
      default:  // of coordinators
        return MPI_ERR_OTHER;
    }
  }

 private:
  MPI_Comm on_;
};

}  // namespace cohort::comm
