// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::all_reduce`: every rank gets the combination of all ranks' elements.

#include <cohort/collectives/detail/reduction.hpp>
#include <cohort/comm/argument.hpp>
#include <cohort/comm/operation.hpp>

namespace cohort {
namespace collectives {

template <class In, class Out, class Op>
struct all_reduce_body;
template <class Buffer, class Op>
struct all_reduce_in_place_body;

}  // namespace collectives

/// Combines `buffer` element by element over all ranks; every rank gets the result in place.
///
/// *Collective over* `comm`, in the same order on all ranks. *Requires* the same number of elements
/// of one type and the same operation on all ranks. `op::average` sums and divides by the number of
/// ranks. Strided views are packed. An rvalue container is owned and comes back.
/// *Completion*: `void(std::error_code)`, or `void(std::error_code, Container)`.
/// *Cost*: MPI's; log2(n) messages of the buffer's size for small ones. *Source*: `MPI_Iallreduce`.
/// *Example*: `co_await cohort::all_reduce(world, gradient, cohort::op::average);`
template <class Buffer, reduction Op, class Token = default_token>
requires output_buffer<Buffer> && reduction_for<Op, element_of_t<Buffer>> && completion_token_for<
    Token,
    typename collectives::all_reduce_in_place_body<Buffer, std::remove_cvref_t<Op>>::signature>
auto all_reduce(const communicator& comm, Buffer&& buffer, Op&&, Token&& token = Token()) {
  using body = collectives::all_reduce_in_place_body<Buffer, std::remove_cvref_t<Op>>;
  return comm::initiate(comm, body(buffer, comm.ranks_or_one()), token);
}

/// The same, out of place: `out` gets the combination of all ranks' `in`.
///
/// *Requires* besides: `out` has as many elements as `in`, and they do not overlap.
template <class In, class Out, reduction Op, class Token = default_token>
requires input_buffer<In> && output_buffer<Out> &&
    std::same_as<element_of_t<In>, element_of_t<Out>> && reduction_for<Op, element_of_t<Out>> &&
    completion_token_for<
        Token, typename collectives::all_reduce_body<In, Out, std::remove_cvref_t<Op>>::signature>
auto all_reduce(const communicator& comm, In&& in, Out&& out, Op&&, Token&& token = Token()) {
  using body = collectives::all_reduce_body<In, Out, std::remove_cvref_t<Op>>;
  return comm::initiate(comm, body(in, out, comm.ranks_or_one()), token);
}

/// Chosen when a call fits neither form: says what is wrong with it.
template <class... Arguments>
asio::awaitable<void> all_reduce(const communicator&, Arguments&&...) {
  collectives::detail::explain_reduction<Arguments...>();
  return {};
}

namespace collectives {

inline int all_reduce_call(MPI_Comm comm, const void* in, void* out, MPI_Count count,
                           MPI_Datatype type, MPI_Op op, MPI_Request* request) {
  return mpi::post::iallreduce(in, out, count, type, op, comm, request);
}

template <class Buffer, class Op>
struct all_reduce_in_place_body {
  using data_type = comm::argument<Buffer>;
  using value_type = typename data_type::value_type;
  using signature = typename comm::completion_signature<std::tuple<data_type>>::type;
  static constexpr const char* name = "all_reduce";
  static constexpr comm::cancels cancellation =
      data_type::owned ? comm::cancels::detach : comm::cancels::never;

  all_reduce_in_place_body(std::remove_reference_t<Buffer>& buffer, int ranks_)
      : data(buffer), ranks(ranks_) {}

  [[nodiscard]] errc check(const comm::communicator_state&) const noexcept { return errc{}; }
  void explain(failure_text& text) const { text.with("count", data.count()); }
  [[nodiscard]] std::size_t bytes() const noexcept { return data.bytes(); }
  [[nodiscard]] std::array<std::int64_t, 4> agreed() const {
    return detail::agreed_values<value_type, Op>(data.count(), 0);
  }
  [[nodiscard]] comm::collective_call call() {
    return {comm::collective::all_reduce,
            MPI_IN_PLACE,
            elements.in(data.view()),
            data.count(),
            mpi::reduction_type_of<value_type>(),
            mpi::op_of<Op, value_type>(),
            0};
  }
  int post(comm::poster& post) {
    return detail::post_reduction<Op>(
        post, MPI_IN_PLACE, elements.in(data.view()), data.count(),
        [&](auto... arguments) { return all_reduce_call(post.native(), arguments...); });
  }
  template <class Handler>
  void finish(Handler&& handler, std::error_code error, const comm::outcome_of_requests&) {
    if (!error) {
      elements.finish(data.view());
      if constexpr (is_average<Op>) apply_average(data.view(), ranks);
    }
    comm::complete_with(std::forward<Handler>(handler), error, data.take());
  }

  data_type data;
  detail::packed<value_type> elements;
  int ranks;
};

template <class In, class Out, class Op>
struct all_reduce_body {
  using in_type = comm::argument<In>;
  using out_type = comm::argument<Out>;
  using value_type = typename out_type::value_type;
  using signature = typename comm::completion_signature<std::tuple<in_type, out_type>>::type;
  static constexpr const char* name = "all_reduce";
  static constexpr comm::cancels cancellation =
      in_type::owned && out_type::owned ? comm::cancels::detach : comm::cancels::never;

  all_reduce_body(std::remove_reference_t<In>& in_, std::remove_reference_t<Out>& out_, int ranks_)
      : in(in_), out(out_), ranks(ranks_) {}

  [[nodiscard]] errc check(const comm::communicator_state&) const noexcept {
    return in.count() == out.count() ? errc{} : errc::size_mismatch;
  }
  void explain(failure_text& text) const {
    text.with("in.count", in.count()).with("out.count", out.count());
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return out.bytes(); }
  [[nodiscard]] std::array<std::int64_t, 4> agreed() const {
    return detail::agreed_values<value_type, Op>(out.count(), 0);
  }
  [[nodiscard]] comm::collective_call call() {
    return {comm::collective::all_reduce,
            sent.in(in.view()),
            result.out(out.view()),
            out.count(),
            mpi::reduction_type_of<value_type>(),
            mpi::op_of<Op, value_type>(),
            0};
  }
  int post(comm::poster& post) {
    return detail::post_reduction<Op>(
        post, sent.in(in.view()), result.out(out.view()), out.count(),
        [&](auto... arguments) { return all_reduce_call(post.native(), arguments...); });
  }
  template <class Handler>
  void finish(Handler&& handler, std::error_code error, const comm::outcome_of_requests&) {
    if (!error) {
      result.finish(out.view());
      if constexpr (is_average<Op>) apply_average(out.view(), ranks);
    }
    comm::complete_with(std::forward<Handler>(handler), error,
                        std::tuple_cat(in.take(), out.take()));
  }

  in_type in;
  out_type out;
  detail::packed<const value_type> sent;
  detail::packed<value_type> result;
  int ranks;
};

}  // namespace collectives
}  // namespace cohort
