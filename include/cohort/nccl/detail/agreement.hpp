// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What ranks tell each other of a step that may have failed on some of them.

#include <cohort/nccl/communicator.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/joint.hpp>
#include <cohort/progress/look_task.hpp>

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace cohort::nccl::detail {

/// What it throws, as a value.
inline progress::look_task<problem> told(progress::look_task<> work) {
  std::exception_ptr why;
  try {
    co_await work;
  } catch (...) {
    why = std::current_exception();
  }
  co_return problem_of(why);
}

/// What the ranks say of themselves; all throw the same if one has failed.
inline progress::look_task<> agree(cohort::communicator over, problem mine_is, const char* what) {
  std::vector<init_result> each(static_cast<std::size_t>(over.size()));
  init_result mine{mine_is.code ? 1 : 0, 0, {}};
  put(mine.text, mine_is.text);
  auto gathered = comm::joint::all_gather(over, mine, each);
  co_await gathered;
  std::vector<int> ranks;
  std::string text;
  for (int rank = 0; rank < over.size(); ++rank) {
    const init_result& one = each[static_cast<std::size_t>(rank)];
    if (one.failed == 0) continue;
    ranks.push_back(rank);
    text += (text.empty() ? std::string(what) + ": rank " : "; rank ") + std::to_string(rank) +
            ": " + get(one.text);
  }
  if (!ranks.empty()) throw rank_error(errc::aborted, ranks, text);
}

}  // namespace cohort::nccl::detail

#endif
