// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::scan` and `cohort::exclusive_scan`: combinations over the ranks up to this one.

#include <cohort/collectives/bodies/reduction.hpp>

namespace cohort {
namespace collectives {

struct scan_verb;
template <class Buffer, class Op>
using scan_in_place_body = detail::in_place_reduction_body<scan_verb, comm::kept<Buffer>, Op>;
template <class In, class Out, class Op>
using scan_body = detail::reduction_body<scan_verb, comm::kept_to_read<In>, comm::kept<Out>, Op>;
struct exclusive_scan_verb;
template <class Buffer, class Op>
using exclusive_scan_in_place_body =
    detail::in_place_reduction_body<exclusive_scan_verb, comm::kept<Buffer>, Op>;
template <class In, class Out, class Op>
using exclusive_scan_body =
    detail::reduction_body<exclusive_scan_verb, comm::kept_to_read<In>, comm::kept<Out>, Op>;

}  // namespace collectives

/// Combines `buffer` element by element over ranks 0 to r; rank r gets that result in place.
///
/// *Collective over* `comm`, in the same order on all ranks. *Requires* the same number of elements
/// of one type and the same operation on all ranks. `op::average` gives running means: sums divided
/// by r + 1. Strided views are packed. An rvalue container is owned and comes back.
/// *Completion*: `void(std::error_code)`, or `void(std::error_code, Container)`.
/// *Cost*: MPI's; up to n messages in a row of the buffer's size. *Source*: `MPI_Iscan`.
/// *Example*: `co_await cohort::scan(world, in, out, cohort::op::sum);`
template <class Buffer, reduction Op, class Token = default_token>
  requires collectives::detail::reduces_in<Op, Buffer> &&
           completion_token_for<Token, typename collectives::scan_in_place_body<
                                           Buffer, std::remove_cvref_t<Op>>::signature>
auto scan(const communicator& comm, Buffer&& buffer, Op&&, Token&& token = Token()) {
  using body = collectives::scan_in_place_body<Buffer, std::remove_cvref_t<Op>>;
  return comm::initiate(comm, body(buffer, collectives::detail::place_in(comm)), token);
}

/// The same, out of place. `out` has as many elements as `in`, and they do not overlap.
template <class In, class Out, reduction Op, class Token = default_token>
  requires collectives::detail::reduces_to<Op, In, Out> &&
           completion_token_for<
               Token, typename collectives::scan_body<In, Out, std::remove_cvref_t<Op>>::signature>
auto scan(const communicator& comm, In&& in, Out&& out, Op&&, Token&& token = Token()) {
  using body = collectives::scan_body<In, Out, std::remove_cvref_t<Op>>;
  return comm::initiate(comm, body(in, out, collectives::detail::place_in(comm)), token);
}

/// Chosen when a call fits neither form: says what is wrong with it.
template <class... Arguments>
explained scan(const communicator&, Arguments&&...) {
  collectives::detail::explain_reduction<collectives::detail::has_root::no, Arguments...>();
  return {};
}

/// Combines `buffer` element by element over ranks 0 to r - 1; rank r gets that result in place,
/// and rank 0, for which there is nothing to combine, keeps what it has.
///
/// *Requires* what `scan` does. `op::average` divides by r.
/// *Completion*: `void(std::error_code)`, or `void(std::error_code, Container)`.
/// *Source*: `MPI_Iexscan`.
/// *Example*: `co_await cohort::exclusive_scan(world, offset, cohort::op::sum);`
template <class Buffer, reduction Op, class Token = default_token>
  requires collectives::detail::reduces_in<Op, Buffer> &&
           completion_token_for<Token, typename collectives::exclusive_scan_in_place_body<
                                           Buffer, std::remove_cvref_t<Op>>::signature>
auto exclusive_scan(const communicator& comm, Buffer&& buffer, Op&&, Token&& token = Token()) {
  using body = collectives::exclusive_scan_in_place_body<Buffer, std::remove_cvref_t<Op>>;
  return comm::initiate(comm, body(buffer, collectives::detail::place_in(comm)), token);
}

/// The same, out of place. At rank 0, `out` is left alone.
template <class In, class Out, reduction Op, class Token = default_token>
  requires collectives::detail::reduces_to<Op, In, Out> &&
           completion_token_for<Token, typename collectives::exclusive_scan_body<
                                           In, Out, std::remove_cvref_t<Op>>::signature>
auto exclusive_scan(const communicator& comm, In&& in, Out&& out, Op&&, Token&& token = Token()) {
  using body = collectives::exclusive_scan_body<In, Out, std::remove_cvref_t<Op>>;
  return comm::initiate(comm, body(in, out, collectives::detail::place_in(comm)), token);
}

/// Chosen when a call fits neither form: says what is wrong with it.
template <class... Arguments>
explained exclusive_scan(const communicator&, Arguments&&...) {
  collectives::detail::explain_reduction<collectives::detail::has_root::no, Arguments...>();
  return {};
}

namespace collectives {

struct scan_verb {
  static constexpr const char* name = "scan";
  static constexpr bool rooted = false;
  static constexpr bool delivers([[maybe_unused]] detail::place where) noexcept { return true; }
  static constexpr int terms(detail::place where) noexcept { return where.rank + 1; }
  static constexpr auto call = &mpi::post::iscan;
};

struct exclusive_scan_verb {
  static constexpr const char* name = "exclusive_scan";
  static constexpr bool rooted = false;
  static constexpr bool delivers([[maybe_unused]] detail::place where) noexcept {
    return where.rank > 0;
  }
  static constexpr int terms(detail::place where) noexcept { return where.rank; }
  static constexpr auto call = &mpi::post::iexscan;
};

}  // namespace collectives
}  // namespace cohort
