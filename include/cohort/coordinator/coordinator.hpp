// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// `cohort::coordinator`: named collectives in any order on any rank. For programs in which it
/// differs between ranks when a tensor is ready: training with several gradients under way, say.
///
/// \code
/// cohort::coordinator coord(world);
/// std::vector<float> w(1000, 1.0F);
/// double loss = world.rank();
/// auto averaged = coord.all_reduce("w", w, cohort::op::average, cohort::as_future);
/// co_await coord.all_reduce("loss", loss, cohort::op::sum);  // others may have begun with this
/// co_await std::move(averaged);
/// co_await coord.shutdown();
/// \endcode

#include <cohort/coordinator/process_set.hpp>
#include <cohort/coordinator/verbs/set_verbs.hpp>

#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace cohort {

/// Finds the operations that every rank has submitted, agrees on an order with the other ranks,
/// packs small ones and runs them. A handle, see \ref process_set for its verbs.
///
/// The constructor is collective over `world` like any operation on it and does not block;
/// operations can be submitted at once, while communicators are made as by `communicator::dup`.
/// Options come from the environment where that has them. Throws error(errc::invalid_argument) that
/// names a bad option, once it has begun to tell the other ranks; these, and options that differ
/// between ranks, fail every operation with mismatch_error.
///
/// The last handle dropped leaves: inside the loop in the background, after `io.run()` in place.
class coordinator : public process_set {
 public:
  coordinator() noexcept {}
  template <std::same_as<communicator> Communicator>
  explicit coordinator(const Communicator& world, const coordinator_options& options = {})
      : process_set(make(world, options, nullptr)) {}
  /// With something else than MPI to do the data operations; MPI does what it does not take. All
  /// ranks give the same; otherwise every operation fails with mismatch_error.
  template <std::same_as<communicator> Communicator, comm::collective_backend Backend>
  coordinator(const Communicator& world, Backend backend, const coordinator_options& options = {})
      : process_set(make(world, options,
                         std::make_shared<comm::backend_holder<Backend>>(std::move(backend)))) {}

  /// With something that does the operations on device memory, `nccl::backend` say. All ranks give
  /// one; otherwise every operation fails with mismatch_error, and where it cannot be opened, with
  /// its error. What is submitted before that is done waits.
  template <std::same_as<communicator> Communicator, comm::device_backend_maker Backend>
  coordinator(const Communicator& world, const Backend& backend,
              const coordinator_options& options = {})
      : process_set(make(world, options, nullptr, backend.make_device_backend())) {}

  /// A set of some of the coordinator's ranks, with log, names and progress of its own; the
  /// position in the list is the rank in the set. *Collective over* the listed ranks only, which
  /// give the same list; on any other rank the result is empty, at once. *Errors*: mismatch_error
  /// for lists in different orders, errc::bad_rank, joined_error and peer_lost_error where a listed
  /// rank has joined or left. *Cost*: two rounds of negotiation, and four communicators, which the
  /// listed ranks make as by `communicator::dup`. With a backend for devices there are five, and
  /// the log is the coordinator's own: all ranks launch the operations of all sets in one order, a
  /// failure of a data operation ends all sets, and each start of a persistent group is elected.
  template <class Token = default_token>
  auto add_process_set(ranks members, Token&& token = Token()) const {
    return coordination::initiate(
        where_, coordination::add_set_body<process_set>(std::move(members)), token);
  }

  /// A set of the ranks of a communicator, in its order: of one that was split from that of the
  /// coordinator, or of any other whose processes are all in it. *Collective over* the ranks of
  /// `members`, so one call makes a set for each color of a split; with an empty communicator the
  /// result is empty, at once. Nothing is sent on `members`, which may go. *Errors* as above;
  /// errc::bad_rank on all its ranks where one is not in the coordinator, and
  /// errc::invalid_communicator for an intercommunicator.
  /// *Example:* `auto set = co_await coord.add_process_set(half);` after a split.
  template <std::same_as<communicator> Communicator, class Token = default_token>
  auto add_process_set(const Communicator& members, Token&& token = Token()) const {
    return coordination::initiate(where_, coordination::add_set_body<process_set>(members), token);
  }

  /// Memory that the backend for devices makes on every rank, for what gives it to programs:
  /// `nccl::make_fusion_arena`. Ends well also where this rank got none: the result says so.
  template <class Token = default_token>
  auto add_arena(std::size_t bytes, Token&& token = Token()) const {
    return coordination::initiate(
        where_, coordination::add_arena_body(operation_name("nccl::fusion_arena"), bytes), token);
  }

  /// Records from now on to a file of this rank: "trace.json" becomes "trace.3.json" on rank 3.
  /// `scripts/timeline_merge` joins the files. Returns the operating system's error.
  std::error_code start_timeline(const std::string& path) const {
    return (**where_).start_timeline(path);
  }
  void stop_timeline() const { (**where_).stop_timeline(); }

  /// Marks the end of a step, of training for example, in the timeline.
  void step() const { (**where_).step(); }

 private:
  template <class Communicator>
  static std::shared_ptr<coordination::instance_handle> make(
      const Communicator& world, const coordinator_options& options,
      std::shared_ptr<comm::any_backend> backend,
      std::shared_ptr<comm::device_backend> device = nullptr) {
    return std::make_shared<coordination::instance_handle>(
        coordination::open_instance(world, options, std::move(backend), std::move(device)));
  }
};

}  // namespace cohort

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/coordinator/log/negotiation.hpp>
#endif
