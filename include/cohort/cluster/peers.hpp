// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Calls from a worker to other workers, and to the manager.

#include <cohort/cluster/call_client.hpp>
#include <cohort/cluster/call_verbs.hpp>

#include <memory>
#include <utility>

namespace cohort::cluster {

/// What `call_context::peers()` gives: `call`, `notify` and `with` as `workers` has them. Ranks are
/// the ids that the manager uses; `manager_id` is the manager, if its option `serve_calls` is set.
/// The messages travel over MPI, those to the manager as its own do. A handle: a coroutine that
/// outlives its call may keep a copy, until the worker leaves.
///
/// A worker leaves when all workers are idle and no call is under way between them, so none is
/// lost. *Errors*: as for calls of the manager; peer_lost_error for a worker that the manager has
/// lost.
class peers : public call_verbs<peers> {
 public:
  explicit peers(std::shared_ptr<call_client> calls) : calls_(std::move(calls)) {}

  /// Gets what functions throw that were called by `notify`, on the loop; the default logs it.
  void on_notify_error(call_client::notify_error_handler handler) const {
    calls_->on_notify_error(std::move(handler));
  }

 private:
  friend call_verbs<peers>;
  [[nodiscard]] std::shared_ptr<call_client> client() const { return calls_; }

  std::shared_ptr<call_client> calls_;
};

}  // namespace cohort::cluster
