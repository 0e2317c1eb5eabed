// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// `graph::error`, and what a window says when it ends.

#include <cohort/core/error.hpp>
#include <cohort/graph/machine/content.hpp>
#include <cohort/graph/machine/report.hpp>
#include <cohort/graph/machine/stall.hpp>
#include <cohort/progress/exception.hpp>

#include <exception>
#include <string>
#include <utility>

namespace cohort::graph {

/// Why a task has no value, or an await ends without one.
using failure = machine::failure;
/// One thing in which ranks, or two spawns of one rank, differ although they must not.
using divergence = machine::divergence;
/// How a window has ended: `failed` tasks, the `first_failure` of the smallest key, and
/// `divergences`. Equal on all ranks.
using report = machine::window_report;
/// What waits in a scope, and why, as the homes of the tasks have told; ages in milliseconds.
using stall_report = machine::stall_report;

namespace runtime {

/// What a scope ends with that was cancelled with this cause.
[[nodiscard]] inline failure cancellation_by(failure cause) {
  const std::string rank = std::to_string(cause.rank);
  const bool lost = cause.code == errc::peer_lost;
  if (!lost) cause.code = errc::cancelled;
  cause.text =
      (lost ? "rank " + rank + " is lost: " : "the scope was cancelled by rank " + rank + ": ") +
      cause.text;
  return cause;
}

}  // namespace runtime

/// What an await, a fence or the run of a scope throws. Its code is one of errc: task_failed,
/// not_spawned, cycle, diverged, taken, stale_name, not_local, cancelled, closed, peer_lost,
/// binary_mismatch. The exception of a task is nested in it, as far as its type can travel: see
/// core/exception.hpp.
class error : public cohort::error {
 public:
  explicit error(const failure& why)
      : cohort::error(why.code, why.text), root_(why.task), rank_(why.rank) {}
  /// Of a window that has not ended well.
  explicit error(const report& ended) : error(worst_of(ended)) {}

  /// The task that failed first, "factor(3)", or that was not spawned, or whose value was taken.
  [[nodiscard]] const std::string& root() const noexcept { return root_; }
  /// Where that was; negative if it is not known.
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  template <class Any = void>
  [[nodiscard]] static failure worst_of(const report& ended);

  std::string root_;
  int rank_;
};

template <class Any>
failure error::worst_of(const report& ended) {
  if (ended.cancelled) return runtime::cancellation_by(*ended.cancelled);
  failure worst;
  if (!ended.divergences.empty()) {
    const divergence& first = ended.divergences.front();
    worst.code = errc::diverged;
    worst.task = first.task;
    worst.text = first.task + ": " + first.text;
    if (ended.divergences.size() > 1) {
      worst.text += " (and " + std::to_string(ended.divergences.size() - 1) + " divergences more)";
    }
  } else if (ended.first_failure) {
    worst = *ended.first_failure;
    if (ended.failed > 1) worst.text += " (" + std::to_string(ended.failed) + " tasks failed)";
  } else if (ended.closed) {
    worst.code = errc::closed;
    worst.text = "other ranks have ended more than this rank has";
  } else {
    worst.code = errc::task_failed;
    worst.text = std::to_string(ended.failed) + " tasks failed";
  }
  return worst;
}

namespace runtime {

/// As an exception, with the one of the task nested in it.
template <class Any = void>
[[nodiscard]] std::exception_ptr exception_of(const failure& why) {
  std::exception_ptr inner;
  if (!why.exception.empty()) {
    wire::reader in(why.exception);
    inner = progress::decode_exception(in);
  }
  return nested_in(error(why), inner);
}

/// What is being thrown, as a failure.
template <class Any = void>
[[nodiscard]] failure failure_of(const std::exception_ptr& thrown, errc code, int rank) {
  failure why;
  why.code = code;
  why.rank = rank;
  wire::writer out(why.exception);
  progress::encode_exception(out, thrown, rank, {});
  why.text = describe_exception(thrown);
  return why;
}

}  // namespace runtime
}  // namespace cohort::graph
