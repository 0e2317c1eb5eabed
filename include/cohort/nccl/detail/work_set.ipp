// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How operations on several devices are posted together: bodies of `nccl/source.hpp`.

#include <cohort/nccl/source.hpp>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::nccl {

// 1. The parts are queued at once, each on its device, so their places are the same on all ranks.
// 2. A part at the head of its queue holds it until all the others are at the head of theirs.
// 3. One group of NCCL posts them.
// 4. Nothing else is called on these devices until all communicators of the group say success.
// 5. From there on each is an operation of its device. The last one to end ends the whole.
//
// A part whose communicator has failed is left out: the others may be of other communicators, whose
// peers count on this rank.

COHORT_INLINE void issue_source::submit_parts(work& whole) {
  bool ended = false;
  {
    const std::lock_guard hold(mutex_);
    work_set& set = *whole.joined;
    whole.age.since = clock::now();
    for (const work& part : set.parts) {
      queue& one = queue_of(part.comm->device);
      if (is_gone(one)) device_gone(one);
      whole.fail(why_refused(one, *part.comm));
    }
    ended = static_cast<bool>(whole.error());
    if (!ended) {
      whole.pending_ = true;
      set.left = set.parts.size();
      for (work& part : set.parts) static_cast<void>(submit_held(part));
    }
  }
  if (ended) {
    engine_.complete(&whole);
  } else {
    engine_.started();
  }
}

/// What is to be delivered now that this has ended, or null: other parts go on.
COHORT_INLINE work* issue_source::concluded(work& op) noexcept {
  op.pending_ = false;
  if (op.part_of == nullptr) return &op;
  work_set& set = *op.part_of;
  set.whole->fail(op.error());
  if (--set.left != 0) return nullptr;
  set.whole->pending_ = false;
  return set.whole;
}

COHORT_INLINE bool issue_source::is_together(const work_set& set) {
  return std::all_of(set.parts.begin(), set.parts.end(), [&](const work& part) {
    if (part.error()) return true;
    const queue& one = queue_of(part.comm->device);
    return !one.stopped && one.launching == nullptr && !one.waiting.empty() &&
           one.waiting.front().op == &part;
  });
}

COHORT_INLINE std::size_t issue_source::issue_parts(work_set& set, progress::ready_queue& ready) {
  std::size_t found = 0;
  std::vector<work*> posted;
  for (work& part : set.parts) {
    if (part.error()) continue;
    queue& one = queue_of(part.comm->device);
    one.waiting.pop_front();
    const bool any = part.more.empty()
                         ? detail::launches(part.one)
                         : std::any_of(part.more.begin(), part.more.end(), detail::launches);
    if (any) {
      one.launching = &part;
      posted.push_back(&part);
    } else {
      --part.comm->outstanding;
      found += finish(part, ready);
    }
  }
  if (posted.empty()) return found;
  std::error_code why;
  std::string text = "the call failed";
  work* culprit = posted.front();
  const auto note = [&](ncclResult_t code) {
    if (detail::failed(code) && !why) why = make_error(code);
  };
  note(ncclGroupStart());
  const bool is_open = !why;
  for (work* const part : posted) {
    if (why) break;
    culprit = part;
    try {
      note(issue(queue_of(part->comm->device), *part));
    } catch (...) {
      detail::problem bad = detail::problem_of(std::current_exception());
      why = bad.code;
      text = std::move(bad.text);
    }
  }
  if (is_open) note(ncclGroupEnd());
  if (why) fall(*culprit->comm, why, text, false, true);
  return found;
}

/// Of the call that the operation is part of. `of` is who says so.
COHORT_INLINE ncclResult_t issue_source::state_of_launch(work& op, communicator_state*& of) {
  const auto ask_one = [&](communicator_state& comm) {
    of = &comm;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm.native, &state);
    return detail::failed(asked) ? asked : state;
  };
  const ncclResult_t own = ask_one(*op.comm);
  if (own != ncclSuccess || op.part_of == nullptr || op.part_of->launched) return own;
  for (work& part : op.part_of->parts) {
    if (&part == &op || queue_of(part.comm->device).launching != &part) continue;
    const ncclResult_t other = ask_one(*part.comm);
    if (other != ncclSuccess) return other;
  }
  of = op.comm.get();
  op.part_of->launched = true;
  return ncclSuccess;
}

}  // namespace cohort::nccl
