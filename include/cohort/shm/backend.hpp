// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Collectives of the ranks of one node through memory that they share.
///
/// \code
/// auto node = co_await world.split_node();
/// node.set_backend(co_await cohort::shm::make_backend(node));
/// std::vector<float> halo(1000, 1.0F);
/// co_await cohort::all_reduce(node, halo, cohort::op::sum);  // no message of MPI
/// \endcode

#include <cohort/collectives/all_gather.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/broadcast.hpp>
#include <cohort/comm/backend.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/shm/memory.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace cohort::shm {

/// Must be equal on all ranks.
struct backend_options {
  /// Bytes that a rank lays down at a time; a multiple of 64 from 1 KiB to 64 MiB, or 0: 128 KiB,
  /// over several nodes 1 MiB. A rank has four such buffers for each of `orders`, those of a node
  /// all together in one segment.
  std::size_t chunk = 0;
  /// Up to here every rank reduces everything itself, which saves a round of waiting; above, a rank
  /// reduces its share.
  std::size_t whole_up_to = 1024;
  /// Independent sequences of collectives, see comm::collective_call::order: 1 suffices for a
  /// communicator's own verbs, a coordinator uses 3.
  std::uint32_t orders = 3;
};

namespace detail {

class plane;

}  // namespace detail

/// Does a communicator's collectives, or a coordinator's, through shared memory: on one node no
/// message carries data. A rank copies its part into the segment, ranks reduce or copy from there,
/// and nobody blocks: the engine looks at the others' counters as it looks at requests of MPI.
///
/// Over several nodes each has a segment, and the first ranks of each node, as many as the smallest
/// node has, carry a share of each vector between the nodes in messages of MPI. There it takes
/// all_reduce, reduce and reduce_scatter of what its own loops sum (see below), broadcast,
/// all_gather, all_to_all and barrier. Where a rank is alone on its node, long vectors that are
/// summed or broadcast go from and into the caller's memory. Sums are the same on every rank and in
/// every run, and associate node by node. They go on in the looks of the engine only: a rank that
/// starts a collective and then blocks in a call of MPI that waits for what another does after the
/// same collective waits for ever.
///
/// It takes all_reduce, reduce, broadcast, all_gather, gather, scatter, reduce_scatter, all_to_all
/// and barrier, of any number of elements whose type is one block of bytes, with every operation of
/// MPI. Results of reductions are the same on every rank and in every run: for float, double and
/// integers of 8 to 64 bits, and sum, product, minimum and maximum, those of
/// `((r0 op r1) op r2) …`, and for f16 and bf16 the same in float, rounded once; all else goes
/// through MPI_Reduce_local and associates from the right.
/// Communicators with `checks::cross_rank` leave everything to MPI. What a backend works on cannot
/// be cancelled. Reports and `COHORT_STALL_WARNING` name the first call of each order.
///
/// A handle, cheap to copy. Give each to one communicator or one coordinator: two that share one
/// would have to agree on an order. Calls on an idle segment cost no system call.
class backend {
 public:
  /// Takes nothing.
  backend() noexcept = default;
  /// Of make_backend.
  backend(std::shared_ptr<detail::plane> plane, std::string why) noexcept
      : plane_(std::move(plane)), why_(std::move(why)) {}

  /// Whether the ranks share memory; else every collective goes to MPI, and why() tells the reason.
  [[nodiscard]] bool active() const noexcept { return plane_ != nullptr; }
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  /// Bytes of the segment, all ranks together.
  [[nodiscard]] std::size_t bytes() const noexcept;

  [[nodiscard]] bool takes(const comm::collective_call& call) const noexcept;
  void start(const comm::collective_call& call, comm::backend_completion done) const;
  [[nodiscard]] comm::backend_run run(const comm::collective_call& call, comm::late_operation& op,
                                      std::error_code& error) const;
  bool forget(const comm::request_operation& op) const noexcept;
  bool leave() const noexcept;
  /// Packs go straight into the segment.
  [[nodiscard]] bool takes_scattered() const noexcept { return active(); }
  /// "shm"; "hierarchical" where the ranks are on several nodes; empty where it takes nothing.
  [[nodiscard]] std::string_view name() const noexcept;

 private:
  std::shared_ptr<detail::plane> plane_;
  std::string why_;
};

/// A backend over the ranks of `world`, for a communicator or for a coordinator:
/// `cohort::coordinator coord(node, co_await cohort::shm::make_backend(node));`. *Collective over*
/// `world`. Where ranks of one node cannot map each other's memory, all ranks get
/// a backend that takes nothing, and rank 0 logs why. *Errors*, on all ranks:
/// error(cross_rank_mismatch) where options differ, error(invalid_argument) with the name of an
/// option that is out of range. Cannot be cancelled. *Cost*: three small collectives,
/// over several nodes a duplicate of `world`, and 4 * `orders` * `chunk` bytes per rank, over
/// several nodes up to twice that.
template <std::same_as<communicator> Communicator>
asio::awaitable<backend> make_backend(Communicator world, backend_options options = {});

/// How communicators open shared memory themselves.
template <class Any>
struct backend_opener {
  [[nodiscard]] static const comm::backend_opening* opening() noexcept;
};

}  // namespace cohort::shm

namespace cohort::comm {

/// See communicator.hpp.
template <class Asking>
shm::backend_opener<void> backend_opener_for(asked_for<Asking>, int);

}  // namespace cohort::comm

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/shm/plane/backend.ipp>
#endif
