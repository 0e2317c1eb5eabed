// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::rendezvous`: values that are sent and received by key, step by step.

#include <cohort/rendezvous/operation.hpp>
#include <cohort/rendezvous/step.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {

/// Brings together who sends a value and who receives it, on any ranks, in either order, by a key
/// within a step. A handle: copies are the same rendezvous.
///
/// The constructor over a communicator is collective over it like any operation on it and does not
/// block; steps can be used at once, while communicators are made as by `communicator::dup`. Throws
/// error(errc::invalid_argument) for options out of range, and unless they say `deferred`, every
/// operation of the other ranks then fails with mismatch_error. The last handle dropped leaves as
/// `close` does, inside the loop in the background, after `io.run()` in place.
class rendezvous {
 public:
  rendezvous() noexcept {}
  /// (Templates, so that only who makes a rendezvous compiles it.)
  template <std::same_as<communicator> Communicator>
  explicit rendezvous(const Communicator& world, const rendezvous_options& options = {})
      : where_(meeting::open_endpoint<void>(engine_of(world), options,
                                            options.is_deferred ? Communicator() : world)) {}
  /// Everything waits until `initialize`.
  template <std::same_as<asio::io_context> Context>
  explicit rendezvous(Context& io, const rendezvous_options& options = {})
      : where_(meeting::open_endpoint<void>(use_engine(io), options, communicator())) {}

  /// Begins over the ranks of `world`, for all steps; what was called before is done now. Once and
  /// collective. A communicator of the same ranks again is no error, another one is
  /// errc::invalid_communicator. A send that was kept until now and turns out not to come from this
  /// rank aborts its step with errc::not_local.
  void initialize(const communicator& world) const { here().initialize(world); }

  /// What the process of a rank is known by: a random number of its start. 0 until that rank has
  /// said it. Throws errc::not_initialised or errc::bad_rank.
  [[nodiscard]] std::uint64_t incarnation(int rank) const { return here().incarnation(rank); }

  /// The step with this number, made at the first call. Throws errc::step_cleaned or errc::closed.
  rendezvous_step step(step_id id) const { return rendezvous_step(where_, here().step(id), id); }
  /// The steps that this rank knows, also those that only another rank has asked for.
  [[nodiscard]] std::vector<step_id> steps() const { return here().steps(); }

  /// Which way the values of this rank have gone to others.
  [[nodiscard]] rendezvous_statistics stats() const { return here().statistics(); }

  /// Forgets a step and all its values on this rank; its number cannot be used again. Receives end
  /// with errc::step_cleaned, also those of other ranks that ask for its values.
  void cleanup(step_id id) const { here().cleanup(id); }
  void cleanup_all() const {
    for (const step_id id : steps()) cleanup(id);
  }
  /// Cleans up the steps that have passed `step_ttl`, as this rank also does now and then.
  void sweep() const { here().sweep(); }

  /// This rank sends and receives no more. Collective: completes when all ranks have closed; until
  /// then values that others still want are served. *Result*: what this rank has sent or been sent
  /// and nobody has received, which is also logged.
  /// *Completion*: `void(std::exception_ptr, std::vector<leaked_value>)`; errc::stalled after
  /// `leave_deadline`. *Cancellation* ends the await only.
  template <class Token = default_token>
  auto close(Token&& token = Token()) const {
    return meeting::initiate(where_, meeting::close_body(), token);
  }

 private:
  [[nodiscard]] meeting::endpoint& here() const {
    if (!where_) throw error(errc::invalid_argument, "no rendezvous");
    return **where_;
  }
  template <class Communicator>
  static progress::engine& engine_of(const Communicator& world) {
    if (!world) throw error(errc::invalid_communicator, "rendezvous");
    return world.state()->engine;
  }

  meeting::handle_ptr where_;
};

}  // namespace cohort

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/rendezvous/exchange/exchange.hpp>
#endif
