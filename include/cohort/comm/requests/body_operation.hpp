// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A verb's body at work: how it starts, goes from stage to stage and ends, whoever waits for it.

#include <cohort/comm/body.hpp>
#include <cohort/comm/communicator_state.hpp>
#include <cohort/core/config.hpp>
#include <cohort/core/failure.hpp>

#include <cstddef>
#include <memory>

namespace cohort::comm::detail {

/// What waits for it derives from it, and has the body.
class body_operation : public request_operation {
 public:
  [[nodiscard]] progress::engine& owner() const noexcept { return state().engine; }

 protected:
  body_operation(function run, communicator_ref comm, const body_functions& functions, void* body,
                 std::size_t moves) noexcept
      : request_operation(run), comm_(comm), functions_(functions), body_(body) {
    verb = functions.name;
    bytes = moves;
    cancellable = functions.cancellation == cancels::receive;
    if (functions.advance != nullptr) advance_ = &advance_body;
  }
  virtual ~body_operation() = default;

  [[nodiscard]] communicator_state& state() const noexcept { return *comm_.state; }

  /// What this rank can see to be wrong ends the operation before any MPI call. Under the guard it
  /// is posted, or queued, or a backend is found that takes it. True: it has ended already, and is
  /// the caller's to deliver. Else the operation may be gone after that.
  [[nodiscard]] bool start();
  /// Under the guard, as operation `number` of its communicator; 0: it is not numbered.
  void count_as_live(std::uint64_t number) noexcept;
  /// For reports. Can wait until MPI has the request: it then costs no latency.
  void describe();
  /// When it ends, and its handler is to be called if `deliver`. Here, because by the time a
  /// foreign executor has its turn the engine may be gone.
  void end(bool deliver) {
    if (live_on != nullptr) no_longer_live(deliver);
  }
  /// The same for what was never started.
  void end_unposted();
  void report_deadline();

 private:
  /// The body is with MPI. Under the guard.
  virtual void posted() = 0;
  /// What is to be said of the error that the body has failed with.
  virtual void tell(const failure_text& text) = 0;

  [[nodiscard]] any_backend* find_backend();
  void not_begun() noexcept;
  void give_to(any_backend& backend);
  int post_check(poster& post);
  static void post_checked(request_operation* base) noexcept;
  static bool advance_body(request_operation* base);
  bool advance_and_pass(poster& post);
  [[nodiscard]] failure_text name() const;
  void explain();
  [[nodiscard]] bool backend_has_it();
  void no_longer_live(bool deliver);

  const communicator_ref comm_;
  const body_functions& functions_;
  void* const body_;
  std::unique_ptr<argument_check> check_;  // only with checks::cross_rank
};

}  // namespace cohort::comm::detail
