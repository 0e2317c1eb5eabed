// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `comm/creation.hpp`.

#include <cohort/comm/communicator_state.hpp>
#include <cohort/comm/creation.hpp>

#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/post.hpp>

#include <algorithm>

namespace cohort::comm {

// Open MPI and MPICH send messages with the tag that MPI_Comm_create_group is given.
inline constexpr int group_tag = 32767;

COHORT_INLINE creation::creation(communicator_state& parent, request_operation& op, ranks members,
                                 int tag)
    : parent_(parent),
      op_(op),
      members_(std::move(members)),
      tag_(tag),
      stages_(members_.empty() ? parent.exchange.size() : static_cast<int>(members_.size()),
              members_.empty() ? parent.exchange.rank()
                               : members_.position_of(parent.exchange.rank())) {
  received_.reserve(creation_stages::radix + 1);
  creation_turn::of_process().enter();
}

COHORT_INLINE void creation::begin() noexcept {
  op_.advances_failed_ = true;  // to leave
  creation** last = &parent_.creations;
  while (*last != nullptr) last = &(*last)->next_;
  *last = this;
  linked_ = true;
  wait();
}

/// The operation waits without a request, and each look asks whether it may go on.
COHORT_INLINE void creation::wait() noexcept {
  op_.waits_for_turn_ = true;
  parent_.source.at_next_look(*this);
}

COHORT_INLINE std::size_t creation::at_look() {
  const bool may = waits_for_turn_ ? creation_turn::of_process().has(this) : is_first();
  if (!may) {
    parent_.source.at_next_look(*this);
    return 0;
  }
  return backend_completion(parent_.engine, op_).in_look({}) ? 1 : 0;
}

/// Of those with its tag.
COHORT_INLINE bool creation::is_first() const noexcept {
  const creation* first = parent_.creations;
  while (first->tag_ != tag_) first = first->next_;
  return first == this;
}

/// False when it is over, for good or bad. What could not be posted fails the operation, which goes
/// on for as long as MPI has other requests of it.
COHORT_INLINE bool creation::advance() noexcept {
  op_.waits_for_turn_ = false;
  if (op_.failed() || !linked_) return false;
  try {
    return take_stages();
  } catch (const std::system_error& problem) {
    op_.fail(problem.code());
  } catch (...) {
    op_.fail(std::make_error_code(std::errc::not_enough_memory));
  }
  return request_source::pending(op_);
}

COHORT_INLINE bool creation::take_stages() {
  creation_turn& turn = creation_turn::of_process();
  bool answer = std::all_of(received_.begin(), received_.end(), [](char one) { return one != 0; });
  for (;;) {
    received_.clear();
    switch (stages_.next(answer)) {
      case creation_stages::stage::exchange:
        answer = true;
        if (post_exchange()) return true;
        break;
      case creation_stages::stage::try_turn:
        answer = turn.try_take(this);
        break;
      case creation_stages::stage::give_turn:
        turn.give_back(this);
        break;
      case creation_stages::stage::find_line:
        line_up();
        break;
      case creation_stages::stage::wait_turn:
        turn.wait(this);
        if (turn.has(this)) break;
        waits_for_turn_ = true;
        wait();
        return true;
      case creation_stages::stage::make:
        return false;
    }
  }
}

/// False if there is nothing to exchange.
COHORT_INLINE bool creation::post_exchange() {
  const MPI_Comm over = parent_.exchange.native();
  received_.resize(stages_.receives().size());
  MPI_Request request = MPI_REQUEST_NULL;
  for (std::size_t i = 0; i < received_.size(); ++i) {
    mpi::check(mpi::post::irecv(&received_[i], 1, MPI_BYTE, rank_of(stages_.receives()[i]), tag_,
                                over, &request),
               "MPI_Irecv");
    parent_.source.add(request, op_);
  }
  sent_ = stages_.value() ? 1 : 0;
  for (const int member : stages_.sends()) {
    mpi::check(mpi::post::isend(&sent_, 1, MPI_BYTE, rank_of(member), tag_, over, &request),
               "MPI_Isend");
    parent_.source.add(request, op_);
  }
  return request_source::pending(op_);
}

COHORT_INLINE int creation::rank_of(int member) const noexcept {
  return members_.empty() ? member : members_[static_cast<std::size_t>(member)];
}

/// By rank in MPI_COMM_WORLD, in which order all processes line up. Some may belong to another one
/// (MPI_Comm_spawn).
COHORT_INLINE void creation::line_up() {
  const mpi::group here = parent_.exchange.group();
  const mpi::group world = mpi::comm_ref::world().group();
  stages_.line_up([&](int member) {
    const int rank = rank_of(member);
    int place = MPI_UNDEFINED;
    mpi::check(MPI_Group_translate_ranks(here.native(), 1, &rank, world.native(), &place),
               "MPI_Group_translate_ranks");
    return place == MPI_UNDEFINED ? -1 : place;
  });
}

COHORT_INLINE mpi::comm creation::made() const {
  if (parent_.data.is_inter()) return static_cast<const mpi::comm_ref&>(parent_.data).dup();
  const mpi::comm_ref& over = parent_.exchange;
  const mpi::group all = over.group();
  return members_.empty() ? over.create(all, group_tag)
                          : over.create(all.include(members_), group_tag);
}

COHORT_INLINE void creation::leave() noexcept {
  if (!linked_) return;
  linked_ = false;
  creation_turn::of_process().give_back(this);
  parent_.source.forget(*this);
  creation** at = &parent_.creations;
  while (*at != this) at = &(*at)->next_;
  *at = next_;
}

COHORT_INLINE void creation::abandon(communicator_state& parent) noexcept {
  while (parent.creations != nullptr) {
    parent.creations->op_.settle();
    parent.creations->leave();
  }
}

COHORT_INLINE void creation::fail_waiting(communicator_state& parent, std::error_code why,
                                          progress::ready_queue& ready) noexcept {
  while (parent.creations != nullptr) {
    request_operation& op = parent.creations->op_;
    parent.creations->leave();
    if (!op.waits_for_turn_) continue;
    op.waits_for_turn_ = false;
    op.fail(why);
    op.settle();
    ready.push(&op);
  }
}

}  // namespace cohort::comm
