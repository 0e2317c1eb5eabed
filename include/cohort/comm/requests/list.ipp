// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `comm/requests/list.hpp`.

#include <cohort/comm/requests/list.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/request.hpp>

#include <algorithm>

namespace cohort::comm {

inline constexpr status empty_status;

// ---- adding ------------------------------------------------------------------------------------

COHORT_INLINE request_list::request_list() { make_room(); }

COHORT_INLINE void request_list::add(MPI_Request request, request_operation& op) {
  if (count_ == room_) [[unlikely]]
    make_room();  // there was no memory at the end of the last call
  requests_[count_] = request;
  operations_[count_] = &op;
  op.slot_ = count_++;
  op.is_probe_ = false;
  count_in(op);
  if (count_ == room_) [[unlikely]]
    make_room();
}

/// Doubles the arrays.
COHORT_INLINE void request_list::make_room() {
  const std::size_t room = std::max<std::size_t>(64, 2 * room_);
  auto requests = std::make_unique_for_overwrite<MPI_Request[]>(room);
  auto operations = std::make_unique_for_overwrite<request_operation*[]>(room);
  std::copy_n(requests_.get(), count_, requests.get());
  std::copy_n(operations_.get(), count_, operations.get());
  if (room_ < window) {
    const std::size_t looked_at = std::min<std::size_t>(room, window);
    auto indices = std::make_unique_for_overwrite<int[]>(looked_at);
    auto statuses = std::make_unique_for_overwrite<MPI_Status[]>(looked_at);
    std::fill_n(statuses.get(), looked_at, empty_status.native());
    indices_ = std::move(indices);
    statuses_ = std::move(statuses);
  }
  requests_ = std::move(requests);
  operations_ = std::move(operations);
  room_ = room;
}

COHORT_INLINE void request_list::add_probe(int source, int tag, MPI_Comm comm, probe_kind kind,
                                           request_operation& op) {
  make_room_for_probe();
  probes_.push_back({source, tag, comm, kind});
  probing_.push_back(&op);
  op.slot_ = probes_.size() - 1;
  op.is_probe_ = true;
  count_in(op);
}

COHORT_INLINE void request_list::make_room_for_probe() {
  const std::size_t room = 2 * probes_.size() + 8;
  if (probes_.size() == probes_.capacity()) probes_.reserve(room);
  if (probing_.size() == probing_.capacity()) probing_.reserve(room);
}

COHORT_INLINE void request_list::remove_request(std::size_t slot) noexcept {
  const std::size_t last = --count_;
  if (slot != last) {
    requests_[slot] = requests_[last];
    operations_[slot] = operations_[last];
    if (request_operation& moved = *operations_[slot]; is_last_added(moved, last)) {
      moved.slot_ = slot;
    }
  }
}

COHORT_INLINE void request_list::remove_probe(std::size_t slot) noexcept {
  const std::size_t last = probes_.size() - 1;
  if (slot != last) {
    probes_[slot] = probes_[last];
    probing_[slot] = probing_[last];
    probing_[slot]->slot_ = slot;
  }
  probes_.pop_back();
  probing_.pop_back();
}

// ---- looking ---------------------------------------------------------------------------------

/// Notes that the request of `op` in `slot` is complete, and empties `status` for the next one:
/// MPICH writes almost nothing into that of a send, so it would tell of an earlier message.
COHORT_INLINE void request_list::took_request(request_operation& op, std::size_t slot,
                                              MPI_Status& status, int error_of_request) noexcept {
  if (is_last_added(op, slot)) [[likely]] {
    op.status = status;
    op.left = requests_[slot];
    op.slot_ = request_operation::nowhere;
    if (op.cancelled_) [[unlikely]]
      note_giving_up(op);
  }
  status = empty_status.native();
  took(op, error_of_request);
}

/// A request that was cancelled is complete: given up, or its message came first.
COHORT_INLINE void request_list::note_giving_up(request_operation& op) noexcept {
  int given_up = 0;
  MPI_Test_cancelled(&op.status, &given_up);
  if (given_up != 0) op.fail(asio::error::operation_aborted);
}

/// Notes the outcome of one request or probe of `op`.
COHORT_INLINE void request_list::took(request_operation& op, int error_of_request) noexcept {
  if (error_of_request != MPI_SUCCESS) [[unlikely]]
    op.fail(mpi::make_error(error_of_request));
  count_out(op);
}

/// An MPI may return codes of its own, of which only the class is known.
COHORT_INLINE bool is_of_class(int code, int error_class) noexcept {
  int found = code;
  MPI_Error_class(code, &found);
  return found == error_class;
}

template <class Finish>
std::size_t request_list::test_requests(const Finish& finish) {
  const std::size_t n = count_;
  if (n == 0) return 0;
  int found = 0;
  // A single request is the usual case. Open MPI's MPI_Test looks once more after it has made
  // progress, where MPI_Testsome leaves that to the next call.
  if (n == 1) {
    const int rc = MPI_Test(requests_.get(), &found, statuses_.get());
    if (found == 0 && rc == MPI_SUCCESS) [[likely]]
      return 0;
    request_operation& op = *operations_[0];
    took_request(op, 0, statuses_[0], rc);
    count_ = 0;
    if (op.parts_ == 0) finish(op);
    return 1;
  }
  return test_several(finish);
}

template <class Finish>
std::size_t request_list::test_several(const Finish& finish) {
  const std::size_t n = count_;
  int found = 0;
  std::size_t first = 0;
  std::size_t count = n;
  if (n > window) [[unlikely]] {  // round robin over windows
    if (next_window_ >= n) next_window_ = 0;
    first = next_window_;
    count = std::min<std::size_t>(window, n - first);
    next_window_ = first + count;
  }
  const int rc = MPI_Testsome(static_cast<int>(count), requests_.get() + first, &found,
                              indices_.get(), statuses_.get());
  if (rc == MPI_SUCCESS && (found == 0 || found == MPI_UNDEFINED)) return 0;
  if (rc == MPI_SUCCESS && found == 1) [[likely]] {
    const std::size_t slot = first + static_cast<std::size_t>(indices_[0]);
    request_operation& op = *operations_[slot];
    took_request(op, slot, statuses_[0], MPI_SUCCESS);
    remove_request(slot);
    if (op.parts_ == 0) finish(op);
    return 1;
  }
  if (rc != MPI_SUCCESS && !is_of_class(rc, MPI_ERR_IN_STATUS)) [[unlikely]] {
    test_one_by_one(first, count, found);
  }
  // 1. Note outcomes, in whatever order MPI reports them; their slots become empty. Entries whose
  //    error is "pending" stay.
  // 2. Fill the empty slots with the last entries.
  // 3. Only then finish: a next stage adds entries.
  progress::ready_queue finished;
  std::size_t completions = 0;
  for (int i = 0; i < found; ++i) {
    const std::size_t slot = first + static_cast<std::size_t>(indices_[i]);
    const int error = rc == MPI_SUCCESS ? MPI_SUCCESS : statuses_[i].MPI_ERROR;
    if (error != MPI_SUCCESS && is_of_class(error, MPI_ERR_PENDING)) continue;
    ++completions;
    request_operation& op = *operations_[slot];
    took_request(op, slot, statuses_[i], error);
    operations_[slot] = nullptr;
    if (op.parts_ == 0) finished.push(&op);
  }
  for (int i = 0; i < found; ++i) {
    while (count_ != 0 && operations_[count_ - 1] == nullptr) --count_;
    const std::size_t slot = first + static_cast<std::size_t>(indices_[i]);
    if (slot < count_ && operations_[slot] == nullptr) remove_request(slot);
  }
  while (!finished.empty()) finish(static_cast<request_operation&>(*finished.pop()));
  return completions;
}

/// The whole call failed, so it says nothing about single requests: ask for each.
COHORT_INLINE void request_list::test_one_by_one(std::size_t first, std::size_t count, int& found) {
  found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    int done = 0;
    MPI_Status status = empty_status.native();
    const int rc = MPI_Test(&requests_[first + i], &done, &status);
    if (rc == MPI_SUCCESS && done == 0) continue;
    status.MPI_ERROR = is_of_class(rc, MPI_ERR_IN_STATUS) ? status.MPI_ERROR : rc;
    indices_[found] = static_cast<int>(i);
    statuses_[found] = status;
    ++found;
  }
}

template <class Finish>
std::size_t request_list::test_probes(const Finish& finish) {
  std::size_t found = 0;
  for (std::size_t slot = 0; slot < probes_.size();) {
    request_operation& op = *probing_[slot];
    int flag = 0;
    const int rc = op.cancelled_ ? MPI_SUCCESS : look_for(probes_[slot], flag, op);
    if (rc == MPI_SUCCESS && flag == 0 && !op.cancelled_) {
      ++slot;
      continue;
    }
    remove_probe(slot);
    op.slot_ = request_operation::nowhere;
    took(op, rc);
    if (op.cancelled_ && flag == 0) op.fail(asio::error::operation_aborted);
    ++found;
    // What was found must be taken at once, also while another request of the operation pends: the
    // two ranks of an exchange would otherwise wait for each other.
    if (op.parts_ == 0 || !op.failed()) finish(op);
  }
  return found;
}

COHORT_INLINE int request_list::look_for(const probe& wanted, int& flag, request_operation& op) {
  if (wanted.kind == probe_kind::elsewhere) return MPI_SUCCESS;
  if (wanted.kind == probe_kind::look) {
    return MPI_Iprobe(wanted.source, wanted.tag, wanted.comm, &flag, &op.status);
  }
  return MPI_Improbe(wanted.source, wanted.tag, wanted.comm, &flag, &op.message, &op.status);
}

// ---- giving up -------------------------------------------------------------------------------

COHORT_INLINE bool request_list::give_up(request_operation& op) {
  if (op.slot_ == request_operation::nowhere || op.cancelled_) return false;
  op.cancelled_ = true;
  // A cancelled probe is taken out by the next look.
  return op.is_probe_ || MPI_Cancel(&requests_[op.slot_]) == MPI_SUCCESS;
}

COHORT_INLINE void request_list::give_up_all() {
  for (std::size_t slot = 0; slot < count_; ++slot) {
    request_operation& op = *operations_[slot];
    if (op.idle_) no_longer_idle(op);
    if (op.cancellable && is_last_added(op, slot)) give_up(op);
  }
  for (request_operation* op : probing_) {
    if (op->idle_) no_longer_idle(*op);
    op->cancelled_ = true;
  }
}

}  // namespace cohort::comm
