// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the named verbs of one tensor: what each says of its submission, and what it
/// gives back. Buffers, options and a token enter the room `verbs`; a task with its signature
/// leaves.

#include <cohort/coordinator/named_operation.hpp>
#include <cohort/coordinator/verbs/named_argument.hpp>
#include <cohort/core/reduction.hpp>
#include <cohort/mpi/op.hpp>

#include <tuple>
#include <vector>

namespace cohort::coordination {

using protocol::shape;
using protocol::signature;
using protocol::signature_flag;

/// What the named reductions accept: what the direct ones do, and the average of integers.
template <class Op, class T>
concept named_reduction_for =
    reduction<Op> && (elementwise_reduction_for<Op, T> ||
                      (is_average<Op> && element<T> && reduction_for<op::sum_t, T>));
/// And all_reduce, which also combines whole vectors.
template <class Op, class T>
concept named_all_reduction_for =
    named_reduction_for<Op, T> || (is_adasum<Op> && reduction_for<Op, T>);

/// A buffer that a reduction can write, or read.
template <class B, class Op>
concept reducible = named_output<B> && named_reduction_for<Op, value_of<B>>;
template <class In, class Op>
concept reducible_input = named_input<In> && named_reduction_for<Op, value_of<In>>;
template <class B, class Op>
concept all_reducible = named_output<B> && named_all_reduction_for<Op, value_of<B>>;
template <class In, class Op>
concept all_reducible_input = named_input<In> && named_all_reduction_for<Op, value_of<In>>;

template <class... Arguments>
struct named_signature;
template <class... Kept, class... Results>
struct named_signature<std::tuple<Kept...>, Results...> {
  using type = void(std::exception_ptr, Results..., Kept...);
};
template <class... Arguments>
using kept_by = decltype(std::tuple_cat(std::declval<Arguments&>().take()...));

template <class T>
void describe_element(signature& sig) {
  sig.element = kernels_of<T>.element;
  sig.element_size = static_cast<std::uint32_t>(sizeof(T));
}
/// Of the only tensor; where it lies the caller says.
template <class T>
void describe_elements(task& of, signature& sig, std::size_t count) {
  of.first.count = count;
  of.first.kernels = &kernels_of<T>;
  describe_element<T>(sig);
}

template <class Op, class T>
void describe_reduction(task& of, signature& sig, const instance& where) {
  const reduction_code code = code_of<std::remove_cvref_t<Op>>();
  sig.reduction = static_cast<std::uint32_t>(code);
  if (!has_neutral_element(code) || kernels_of<T>.operation == nullptr) {
    sig.flags |= signature_flag::needs_all | signature_flag::alone;
  }
  if constexpr (is_average<Op>) {
    if (!where.options().divide_by_active) sig.flags |= signature_flag::divide_by_all;
    of.first.operation = mpi::op_of<op::sum_t, T>();
  } else if constexpr (!is_adasum<Op>) {
    of.first.operation = mpi::op_of<Op, T>();
  }
  if ((sig.prescale != 1 || sig.postscale != 1) && kernels_of<T>.scale == nullptr) {
    of.fail(errc::invalid_argument, "scale factors need floating-point elements");
  }
}

inline void require_root(task& of, signature& sig, int root, const instance& where) {
  sig.root = root;
  if (root >= 0 && root < where.size()) return;
  of.fail(errc::bad_root,
          "root=" + std::to_string(root) + ", ranks=" + std::to_string(where.size()));
  sig.root = 0;
}

/// Reductions in place, and broadcast, where `Op` is void.
template <op_kind Kind, class Op, class B>
struct in_place_body : submitting_body {
  using value = value_of<B>;
  using argument = named_argument<B>;
  using signature = typename named_signature<kept_by<argument>>::type;

  in_place_body(operation_name name_, const call_options& options_, std::remove_reference_t<B>& b,
                int root_ = -1)
      : submitting_body(std::move(name_), options_), buffer(b), root(root_) {}

  void describe(task& of, coordination::signature& sig, const instance& where) {
    const auto [data, count] = buffer.use(of, "buffer");
    sig.kind = Kind;
    describe_elements<value>(of, sig, count);
    of.first.in = of.first.out = data;
    sig.dimensions = shape{static_cast<std::int64_t>(count)};
    if constexpr (is_reduction(Kind)) describe_reduction<Op, value>(of, sig, where);
    if constexpr (is_rooted(Kind)) require_root(of, sig, root, where);
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    give_back(std::forward<Handler>(handler), std::move(why), buffer.take());
  }

  argument buffer;
  int root;
};

template <class Op, class In, class Out>
struct all_reduce_to_body : submitting_body {
  using value = value_of<In>;
  using input = named_argument<In>;
  using output = named_argument<Out>;
  using signature = typename named_signature<kept_by<input, output>>::type;

  all_reduce_to_body(operation_name name_, const call_options& options_,
                     std::remove_reference_t<In>& in_, std::remove_reference_t<Out>& out_)
      : submitting_body(std::move(name_), options_), in(in_), out(out_) {}

  void describe(task& of, coordination::signature& sig, const instance& where) {
    const auto [from, count] = in.use(of, "in");
    const auto [to, room] = out.use(of, "out");
    sig.kind = op_kind::all_reduce;
    describe_elements<value>(of, sig, count);
    sig.dimensions = shape{static_cast<std::int64_t>(count)};
    of.first.in = from;
    of.first.out = to;
    if (count != room) {
      of.fail(errc::size_mismatch,
              "in=" + std::to_string(count) + ", out=" + std::to_string(room) + " elements");
    }
    describe_reduction<Op, value>(of, sig, where);
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    give_back(std::forward<Handler>(handler), std::move(why),
              std::tuple_cat(in.take(), out.take()));
  }

  input in;
  output out;
};

template <class In, class Out>
struct scatter_body : submitting_body {
  using value = value_of<Out>;
  using output = named_argument<Out>;
  using signature = typename named_signature<kept_by<output>>::type;

  scatter_body(operation_name name_, const call_options& options_, std::remove_reference_t<In>& in_,
               std::remove_reference_t<Out>& out_, int root_)
      : submitting_body(std::move(name_), options_), in(in_), out(out_), root(root_) {}
  void describe(task& of, coordination::signature& sig, const instance& where) {
    const auto [from, given] = in.use(of, "in");
    const auto [to, count] = out.use(of, "out");
    const auto ranks = static_cast<std::size_t>(where.size());
    sig.kind = op_kind::scatter;
    describe_elements<value>(of, sig, count * ranks);
    sig.dimensions = shape{static_cast<std::int64_t>(count * ranks)};
    require_root(of, sig, root, where);
    of.first.in = from;
    of.first.out = to;
    if (where.rank() == root && given != of.first.count) {
      of.fail(errc::size_mismatch, "in=" + std::to_string(given) +
                                       ", out=" + std::to_string(count) + " elements of " +
                                       std::to_string(ranks) + " ranks");
    }
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    give_back(std::forward<Handler>(handler), std::move(why), out.take());
  }
  named_argument<In> in;
  output out;
  int root;
};

}  // namespace cohort::coordination
