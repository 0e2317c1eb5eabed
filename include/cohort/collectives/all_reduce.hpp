// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::all_reduce`: every rank gets the combination of all ranks' elements.

#include <cohort/collectives/bodies/reduction.hpp>

namespace cohort {
namespace collectives {

struct all_reduce_verb;
template <class Buffer, class Op>
using all_reduce_in_place_body =
    detail::in_place_reduction_body<all_reduce_verb, comm::kept<Buffer>, Op>;
template <class In, class Out, class Op>
using all_reduce_body =
    detail::reduction_body<all_reduce_verb, comm::kept_to_read<In>, comm::kept<Out>, Op>;

}  // namespace collectives

/// Combines `buffer` element by element over all ranks; every rank gets the result in place.
///
/// *Collective over* `comm`, in the same order on all ranks. *Requires* the same number of elements
/// of one type and the same operation on all ranks. `op::average` sums and divides by the number of
/// ranks. Strided views are packed. An rvalue container is owned and comes back.
/// `op::adasum` combines the buffers as vectors and not element by element: see core/adasum.hpp.
/// *Completion*: `void(std::error_code)`, or `void(std::error_code, Container)`;
/// errc::not_supported for op::adasum on an intercommunicator. *Cost*: MPI's; log2(n) messages of
/// the buffer's size for small ones. *Source*: `MPI_Iallreduce`. Of op::adasum, always log2(n)
/// exchanges of the whole buffer, and two more messages of its size where n is no power of two;
/// memory for a second buffer; and in each of these stages three scalar products and a sum,
/// calculated where the engine looks. *Source*: collectives/bodies/adasum.hpp. *Example*: `co_await
/// cohort::all_reduce(world, gradient, cohort::op::average);`
template <class Buffer, reduction Op, class Token = default_token>
  requires collectives::detail::all_reduces_in<Op, Buffer> &&
           completion_token_for<Token, typename collectives::all_reduce_in_place_body<
                                           Buffer, std::remove_cvref_t<Op>>::signature>
auto all_reduce(const communicator& comm, Buffer&& buffer, Op&&, Token&& token = Token()) {
  using body = collectives::all_reduce_in_place_body<Buffer, std::remove_cvref_t<Op>>;
  return comm::initiate(comm, body(buffer, collectives::detail::place_in(comm)), token);
}

/// The same, out of place: `out` gets the combination of all ranks' `in`.
///
/// *Requires* besides: `out` has as many elements as `in`, and they do not overlap.
template <class In, class Out, reduction Op, class Token = default_token>
  requires collectives::detail::all_reduces_to<Op, In, Out> &&
           completion_token_for<Token, typename collectives::all_reduce_body<
                                           In, Out, std::remove_cvref_t<Op>>::signature>
auto all_reduce(const communicator& comm, In&& in, Out&& out, Op&&, Token&& token = Token()) {
  using body = collectives::all_reduce_body<In, Out, std::remove_cvref_t<Op>>;
  return comm::initiate(comm, body(in, out, collectives::detail::place_in(comm)), token);
}

/// Chosen when a call fits neither form: says what is wrong with it.
template <class... Arguments>
explained all_reduce(const communicator&, Arguments&&...) {
  collectives::detail::explain_reduction<collectives::detail::has_root::no, Arguments...>();
  return {};
}

namespace collectives {

struct all_reduce_verb : detail::reduces_as<op_kind::all_reduce> {
  static constexpr auto call = &mpi::post::iallreduce;
};

}  // namespace collectives
}  // namespace cohort
