// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file all_gather and all_to_all, whose sizes ranks tell each other first. [protocol Z1]

#include <cohort/coordinator/data/whole_calls.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace cohort::coordination {

/// The sizes of this rank enter; those of all ranks leave, and the data.
template <class Any>
class sized_calls {
 public:
  explicit sized_calls(basic_execution<Any>& of) noexcept : of_(of) {}

  bool exchanged = false;

  void exchange(lane& on) {
    const task& only = *of_.tasks.front();
    const auto ranks = static_cast<std::size_t>(of_.here->size);
    const bool same = only.kind == op_kind::all_gather;
    of_.rows->rows.assign(same ? ranks * only.row_counts : ranks, 0);
    own_rows_ = only.sizes;
    own_rows_.resize(same ? only.row_counts : ranks);  // a joined rank brings nothing
    // If the data of one rank may not fit an int, all ranks must know. Below this bound they fit
    // everywhere.
    std::size_t mine = 0;
    for (const std::int64_t one : own_rows_) mine += static_cast<std::size_t>(one) * only.row_bytes;
    if (!mpi::has_large_counts && mine > mpi::max_int_count / ranks) {
      for (std::int64_t& one : own_rows_) one = ~one;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    const auto each = static_cast<MPI_Count>(only.row_counts);
    const int rc =
        same ? mpi::post::iallgather(own_rows_.data(), each, MPI_INT64_T, of_.rows->rows.data(),
                                     each, MPI_INT64_T, of_.here->shared, &request)
             : mpi::post::ialltoall(own_rows_.data(), 1, MPI_INT64_T, of_.rows->rows.data(), 1,
                                    MPI_INT64_T, of_.here->shared, &request);
    of_.add(on, rc, request);
  }
  void take() {
    exchanged = true;
    of_.rows->large = false;
    for (std::int64_t& one : of_.rows->rows) {
      if (one >= 0) continue;
      one = ~one;
      of_.rows->large = true;
    }
  }
  void post(lane& on, MPI_Comm where) {
    task& only = *of_.tasks.front();
    const std::vector<std::int64_t>& come = of_.rows->rows;
    void* out = only.make_result(only, come);
    std::vector<std::size_t> counts(come.size());
    std::size_t all = 0;
    for (std::size_t i = 0; i < come.size(); ++i) {
      counts[i] = static_cast<std::size_t>(come[i]) * only.row_bytes;
      all += counts[i];
    }
    of_.bytes_ = all;
    if (of_.rows->large) return post_messages(on, where, static_cast<std::byte*>(out), counts);
    received_.emplace(counts, MPI_BYTE);
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;
    if (only.kind == op_kind::all_gather) {
      const auto me = static_cast<std::size_t>(of_.here->rank);
      const MPI_Count own =
          received_->large() ? static_cast<MPI_Count>(counts[me]) : received_->counts()[me];
      rc = mpi::post::iallgatherv(only.first.in, own, received_->type(), out, *received_, where,
                                  &request);
    } else {
      for (std::size_t i = 0; i < counts.size(); ++i) {
        counts[i] =
            i < only.sizes.size() ? static_cast<std::size_t>(only.sizes[i]) * only.row_bytes : 0;
      }
      sent_.emplace(counts, MPI_BYTE);
      rc = mpi::post::ialltoallv(only.first.in, *sent_, out, *received_, where, &request);
    }
    of_.add(on, rc, request);
  }
  void reset() noexcept {
    exchanged = false;
    own_rows_.clear();
    sent_.reset();
    received_.reset();
  }

 private:
  // Where counts and places may be too large for an int: a message for each pair of ranks.
  void post_messages(lane& on, MPI_Comm where, std::byte* out, std::span<const std::size_t> come) {
    const task& only = *of_.tasks.front();
    const bool same = only.kind == op_kind::all_gather;  // the whole for every rank
    const auto* in = static_cast<const std::byte*>(only.first.in);
    for (std::size_t i = 0; i < come.size(); ++i) {
      const mpi::layout block = layout_of(out, come[i]);
      MPI_Request request = MPI_REQUEST_NULL;
      const int rc = mpi::post::irecv(out, block.count(), block.type(), static_cast<int>(i), 0,
                                      where, &request);
      of_.add(on, rc, request);
      out += come[i];
    }
    for (std::size_t i = 0; i < come.size(); ++i) {
      const std::size_t k = same ? 0 : i;
      const std::size_t bytes =
          k < only.sizes.size() ? static_cast<std::size_t>(only.sizes[k]) * only.row_bytes : 0;
      const mpi::layout block = layout_of(in, bytes);
      MPI_Request request = MPI_REQUEST_NULL;
      const int rc = mpi::post::isend(in, block.count(), block.type(), static_cast<int>(i), 0,
                                      where, &request);
      of_.add(on, rc, request);
      if (!same && bytes != 0) in += bytes;
    }
  }

  basic_execution<Any>& of_;
  std::vector<std::int64_t> own_rows_;  // what an exchange sends
  std::optional<mpi::blocks> sent_;
  std::optional<mpi::blocks> received_;
};

}  // namespace cohort::coordination
