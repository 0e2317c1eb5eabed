// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::persistent_operation`, made by `all_reduce_init` and its kin: a collective over the
/// same buffers that runs again and again.
///
/// \code
/// std::vector<double> part(100, 1.0);
/// auto sum = cohort::all_reduce_init(world, part, cohort::op::sum);
/// for (int step = 0; step < 3; ++step) co_await sum.run();
///
/// sum.start();             // or in two parts:
/// // … compute what does not touch `part` …
/// co_await sum.finish();
/// \endcode

#include <cohort/collectives/all_gather.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/all_to_all.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/collectives/bodies/persistent.hpp>
#include <cohort/collectives/broadcast.hpp>
#include <cohort/collectives/gather.hpp>
#include <cohort/collectives/neighbor.hpp>
#include <cohort/collectives/reduce.hpp>
#include <cohort/collectives/reduce_scatter.hpp>
#include <cohort/collectives/scan.hpp>
#include <cohort/collectives/scatter.hpp>
#include <cohort/progress/future.hpp>

#include <algorithm>
#include <concepts>
#include <memory>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace cohort {

/// A collective that was described once, to be run many times.
///
/// All ranks make one together, and make it anew together: that is local, but a request of one rank
/// belongs to those of the others. A run is a collective: it takes its place in the order of those
/// of the communicator, and all ranks run it as this, none as the plain verb. It borrows its
/// buffers, whose elements lie side by side and stay where they are, until it is gone.
///
/// A backend takes a run as it takes the verb. What is left to MPI is a persistent request where
/// MPI has them (MPI 4, and Open MPI 4.1 by its extension), for blocks of less than 2 GiB within
/// one group of ranks; else each run is the verb. So it is never more than the verb, with the same
/// results. The first run makes the request, in which MPI may wait for the other ranks.
///
/// *Errors* and checks: those of the verb. To make one of elements with gaps throws
/// `errc::not_supported`; a run while one is in flight is `errc::invalid_argument`. After an error
/// of MPI make it anew, on all ranks. *Cancellation*: none. *Dropped* while in flight, after
/// `start`: what a dropped future does. *Threads*: one at a time. Like a communicator it must not
/// outlive the context. *Cost*: one block of memory; none for a run, a future for a start.
/// *Source*: `MPI_Allreduce_init` and its kin, `MPI_Start`.
template <class Make>
class [[nodiscard]] persistent_operation {
 public:
  /// For the functions below. `make` returns the body of the verb.
  persistent_operation(const communicator& comm, Make make)
      : runs_(std::make_shared<runs>(comm)), make_(std::move(make)) {}

  /// Runs it. *Completion*: `void(std::error_code)`. *Example*: `co_await sum.run();`, or
  /// `sum.run(cohort::blocking);`
  template <completion_token_for<void(std::error_code)> Token = default_token>
  auto run(Token&& token = Token()) {
    return comm::initiate(runs_->comm(), body(runs_, make_()), token);
  }

  /// Starts it; `finish` has what goes wrong. Throws `errc::invalid_argument` if it is in flight.
  void start() {
    if (is_in_flight()) {
      throw error(errc::invalid_argument, "start of a persistent operation that is in flight");
    }
    started_.emplace(run(as_future));
  }
  /// Completes when the run in flight has ended; if none is, at once, with the result of the last.
  /// *Completion*: `void(std::error_code)`. *Example*: `co_await sum.finish();`
  template <completion_token_for<void(std::error_code)> Token = default_token>
  auto finish(Token&& token = Token()) {
    return comm::initiate(runs_->comm(), collectives::detail::finish_body(runs_), token);
  }

  /// Whether something has been started that has not ended.
  [[nodiscard]] bool is_in_flight() const noexcept { return runs_->is_in_flight(); }
  /// Whether runs restart a request of MPI. False before the first run, and where a backend does
  /// them.
  [[nodiscard]] bool is_persistent() const { return runs_->has_request(); }

 private:
  using runs = collectives::detail::runs;
  using body = collectives::detail::run_body<std::invoke_result_t<Make&>>;
  std::shared_ptr<runs> runs_;
  Make make_;
  std::optional<future<>> started_;  // has the duty to the buffers
};

namespace collectives::detail {

/// Reduces in a borrowed buffer.
template <template <class, class> class Body, class Op, class Buffer>
[[nodiscard]] auto keep_reduction(const communicator& comm, Buffer& buffer, int root = 0) {
  auto make = [view = side_by_side(view_of(buffer)), where = place_in(comm, root)]() mutable {
    return Body<comm::kept<Buffer&>, Op>(view, where);
  };
  return persistent_operation<decltype(make)>(comm, std::move(make));
}
/// The same from one buffer to another.
template <template <class, class, class> class Body, class Op, class In, class Out>
[[nodiscard]] auto keep_reduction(const communicator& comm, In& in, Out& out, int root = 0) {
  auto make = [from = side_by_side(view_of(in)), to = side_by_side(view_of(out)),
               where = place_in(comm, root)]() mutable {
    return Body<comm::kept_to_read<In&>, comm::kept<Out&>, Op>(from, to, where);
  };
  return persistent_operation<decltype(make)>(comm, std::move(make));
}
template <class Verb, class Buffer>
[[nodiscard]] auto keep_movement(const communicator& comm, Buffer& buffer, int root = 0) {
  auto make = [view = side_by_side(view_of(buffer)), where = place_in(comm, root)]() mutable {
    using kept = comm::kept<Buffer&>;
    return moves_in_place<Verb, kept>(comm::argument<kept>(view), where);
  };
  return persistent_operation<decltype(make)>(comm, std::move(make));
}
template <class Verb, class In, class Out>
[[nodiscard]] auto keep_movement(const communicator& comm, In& in, Out& out, int root = 0) {
  auto make = [from = side_by_side(view_of(in)), to = side_by_side(view_of(out)),
               where = place_in(comm, root)]() mutable {
    using read = comm::kept_to_read<In&>;
    using written = comm::kept<Out&>;
    return moves<Verb, read, written>(comm::argument<read>(from), comm::argument<written>(to),
                                      where);
  };
  return persistent_operation<decltype(make)>(comm, std::move(make));
}

/// A rank knows the blocks of its neighbours only, so it cannot tell whether all ranks would take
/// the plain verb: what a request cannot count is refused.
template <class Verb, class In, class Out>
[[nodiscard]] auto keep_neighbors(const communicator& comm, In& in, Out& out) {
  if (std::max(view_of(in).count, view_of(out).count) > mpi::max_int_count) {
    throw error(errc::not_supported,
                "a persistent collective of neighbours: more than 2^31 - 1 elements in a buffer");
  }
  return keep_movement<Verb>(comm, in, out);
}

template <class In, class Out, class Op>
using equal_reduce_scatter_body = reduce_scatter_body<In, Out, Op, block_sizes::equal>;
template <class Buffer, class Op>
using equal_reduce_scatter_in_place_body =
    reduce_scatter_in_place_body<Buffer, Op, block_sizes::equal>;

template <class Op, class Buffer>
concept keeps_reducing_in = writable_buffer<Buffer> && reduces_in<Op, Buffer>;
template <class Op, class In, class Out>
concept keeps_reducing_to = readable_buffer<In> && writable_buffer<Out> && reduces_to<Op, In, Out>;
template <class In, class Out>
concept keeps_moving_to = readable_buffer<In> && writable_buffer<Out> && movable_to<In, Out>;

}  // namespace collectives::detail

// ---- the verbs: arguments as of the verb, in borrowed memory of the host
// -------------------------

/// *Example*: `auto sum = cohort::all_reduce_init(world, part, cohort::op::sum);`
template <class Buffer, reduction Op>
  requires collectives::detail::keeps_reducing_in<Op, Buffer>
auto all_reduce_init(const communicator& comm, Buffer&& buffer, Op&&) {
  return collectives::detail::keep_reduction<collectives::all_reduce_in_place_body,
                                             std::remove_cvref_t<Op>>(comm, buffer);
}
template <class In, class Out, reduction Op>
  requires collectives::detail::keeps_reducing_to<Op, In, Out>
auto all_reduce_init(const communicator& comm, In&& in, Out&& out, Op&&) {
  return collectives::detail::keep_reduction<collectives::all_reduce_body, std::remove_cvref_t<Op>>(
      comm, in, out);
}

/// *Example*: `auto sum = cohort::reduce_init(world, part, cohort::op::sum, 0);`
template <class Buffer, reduction Op, std::integral Root>
  requires collectives::detail::keeps_reducing_in<Op, Buffer>
auto reduce_init(const communicator& comm, Buffer&& buffer, Op&&, Root root) {
  return collectives::detail::keep_reduction<collectives::reduce_in_place_body,
                                             std::remove_cvref_t<Op>>(
      comm, buffer, collectives::detail::to_rank(root));
}
template <class In, class Out, reduction Op, std::integral Root>
  requires collectives::detail::keeps_reducing_to<Op, In, Out>
auto reduce_init(const communicator& comm, In&& in, Out&& out, Op&&, Root root) {
  return collectives::detail::keep_reduction<collectives::reduce_body, std::remove_cvref_t<Op>>(
      comm, in, out, collectives::detail::to_rank(root));
}

/// *Example*: `auto mine = cohort::reduce_scatter_init(world, all, part, cohort::op::sum);`
template <class In, class Out, reduction Op>
  requires collectives::detail::keeps_reducing_to<Op, In, Out>
auto reduce_scatter_init(const communicator& comm, In&& in, Out&& out, Op&&) {
  return collectives::detail::keep_reduction<collectives::detail::equal_reduce_scatter_body,
                                             std::remove_cvref_t<Op>>(comm, in, out);
}

/// *Example*: `auto spread = cohort::broadcast_init(world, weights, 0);`
template <class Buffer, std::integral Root>
  requires writable_buffer<Buffer>
auto broadcast_init(const communicator& comm, Buffer&& buffer, Root root) {
  auto make =
      [kept = collectives::detail::side_by_side(view_of(buffer)),
       where = collectives::detail::place_in(comm, collectives::detail::to_rank(root))]() mutable {
        return collectives::broadcast_body<comm::kept<Buffer&>>(kept, where);
      };
  return persistent_operation<decltype(make)>(comm, std::move(make));
}

/// *Example*: `auto meet = cohort::barrier_init(world);`
inline auto barrier_init(const communicator& comm) {
  auto make = [] { return collectives::barrier_body(); };
  return persistent_operation<decltype(make)>(comm, std::move(make));
}

/// *Example*: `auto all = cohort::all_gather_init(world, mine, everyones);`
template <class In, class Out>
  requires collectives::detail::keeps_moving_to<In, Out>
auto all_gather_init(const communicator& comm, In&& in, Out&& out) {
  return collectives::detail::keep_movement<collectives::all_gather_verb>(comm, in, out);
}
template <writable_buffer Buffer>
auto all_gather_init(const communicator& comm, Buffer&& buffer) {
  return collectives::detail::keep_movement<collectives::all_gather_verb>(comm, buffer);
}

/// *Example*: `auto swap = cohort::all_to_all_init(world, out, in);`
template <class In, class Out>
  requires collectives::detail::keeps_moving_to<In, Out>
auto all_to_all_init(const communicator& comm, In&& in, Out&& out) {
  return collectives::detail::keep_movement<collectives::all_to_all_verb>(comm, in, out);
}
template <writable_buffer Buffer>
auto all_to_all_init(const communicator& comm, Buffer&& buffer) {
  return collectives::detail::keep_movement<collectives::all_to_all_verb>(comm, buffer);
}

/// *Example*: `auto all = cohort::gather_init(world, mine, everyones, 0);`
template <class In, class Out, std::integral Root>
  requires collectives::detail::keeps_moving_to<In, Out>
auto gather_init(const communicator& comm, In&& in, Out&& out, Root root) {
  return collectives::detail::keep_movement<collectives::gather_verb>(
      comm, in, out, collectives::detail::to_rank(root));
}

/// *Example*: `auto part = cohort::scatter_init(world, everyones, mine, 0);`
template <class In, class Out, std::integral Root>
  requires collectives::detail::keeps_moving_to<In, Out>
auto scatter_init(const communicator& comm, In&& in, Out&& out, Root root) {
  return collectives::detail::keep_movement<collectives::scatter_verb>(
      comm, in, out, collectives::detail::to_rank(root));
}

/// *Example*: `auto before = cohort::scan_init(world, counts, ends, cohort::op::sum);`
template <class Buffer, reduction Op>
  requires collectives::detail::keeps_reducing_in<Op, Buffer>
auto scan_init(const communicator& comm, Buffer&& buffer, Op&&) {
  return collectives::detail::keep_reduction<collectives::scan_in_place_body,
                                             std::remove_cvref_t<Op>>(comm, buffer);
}
template <class In, class Out, reduction Op>
  requires collectives::detail::keeps_reducing_to<Op, In, Out>
auto scan_init(const communicator& comm, In&& in, Out&& out, Op&&) {
  return collectives::detail::keep_reduction<collectives::scan_body, std::remove_cvref_t<Op>>(
      comm, in, out);
}

/// *Example*: `auto begin = cohort::exclusive_scan_init(world, counts, begins, cohort::op::sum);`
template <class Buffer, reduction Op>
  requires collectives::detail::keeps_reducing_in<Op, Buffer>
auto exclusive_scan_init(const communicator& comm, Buffer&& buffer, Op&&) {
  return collectives::detail::keep_reduction<collectives::exclusive_scan_in_place_body,
                                             std::remove_cvref_t<Op>>(comm, buffer);
}
template <class In, class Out, reduction Op>
  requires collectives::detail::keeps_reducing_to<Op, In, Out>
auto exclusive_scan_init(const communicator& comm, In&& in, Out&& out, Op&&) {
  return collectives::detail::keep_reduction<collectives::exclusive_scan_body,
                                             std::remove_cvref_t<Op>>(comm, in, out);
}

/// Over a communicator with a topology, as its kin below. Throws `errc::not_supported` for more
/// elements than an int counts. *Example*: `auto all = cohort::neighbor_all_gather_init(grid, mine,
/// around);`
template <class In, class Out>
  requires collectives::detail::keeps_moving_to<In, Out>
auto neighbor_all_gather_init(const communicator& comm, In&& in, Out&& out) {
  return collectives::detail::keep_neighbors<collectives::neighbor_all_gather_verb>(comm, in, out);
}
/// *Example*: `auto halo = cohort::neighbor_all_to_all_init(grid, edges, around);`
template <class In, class Out>
  requires collectives::detail::keeps_moving_to<In, Out>
auto neighbor_all_to_all_init(const communicator& comm, In&& in, Out&& out) {
  return collectives::detail::keep_neighbors<collectives::neighbor_all_to_all_verb>(comm, in, out);
}

}  // namespace cohort
