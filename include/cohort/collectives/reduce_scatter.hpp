// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::reduce_scatter` and `cohort::reduce_scatter_v`: every rank gets a block of the result.

#include <cohort/collectives/bodies/reduce_scatter.hpp>

namespace cohort {
namespace collectives {

template <class In, class Out, class Op>
using scatters = reduce_scatter_body<comm::kept_to_read<In>, comm::kept<Out>,
                                     std::remove_cvref_t<Op>, detail::block_sizes::equal>;
template <class In, class Out, class Op>
using scatters_v = reduce_scatter_body<comm::kept_to_read<In>, comm::kept<Out>,
                                       std::remove_cvref_t<Op>, detail::block_sizes::uneven>;
template <class Buffer, class Op>
using scatters_in_place = reduce_scatter_in_place_body<comm::kept<Buffer>, std::remove_cvref_t<Op>,
                                                       detail::block_sizes::equal>;
template <class Buffer, class Op>
using scatters_in_place_v =
    reduce_scatter_in_place_body<comm::kept<Buffer>, std::remove_cvref_t<Op>,
                                 detail::block_sizes::uneven>;

}  // namespace collectives

/// Combines `in` element by element over all ranks; rank r gets the r-th of the equal blocks of the
/// result in `out`.
///
/// *Collective over* `comm`, in the same order on all ranks. *Requires* equally many elements of
/// one type in `out` and the same operation on all ranks, and as many times the number of ranks in
/// `in`; the two do not overlap. `op::average` sums and divides by the number of ranks. Strided
/// views are packed. Rvalue containers are owned and come back.
/// *Completion*: `void(std::error_code)`, followed by owned containers in the order of arguments.
/// *Cost*: MPI's; each rank sends about the size of `in`. *Source*: `MPI_Ireduce_scatter_block`.
/// *Example*: `co_await cohort::reduce_scatter(world, gradient, shard, cohort::op::average);`
template <class In, class Out, reduction Op, class Token = default_token>
  requires collectives::detail::reduces_to<Op, In, Out> &&
           completion_token_for<Token, typename collectives::scatters<In, Out, Op>::signature>
auto reduce_scatter(const communicator& comm, In&& in, Out&& out, Op&&, Token&& token = Token()) {
  using body = collectives::scatters<In, Out, Op>;
  return comm::initiate(comm, body(in, out, collectives::detail::place_in(comm)), token);
}

/// The same in place: the result is in the first elements of `buffer`, the rest is undefined.
template <class Buffer, reduction Op, class Token = default_token>
  requires collectives::detail::reduces_in<Op, Buffer> &&
           completion_token_for<Token,
                                typename collectives::scatters_in_place<Buffer, Op>::signature>
auto reduce_scatter(const communicator& comm, Buffer&& buffer, Op&&, Token&& token = Token()) {
  using body = collectives::scatters_in_place<Buffer, Op>;
  return comm::initiate(comm, body(buffer, collectives::detail::place_in(comm)), token);
}

/// Chosen when a call fits neither form: says what is wrong with it.
template <class... Arguments>
explained reduce_scatter(const communicator&, Arguments&&...) {
  using collectives::detail::has_root;
  collectives::detail::explain_reduction<has_root::no, Arguments...>();
  return {};
}

/// The same with blocks of any size: rank r gets `counts[r]` elements.
///
/// *Requires* besides: the same `counts` on all ranks, a range of integers. `in` has as many
/// elements as they sum up to, and `out` as many as are this rank's.
/// *Source*: `MPI_Ireduce_scatter`.
/// *Example*: `co_await cohort::reduce_scatter_v(world, in, out, counts, cohort::op::sum);`
template <class In, class Out, integer_list Counts, reduction Op, class Token = default_token>
  requires collectives::detail::reduces_to<Op, In, Out> &&
           completion_token_for<Token, typename collectives::scatters_v<In, Out, Op>::signature>
auto reduce_scatter_v(const communicator& comm, In&& in, Out&& out, Counts&& counts, Op&&,
                      Token&& token = Token()) {
  using body = collectives::scatters_v<In, Out, Op>;
  return comm::initiate(comm, body(in, out, collectives::detail::place_in(comm), counts), token);
}

/// The same in place: the result is in the first elements of `buffer`, the rest is undefined.
template <class Buffer, integer_list Counts, reduction Op, class Token = default_token>
  requires collectives::detail::reduces_in<Op, Buffer> &&
           completion_token_for<Token,
                                typename collectives::scatters_in_place_v<Buffer, Op>::signature>
auto reduce_scatter_v(const communicator& comm, Buffer&& buffer, Counts&& counts, Op&&,
                      Token&& token = Token()) {
  using body = collectives::scatters_in_place_v<Buffer, Op>;
  return comm::initiate(comm, body(buffer, collectives::detail::place_in(comm), counts), token);
}

/// Chosen when a call fits neither form: says what is wrong with it.
template <class... Arguments>
explained reduce_scatter_v(const communicator&, Arguments&&...) {
  using collectives::detail::has_root;
  collectives::detail::explain_reduction<has_root::no, Arguments...>();
  return {};
}

}  // namespace cohort
