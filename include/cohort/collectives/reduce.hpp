// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::reduce`: the root gets the combination of all ranks' elements.

#include <cohort/collectives/bodies/reduction.hpp>

namespace cohort {
namespace collectives {

struct reduce_verb;
template <class Buffer, class Op>
using reduce_in_place_body = detail::in_place_reduction_body<reduce_verb, comm::kept<Buffer>, Op>;
template <class In, class Out, class Op>
using reduce_body =
    detail::reduction_body<reduce_verb, comm::kept_to_read<In>, comm::kept<Out>, Op>;

}  // namespace collectives

/// Combines `buffer` element by element over all ranks; rank `root` gets the result in place. The
/// other ranks' elements are read and stay.
///
/// *Collective over* `comm`, in the same order on all ranks. *Requires* the same root, the same
/// number of elements of one type and the same operation on all ranks. `op::average` sums and
/// divides by the number of ranks. Strided views are packed. An rvalue container is owned and comes
/// back.
/// *Completion*: `void(std::error_code)`, or `void(std::error_code, Container)`.
/// *Cost*: MPI's; log2(n) messages of the buffer's size for small ones. *Source*: `MPI_Ireduce`.
/// *Example*: `co_await cohort::reduce(world, histogram, cohort::op::sum, 0);`
template <class Buffer, reduction Op, std::integral Root, class Token = default_token>
  requires collectives::detail::reduces_in<Op, Buffer> &&
           completion_token_for<Token, typename collectives::reduce_in_place_body<
                                           Buffer, std::remove_cvref_t<Op>>::signature>
auto reduce(const communicator& comm, Buffer&& buffer, Op&&, Root root, Token&& token = Token()) {
  using body = collectives::reduce_in_place_body<Buffer, std::remove_cvref_t<Op>>;
  return comm::initiate(
      comm, body(buffer, collectives::detail::place_in(comm, collectives::detail::to_rank(root))),
      token);
}

/// The same, out of place: at the root, `out` gets the combination of all ranks' `in`.
///
/// *Requires* besides: at the root, `out` has as many elements as `in`, and they do not overlap.
/// Elsewhere `out` is ignored and may be empty.
template <class In, class Out, reduction Op, std::integral Root, class Token = default_token>
  requires collectives::detail::reduces_to<Op, In, Out> &&
           completion_token_for<Token, typename collectives::reduce_body<
                                           In, Out, std::remove_cvref_t<Op>>::signature>
auto reduce(const communicator& comm, In&& in, Out&& out, Op&&, Root root,
            Token&& token = Token()) {
  using body = collectives::reduce_body<In, Out, std::remove_cvref_t<Op>>;
  return comm::initiate(
      comm, body(in, out, collectives::detail::place_in(comm, collectives::detail::to_rank(root))),
      token);
}

/// Chosen when a call fits neither form: says what is wrong with it.
template <class... Arguments>
explained reduce(const communicator&, Arguments&&...) {
  collectives::detail::explain_reduction<collectives::detail::has_root::yes, Arguments...>();
  return {};
}

namespace collectives {

struct reduce_verb : detail::reduces_as<op_kind::reduce> {
  static constexpr auto call = &mpi::post::ireduce;
};

}  // namespace collectives
}  // namespace cohort
