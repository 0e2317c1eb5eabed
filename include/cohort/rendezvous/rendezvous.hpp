// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::rendezvous`: values that are sent and received by key, step by step.
///
///     cohort::rendezvous exchange(world);
///     auto step = exchange.step(42);
///     if (rank == key.source) step.send(key, std::vector<float>(1000, 1.F));
///     if (rank == key.destination) {
///       auto [value, dead] = co_await step.recv<std::vector<float>>(key);
///     }
///     co_await step.drained();    // all that this rank has sent in the step has been received
///     exchange.cleanup(42);       // the step is over on this rank
///     co_await exchange.close();  // all ranks have closed

#include <cohort/rendezvous/operation.hpp>
#include <cohort/rendezvous/step.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {

/// Brings together who sends a value and who receives it, on any ranks and in either order. Both
/// name the value by a key, within a step. A handle: copies are the same rendezvous.
///
/// 1. The constructor over a communicator is collective over it, and does not block. Steps can be
///    used at once, while communicators are made in the background as by `communicator::dup`.
/// 2. Values are sent and received in steps, until each rank cleans them up.
/// 3. `close` leaves. So does the last handle when it is dropped: in the background inside the
///    loop, in place after `io.run()`.
///
/// A constructor throws error(errc::invalid_argument) for options out of range. Unless they say
/// `deferred`, every operation of the other ranks then fails with mismatch_error.
class rendezvous {
 public:
  rendezvous() noexcept {}
  template <std::same_as<communicator> Communicator>
  explicit rendezvous(const Communicator& world, const rendezvous_options& options = {})
      : where_(meeting::open_endpoint<void>(engine_of(world), options,
                                            options.is_deferred ? Communicator() : world)) {}
  /// Everything waits until `initialize`.
  template <std::same_as<asio::io_context> Context>
  explicit rendezvous(Context& io, const rendezvous_options& options = {})
      : where_(meeting::open_endpoint<void>(use_engine(io), options, communicator())) {}

  /// Begins over the ranks of `world`, for all steps: what was called before is done now. A send
  /// among that which is not from this rank aborts its step with errc::not_local. Collective, and
  /// only once: a second call with a communicator of the same ranks does nothing, any other is
  /// errc::invalid_communicator.
  void initialize(const communicator& world) const { here().initialize(world); }

  /// The random number that the process of a rank has drawn at its start. 0 until that rank has
  /// told it. Throws errc::not_initialised or errc::bad_rank.
  [[nodiscard]] std::uint64_t incarnation(int rank) const { return here().incarnation(rank); }

  /// The step with this number, made at the first call. Throws errc::step_cleaned or errc::closed.
  rendezvous_step step(step_id id) const { return rendezvous_step(where_, here().step(id), id); }
  /// The steps that this rank knows, also those that only another rank has asked for.
  [[nodiscard]] std::vector<step_id> steps() const { return here().steps(); }

  /// Which way the values of this rank have gone to others.
  [[nodiscard]] rendezvous_statistics stats() const { return here().statistics(); }

  /// Forgets a step and all its values on this rank; its number cannot be used again. Its receives
  /// end with errc::step_cleaned, and so do those of other ranks that ask for its values.
  void cleanup(step_id id) const { here().cleanup(id); }
  void cleanup_all() const {
    for (const step_id id : steps()) cleanup(id);
  }
  /// Cleans up the steps that have passed `step_ttl`, as this rank also does now and then.
  void sweep() const { here().sweep(); }

  /// This rank sends and receives no more. Collective: completes when all ranks have closed. Until
  /// then others still get the values that they want from here.
  /// *Result*: what this rank has sent or been sent and nobody has received; that is also logged.
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
