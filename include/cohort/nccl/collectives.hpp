// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The collectives of NCCL on a CUDA stream, awaited.
///
/// What they share. Each takes the communicator, the stream whose queued work comes first (and that
/// of the buffers' own streams), its arguments, and then `until` (default `until::complete`), a
/// completion token, both or neither. *Completion*: `void(std::error_code, Vectors...)`, with the
/// vectors that were moved in. *Collective* in one order on all ranks, over all communicators of
/// the device. *Cancellation*: ignored, since the peers count on it; a deadline is reported, and
/// brings the communicators down with `on_deadline::abort`. *Errors*: errc::wrong_device,
/// size_mismatch, bad_root, invalid_argument (overlapping buffers) before anything is called; the
/// communicator's error (category `nccl` or `cuda`, errc::deadline_exceeded) after it has failed;
/// errc::closed after it has ended. With an error from there on the contents of output are
/// undefined. An operation of nothing launches nothing. *Cost*: NCCL's, two events, and some
/// allocations of the host.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/operation.hpp>
#include <cohort/nccl/types.hpp>

namespace cohort::nccl {

/// Combines `buffer` over all ranks; every rank gets the result in place.
/// *Source*: `ncclAllReduce`.
/// *Example*: `co_await cohort::nccl::all_reduce(gpus, compute, g, cohort::op::average);`
template <writable_buffer B, reduction_of<element_of<B>> Op, class... Tail>
  requires detail::tail_for<detail::signature_for<B>, Tail...>
auto all_reduce(const communicator& comm, const device::stream& on, B&& buffer, const Op& op,
                Tail&&... tail) {
  using T = element_of<B>;
  request asked = detail::request_for(comm.state(), on, "all_reduce", op_kind::all_reduce);
  detail::count_as(asked, reduced_as<T>(), buffer.size(), sizeof(T));
  asked.one.op = as_operator<T>(op);
  asked.one.from = asked.one.to = buffer.data();
  return detail::initiate_one<B>(std::move(asked), "buffer", buffer, std::forward<Tail>(tail)...);
}

/// The same, out of place. `out` has as many elements as `in`; they are the same memory or do not
/// overlap.
template <device_buffer In, writable_buffer Out, reduction_of<element_of<In>> Op, class... Tail>
  requires std::same_as<element_of<In>, element_of<Out>> &&
           detail::tail_for<detail::signature_for<In, Out>, Tail...>
auto all_reduce(const communicator& comm, const device::stream& on, In&& in, Out&& out,
                const Op& op, Tail&&... tail) {
  using T = element_of<In>;
  request asked = detail::request_for(comm.state(), on, "all_reduce", op_kind::all_reduce);
  detail::check_sizes(asked, "out", out.size(), in.size());
  detail::count_as(asked, reduced_as<T>(), in.size(), sizeof(T));
  asked.one.op = as_operator<T>(op);
  asked.may_be_in_place = true;
  asked.in_place_at = out.data();
  return detail::initiate_both<In, Out>(std::move(asked), in, out, std::forward<Tail>(tail)...);
}

/// The root's `out` gets the combination of all ranks' `in`; elsewhere `out` is not touched and may
/// be empty. *Source*: `ncclReduce`.
template <device_buffer In, writable_buffer Out, reduction_of<element_of<In>> Op, class... Tail>
  requires std::same_as<element_of<In>, element_of<Out>> &&
           detail::tail_for<detail::signature_for<In, Out>, Tail...>
auto reduce(const communicator& comm, const device::stream& on, In&& in, Out&& out, const Op& op,
            int root, Tail&&... tail) {
  using T = element_of<In>;
  request asked = detail::request_for(comm.state(), on, "reduce", op_kind::reduce, root);
  const bool is_root = asked.comm && asked.comm->rank == root;
  if (is_root) detail::check_sizes(asked, "out", out.size(), in.size());
  detail::count_as(asked, reduced_as<T>(), in.size(), sizeof(T));
  asked.one.op = as_operator<T>(op);
  asked.one.from = in.data();
  asked.one.to = is_root ? out.data() : nullptr;
  asked.may_be_in_place = true;
  asked.in_place_at = out.data();
  asked.bytes = in.bytes();
  asked.uses.push_back(detail::use_of("in", in));
  if (is_root) asked.uses.push_back(detail::use_of("out", out));
  return detail::initiate_with<In, Out>(std::move(asked), in, out, std::forward<Tail>(tail)...);
}

/// All ranks get the root's elements, in place. *Source*: `ncclBroadcast`.
template <writable_buffer B, class... Tail>
  requires movable<element_of<B>> && detail::tail_for<detail::signature_for<B>, Tail...>
auto broadcast(const communicator& comm, const device::stream& on, B&& buffer, int root,
               Tail&&... tail) {
  using T = element_of<B>;
  request asked = detail::request_for(comm.state(), on, "broadcast", op_kind::broadcast, root);
  detail::count_as(asked, moved_as<T>(), buffer.size(), sizeof(T));
  asked.one.from = asked.one.to = buffer.data();
  return detail::initiate_one<B>(std::move(asked), "buffer", buffer, std::forward<Tail>(tail)...);
}

/// Every rank gets the elements of all, in the order of ranks: `out` is as many times longer than
/// `in` as there are ranks. In place: `in` is this rank's part of `out`. *Source*: `ncclAllGather`.
template <device_buffer In, writable_buffer Out, class... Tail>
  requires std::same_as<element_of<In>, element_of<Out>> && movable<element_of<In>> &&
           detail::tail_for<detail::signature_for<In, Out>, Tail...>
auto all_gather(const communicator& comm, const device::stream& on, In&& in, Out&& out,
                Tail&&... tail) {
  using T = element_of<In>;
  request asked = detail::request_for(comm.state(), on, "all_gather", op_kind::all_gather);
  detail::check_sizes(asked, "out", out.size(), in.size() * detail::ranks_of(asked));
  detail::count_as(asked, moved_as<T>(), in.size(), sizeof(T));
  asked.may_be_in_place = true;
  if (asked.bad == errc{}) asked.in_place_at = out.data() + detail::rank_of(asked) * in.size();
  return detail::initiate_both<In, Out>(std::move(asked), in, out, std::forward<Tail>(tail)...);
}

/// Every rank gets its part of the combination: `in` is as many times longer than `out` as there
/// are ranks. In place: `out` is this rank's part of `in`. *Source*: `ncclReduceScatter`.
template <device_buffer In, writable_buffer Out, reduction_of<element_of<In>> Op, class... Tail>
  requires std::same_as<element_of<In>, element_of<Out>> &&
           detail::tail_for<detail::signature_for<In, Out>, Tail...>
auto reduce_scatter(const communicator& comm, const device::stream& on, In&& in, Out&& out,
                    const Op& op, Tail&&... tail) {
  using T = element_of<In>;
  request asked = detail::request_for(comm.state(), on, "reduce_scatter", op_kind::reduce_scatter);
  detail::check_sizes(asked, "in", in.size(), out.size() * detail::ranks_of(asked));
  detail::count_as(asked, reduced_as<T>(), out.size(), sizeof(T));
  asked.one.op = as_operator<T>(op);
  asked.may_be_in_place = out.data() == in.data() + detail::rank_of(asked) * out.size();
  asked.in_place_at = in.data();
  return detail::initiate_both<In, Out>(std::move(asked), in, out, std::forward<Tail>(tail)...);
}

/// Rank j gets the j-th of equal parts of every rank's `in`. Never in place.
/// *Source*: `ncclAlltoAll` from 2.28.3 on, before that a group of messages.
template <device_buffer In, writable_buffer Out, class... Tail>
  requires std::same_as<element_of<In>, element_of<Out>> && movable<element_of<In>> &&
           detail::tail_for<detail::signature_for<In, Out>, Tail...>
auto all_to_all(const communicator& comm, const device::stream& on, In&& in, Out&& out,
                Tail&&... tail) {
  using T = element_of<In>;
  request asked = detail::request_for(comm.state(), on, "all_to_all", op_kind::all_to_all);
  const std::size_t ranks = detail::ranks_of(asked);
  detail::check_sizes(asked, "out", out.size(), in.size());
  if (in.size() % ranks != 0)
    detail::check_sizes(asked, "in", in.size(), in.size() / ranks * ranks);
  detail::count_as(asked, moved_as<T>(), in.size() / ranks, sizeof(T));
  return detail::initiate_both<In, Out>(std::move(asked), in, out, std::forward<Tail>(tail)...);
}

/// The root gets the elements of all ranks; elsewhere `out` is not touched and may be empty.
/// *Source*: `ncclGather` from 2.28.3 on, before that a group of messages.
template <device_buffer In, writable_buffer Out, class... Tail>
  requires std::same_as<element_of<In>, element_of<Out>> && movable<element_of<In>> &&
           detail::tail_for<detail::signature_for<In, Out>, Tail...>
auto gather(const communicator& comm, const device::stream& on, In&& in, Out&& out, int root,
            Tail&&... tail) {
  using T = element_of<In>;
  request asked = detail::request_for(comm.state(), on, "gather", op_kind::gather, root);
  const bool is_root = asked.comm && asked.comm->rank == root;
  if (is_root) detail::check_sizes(asked, "out", out.size(), in.size() * detail::ranks_of(asked));
  detail::count_as(asked, moved_as<T>(), in.size(), sizeof(T));
  asked.one.from = in.data();
  asked.one.to = is_root ? out.data() : nullptr;
  asked.bytes = in.bytes();
  asked.uses.push_back(detail::use_of("in", in));
  if (is_root) asked.uses.push_back(detail::use_of("out", out));
  return detail::initiate_with<In, Out>(std::move(asked), in, out, std::forward<Tail>(tail)...);
}

/// Every rank gets its part of the root's `in`; elsewhere `in` is not read and may be empty.
/// *Source*: `ncclScatter` from 2.28.3 on, before that a group of messages.
template <device_buffer In, writable_buffer Out, class... Tail>
  requires std::same_as<element_of<In>, element_of<Out>> && movable<element_of<In>> &&
           detail::tail_for<detail::signature_for<In, Out>, Tail...>
auto scatter(const communicator& comm, const device::stream& on, In&& in, Out&& out, int root,
             Tail&&... tail) {
  using T = element_of<In>;
  request asked = detail::request_for(comm.state(), on, "scatter", op_kind::scatter, root);
  const bool is_root = asked.comm && asked.comm->rank == root;
  if (is_root) detail::check_sizes(asked, "in", in.size(), out.size() * detail::ranks_of(asked));
  detail::count_as(asked, moved_as<T>(), out.size(), sizeof(T));
  asked.one.from = is_root ? in.data() : nullptr;
  asked.one.to = out.data();
  asked.bytes = out.bytes();
  asked.uses.push_back(detail::use_of("out", out));
  if (is_root) asked.uses.push_back(detail::use_of("in", in));
  return detail::initiate_with<In, Out>(std::move(asked), in, out, std::forward<Tail>(tail)...);
}

/// What the streams have queued on all ranks before this comes before what follows it.
/// *Source*: `ncclAllReduce` of one number.
template <class... Tail>
  requires detail::tail_for<void(std::error_code), Tail...>
auto barrier(const communicator& comm, const device::stream& on, Tail&&... tail) {
  request asked = detail::request_for(comm.state(), on, "barrier", op_kind::barrier);
  return detail::initiate<void(std::error_code)>(std::move(asked), std::tuple<>(),
                                                 std::forward<Tail>(tail)...);
}

// ---- chosen when NCCL has no such reduction, to say so ---------------------------------------

template <device_buffer B, detail::misfit<B> Op, class... Tail>
auto all_reduce(const communicator&, const device::stream&, B&&, const Op&, Tail&&...) {
  return detail::no_reduction<Op, B>();
}
template <device_buffer In, device_buffer Out, detail::misfit<In> Op, class... Tail>
auto all_reduce(const communicator&, const device::stream&, In&&, Out&&, const Op&, Tail&&...) {
  return detail::no_reduction<Op, In>();
}
template <device_buffer In, device_buffer Out, detail::misfit<In> Op, class... Tail>
auto reduce(const communicator&, const device::stream&, In&&, Out&&, const Op&, int, Tail&&...) {
  return detail::no_reduction<Op, In>();
}
template <device_buffer In, device_buffer Out, detail::misfit<In> Op, class... Tail>
auto reduce_scatter(const communicator&, const device::stream&, In&&, Out&&, const Op&, Tail&&...) {
  return detail::no_reduction<Op, In>();
}

}  // namespace cohort::nccl

#endif
