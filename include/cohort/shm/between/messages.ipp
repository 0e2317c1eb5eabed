// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of shm/between/messages.hpp.

#include <cohort/core/error.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/shm/between/messages.hpp>

#include <algorithm>
#include <utility>

namespace cohort::shm::detail {

COHORT_INLINE node_messages::node_messages(std::shared_ptr<const node_map> map, MPI_Comm over,
                                           int first_tag, std::size_t chunks, std::size_t share)
    : map_(std::move(map)),
      over_(over),
      first_tag_(first_tag),
      longest_(std::max(least_message, packs::aligned((share + most_pieces - 1) / most_pieces))),
      each_((share + longest_ - 1) / longest_),
      pieces_(chunks * each_),
      spare_(pieces_.size() * longest_),
      requests_(2 * pieces_.size(), MPI_REQUEST_NULL) {
  for (piece& one : pieces_) one.steps.reserve(2 * map_->nodes() + 64);
}

COHORT_INLINE void node_messages::expect(std::size_t slot, const node_share& share) {
  const bool is_sum = share.root == SIZE_MAX && share.block == 0;
  const bool for_one = is_sum && map_->nodes() == 2 && share.sum_for != SIZE_MAX;
  const bool is_halved = is_sum && !for_one && is_halved_between_two(*map_, share.bytes);
  const std::size_t most = is_halved ? 2 * longest_ : longest_;
  const std::size_t whole = most - most % share.size;
  for (std::size_t i = 0; i < each_; ++i) {
    const std::size_t index = slot * each_ + i;
    piece& one = pieces_[index];
    const std::size_t begin = std::min(i * whole, share.bytes);
    const std::size_t bytes = std::min(whole, share.bytes - begin);
    one.share = share;
    if (share.block == 0) {
      one.share.data += begin;
      one.share.own += begin;
    }
    one.share.bytes = bytes;
    one.steps.clear();
    one.at = 0;
    one.receives = one.sends = one.has_begun = false;
    if (bytes == 0 || failed_) continue;
    one.spare =
        share.block != 0 ? &spare_[index * longest_] : &spare_[slot * each_ * longest_] + begin;
    if (share.block != 0) {
      plan_blocks(one.steps, *map_, share.kind, share.block);
      for (node_step& each : one.steps) {
        cut(each.out, each.out_bytes, i, share.size);
        cut(each.in, each.in_bytes, i, share.size);
      }
    } else if (for_one) {
      plan_sum_for_one(one.steps, *map_, share.sum_for, bytes);
    } else if (is_sum) {
      plan_sum(one.steps, *map_, share.bytes, bytes, share.size);
    } else {
      plan_broadcast(one.steps, *map_, share.root, share.bytes, bytes);
    }
    if (is_sum && share.own != share.data) mark_own(one.steps);
    go_on(index);
  }
}

/// The messages of one share may differ in length. Both ends know that of each.
COHORT_INLINE void node_messages::cut(std::size_t& begin, std::size_t& bytes, std::size_t number,
                                      std::size_t unit) const noexcept {
  const std::size_t each =
      std::max(longest_ - longest_ % unit, packs::aligned((bytes + each_ - 1) / each_, unit));
  const std::size_t skipped = std::min(number * each, bytes);
  begin += skipped;
  bytes = std::min(each, bytes - skipped);
}

COHORT_INLINE void node_messages::begin(std::size_t slot) {
  for (std::size_t index = slot * each_; index < (slot + 1) * each_; ++index) {
    pieces_[index].has_begun = true;
    go_on(index);
  }
}

COHORT_INLINE bool node_messages::has_arrived(std::size_t slot) const noexcept {
  const auto first = pieces_.begin() + static_cast<std::ptrdiff_t>(slot * each_);
  return std::all_of(first, first + static_cast<std::ptrdiff_t>(each_),
                     [](const piece& one) { return one.has_begun && one.at == one.steps.size(); });
}

/// Up to a step that waits for something. Before this node has its share, only what arrives first
/// gets its place.
COHORT_INLINE void node_messages::go_on(std::size_t index) {
  piece& one = pieces_[index];
  while (one.at != one.steps.size() && !failed_) {
    if (!std::exchange(one.receives, true)) post(index, false);
    if (!one.has_begun) return;
    if (!std::exchange(one.sends, true)) post(index, true);
    if (one.open != 0 || failed_) return;
    end_step(index);
    ++one.at;
    one.receives = one.sends = false;
  }
}

COHORT_INLINE void node_messages::post(std::size_t index, bool outwards) {
  piece& one = pieces_[index];
  const node_step& step = one.steps[one.at];
  const std::size_t bytes = outwards ? step.out_bytes : step.in_bytes;
  if (bytes == 0) return;  // for the other node too
  const auto count = static_cast<MPI_Count>(bytes);
  const int tag = first_tag_ + static_cast<int>(index);
  int code = MPI_SUCCESS;
  if (outwards) {
    const std::byte* const base = step.sends_own ? one.share.own : one.share.data;
    code = mpi::post::isend(base + step.out, count, MPI_BYTE, counterpart(step.to), tag, over_,
                            &requests_[2 * index]);
  } else {
    std::byte* const to = step.what == node_step::use::take ? one.share.data + step.in : one.spare;
    code = mpi::post::irecv(to, count, MPI_BYTE, counterpart(step.from), tag, over_,
                            &requests_[2 * index + 1]);
  }
  if (code == MPI_SUCCESS) {
    ++one.open;
    ++open_;
  } else if (!failed_) {
    failed_ = mpi::make_error(code);
  }
}

COHORT_INLINE unsigned node_messages::look() {
  unsigned ended = 0;
  if (failed_) cancel_receives();
  // Not for ever, however fast they come: the loop has other work.
  for (std::size_t i = 0; i < requests_.size() && (open_ != 0 || failed_); ++i) {
    int request = MPI_UNDEFINED;
    int found = 0;
    MPI_Status status;
    const int code = MPI_Testany(static_cast<int>(requests_.size()), requests_.data(), &request,
                                 &found, &status);
    if (code == MPI_SUCCESS && (found == 0 || request == MPI_UNDEFINED)) break;
    if (code != MPI_SUCCESS && request == MPI_UNDEFINED) {
      fail(mpi::make_error(code));
      break;
    }
    ++ended;
    took(static_cast<std::size_t>(request), status, code);
    go_on(static_cast<std::size_t>(request) / 2);
  }
  return ended;
}

COHORT_INLINE void node_messages::took(std::size_t request, const MPI_Status& status, int error) {
  if (failed_) return;
  piece& one = pieces_[request / 2];
  --one.open;
  --open_;
  if (error != MPI_SUCCESS) {
    // Longer than it may be: the other node does something else.
    int kind = error;
    MPI_Error_class(error, &kind);
    failed_ = kind == MPI_ERR_TRUNCATE ? make_error_code(errc::cross_rank_mismatch)
                                       : mpi::make_error(error);
  } else if (request % 2 == 1) {
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (static_cast<std::size_t>(bytes) == one.steps[one.at].in_bytes) return;
    failed_ = make_error_code(errc::cross_rank_mismatch);
  }
}

COHORT_INLINE void node_messages::end_step(std::size_t index) {
  const piece& one = pieces_[index];
  const node_step& step = one.steps[one.at];
  if (step.what == node_step::use::take || step.in_bytes == 0) return;
  if (!one.share.reduce.is_plain()) return;  // a barrier
  std::byte* const here = one.share.data + step.in;
  const std::byte* const mine = step.combines_own ? one.share.own + step.in : here;
  std::array<const std::byte*, 2> operands{mine, one.spare};
  if (step.what == node_step::use::theirs_first) std::swap(operands[0], operands[1]);
  std::vector<std::byte> none;
  one.share.reduce(here, operands, step.in_bytes / one.share.size, none);
}

COHORT_INLINE void node_messages::cancel_receives() noexcept {
  if (std::exchange(is_cancelled_, true)) return;
  for (std::size_t i = 1; i < requests_.size(); i += 2) {
    if (requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
  }
}

COHORT_INLINE bool node_messages::leave() noexcept {
  fail(make_error_code(errc::closed));
  cancel_receives();
  for (MPI_Request& each : requests_) {
    for (int looks = 0; looks < 100 && each != MPI_REQUEST_NULL; ++looks) {
      int done = 0;
      if (MPI_Test(&each, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
    }
  }
  return !any_under_way();
}

COHORT_INLINE std::string node_messages::waits_for() const {
  std::string text;
  for (std::size_t index = 0; index < pieces_.size(); ++index) {
    const piece& one = pieces_[index];
    if (!one.has_begun || requests_[2 * index + 1] == MPI_REQUEST_NULL) continue;
    const std::string rank = ' ' + std::to_string(counterpart(one.steps[one.at].from));
    if (text.find(rank) == std::string::npos) text += rank;
  }
  return text;
}

}  // namespace cohort::shm::detail
