// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The bodies of all_reduce, reduce, scan and exclusive_scan, which differ in a few answers only.

#include <cohort/collectives/bodies/adasum.hpp>
#include <cohort/collectives/bodies/place.hpp>
#include <cohort/comm/body.hpp>
#include <cohort/core/adasum.hpp>
#include <cohort/core/devices.hpp>
#include <cohort/core/reduction.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/op.hpp>
#include <cohort/mpi/post.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>

namespace cohort::collectives::detail {

/// Whether one call of MPI can take so many elements of a reduction.
template <class Op>
inline constexpr bool has_large_reductions =
    mpi::has_large_counts && !requires { typename Op::function_type; };

/// Whether the host computes too: it divides for an average, and calls functions of the user, and
/// of this library where MPI has none.
template <class Op>
inline constexpr bool works_on_host =
    is_average<Op> || is_adasum<Op> || requires { typename Op::function_type; };

/// Values that `checks::cross_rank` compares: count, size of an element, operation, root.
template <class T, class Op>
std::array<std::int64_t, 4> agreed_values(std::size_t count, int root) {
  std::uint64_t hash = 0;
  for (const char c : Op::name) hash = hash * 131 + static_cast<unsigned char>(c);
  return {static_cast<std::int64_t>(count), static_cast<std::int64_t>(sizeof(T)),
          static_cast<std::int64_t>(hash & (~std::uint64_t{0} >> 1U)), root};
}

/// What a reducing verb says of itself; the comment at each line tells the question.
template <class Verb>
concept reducing = requires(place where) {
  { Verb::name } -> std::convertible_to<const char*>;
  { Verb::rooted } -> std::convertible_to<bool>;    // has it a root?
  { Verb::delivers(where) } -> std::same_as<bool>;  // does this rank get a result?
  { Verb::terms(where) } -> std::same_as<int>;      // of how many ranks is it combined?
  Verb::call;                                       // which function of mpi::post is it?
};

/// What the list of kinds says for a verb that a backend may have.
template <op_kind Kind>
struct reduces_as {
  static constexpr op_kind kind = Kind;
  static constexpr const char* name = name_of(Kind).data();
  static constexpr bool rooted = is_rooted(Kind);
  static constexpr bool delivers(place where) noexcept {
    return gets_result(Kind, where.is_root());
  }
  static constexpr int terms(place where) noexcept { return where.ranks; }
};

template <class Op, class In, class Out>
concept reduces_to =
    verb_input<In> && verb_output<Out> && std::same_as<element_of_t<In>, element_of_t<Out>> &&
    elementwise_reduction_for<std::remove_cvref_t<Op>, element_of_t<Out>>;
template <class Op, class Buffer>
concept reduces_in =
    verb_output<Buffer> && elementwise_reduction_for<std::remove_cvref_t<Op>, element_of_t<Buffer>>;

/// What all_reduce takes besides: whole vectors.
template <class Op, class In, class Out>
concept all_reduces_to =
    reduces_to<Op, In, Out> ||
    (is_adasum<Op> && verb_input<In> && verb_output<Out> &&
     std::same_as<element_of_t<In>, element_of_t<Out>> && reduction_for<Op, element_of_t<Out>>);
template <class Op, class Buffer>
concept all_reduces_in = reduces_in<Op, Buffer> || (is_adasum<Op> && verb_output<Buffer> &&
                                                    reduction_for<Op, element_of_t<Buffer>>);

/// Posts as many parts as needed. `in` may be MPI_IN_PLACE, `out` null where it does not count.
template <class Verb, class Op, class T>
int post_reduction(comm::poster& post, const void* in, T* out, std::size_t count, place where) {
  const MPI_Datatype type = mpi::reduction_type_of<T>();
  const MPI_Op op = mpi::op_of<Op, T>();
  const std::size_t most = has_large_reductions<Op> ? count : mpi::max_int_count;
  std::size_t first = 0;
  do {
    const std::size_t part = std::min(most, count - first);
    const auto length = static_cast<MPI_Count>(part);
    const void* const from = in == MPI_IN_PLACE ? in : static_cast<const T*>(in) + first;
    T* const to = out == nullptr ? nullptr : out + first;
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;
    if constexpr (Verb::rooted) {
      rc = Verb::call(from, to, length, type, op, where.root, post.native(), &request);
    } else {
      rc = Verb::call(from, to, length, type, op, post.native(), &request);
    }
    if (post.add(rc, request) != MPI_SUCCESS) return rc;
    first += part;
  } while (first < count);
  return MPI_SUCCESS;
}

template <class T, class Op>
[[nodiscard]] comm::collective_call reduction_call(op_kind kind, const void* in, void* out,
                                                   std::size_t count, int root) {
  return {kind, in, out, count, mpi::reduction_type_of<T>(), mpi::op_of<Op, T>(), root};
}

/// What a body has besides for an operation of several stages; nothing for those that MPI does.
template <class T, class Op>
struct reduction_stages {};
template <class T>
struct reduction_stages<T, op::adasum_t> {
  /// `data` is this rank's vector, and becomes the result.
  int begin(comm::poster& post, T* data, std::size_t count) {
    if (post.base().is_inter()) {
      throw error(errc::not_supported, "adasum on an intercommunicator");
    }
    if (post.size() > 1) other = std::make_unique_for_overwrite<T[]>(count);
    elements = count;
    exchange.begin(post.rank(), post.size(), adasum_tag(post.base().adasums++),
                   reinterpret_cast<std::byte*>(data), reinterpret_cast<std::byte*>(other.get()),
                   count * sizeof(T));
    go_on(post);
    return MPI_SUCCESS;
  }
  bool go_on(comm::poster& post) {
    return exchange.post_next(
        post.exchange(),
        [this](void* out, const void* a, const void* b) {
          adasum_of(static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b),
                    elements);
        },
        [&post](int rc, const MPI_Request& request) { post.check(post.add(rc, request)); });
  }

  adasum_exchange exchange;
  std::unique_ptr<T[]> other;
  std::size_t elements = 0;
};

/// In place: `data` is what the rank gives, and becomes the result where there is one.
template <reducing Verb, class Buffer, class Op>
struct in_place_reduction_body : comm::body_over<std::tuple<comm::argument<Buffer>>> {
  using value_type = typename comm::argument<Buffer>::value_type;
  static constexpr const char* name = Verb::name;
  static constexpr bool works_on_host = detail::works_on_host<Op>;

  in_place_reduction_body(auto& buffer, place where_) : data(buffer), where(where_) {}

  [[nodiscard]] errc check(const comm::communicator_base&) const noexcept {
    return !Verb::rooted || where.good_root() ? errc{} : errc::bad_root;
  }
  void explain(failure_text& text) const {
    text.with("count", data.count());
    if (Verb::rooted) text.with("root", where.root).with("ranks", where.ranks);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return data.bytes(); }
  [[nodiscard]] std::array<std::int64_t, 4> agreed() const {
    return agreed_values<value_type, Op>(data.count(), where.root);
  }
  [[nodiscard]] comm::collective_call call()
    requires(requires { Verb::kind; } && !is_adasum<Op>)
  {
    value_type* const here = elements.in(data.view());
    return reduction_call<value_type, Op>(Verb::kind, gives_only() ? here : MPI_IN_PLACE,
                                          gives_only() ? nullptr : here, data.count(), where.root);
  }
  int post(comm::poster& post) {
    value_type* const here = elements.in(data.view());
    if constexpr (is_adasum<Op>) {
      return stages.begin(post, here, data.count());
    } else {
      const void* const in = gives_only() ? here : MPI_IN_PLACE;
      return post_reduction<Verb, Op>(post, in, gives_only() ? nullptr : here, data.count(), where);
    }
  }
  bool advance(comm::poster& post)
    requires is_adasum<Op>
  {
    return stages.go_on(post);
  }
  auto finish(std::error_code error, const comm::outcome_of_requests&) {
    if (!error && Verb::delivers(where)) {
      elements.finish(data.view());
      if constexpr (is_average<Op>) apply_average(data.view(), Verb::terms(where));
    }
    return data.take();
  }
  template <class Self, class Visit>
  static void each_buffer(Self& self, Visit visit) {
    visit("buffer", self.data, true, Verb::delivers(self.where));
  }
  /// MPI knows no place at the ranks that are not the root.
  [[nodiscard]] bool gives_only() const noexcept { return Verb::rooted && !where.is_root(); }

  comm::argument<Buffer> data;
  packed<value_type> elements;
  [[no_unique_address]] reduction_stages<value_type, Op> stages;
  place where;
};

/// From `in` to `out`, which does not count at ranks that are not the root.
template <reducing Verb, class In, class Out, class Op>
struct reduction_body : comm::body_over<std::tuple<comm::argument<In>, comm::argument<Out>>> {
  using value_type = typename comm::argument<Out>::value_type;
  static constexpr const char* name = Verb::name;
  static constexpr bool works_on_host = detail::works_on_host<Op>;

  reduction_body(auto& in_, auto& out_, place where_) : in(in_), out(out_), where(where_) {}

  [[nodiscard]] errc check(const comm::communicator_base&) const noexcept {
    if (Verb::rooted && !where.good_root()) return errc::bad_root;
    return gives_only() || in.count() == out.count() ? errc{} : errc::size_mismatch;
  }
  void explain(failure_text& text) const {
    text.with("in.count", in.count()).with("out.count", out.count());
    if (Verb::rooted) text.with("root", where.root).with("ranks", where.ranks);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return in.bytes(); }
  [[nodiscard]] std::array<std::int64_t, 4> agreed() const {
    return agreed_values<value_type, Op>(in.count(), where.root);
  }
  [[nodiscard]] comm::collective_call call()
    requires(requires { Verb::kind; } && !is_adasum<Op>)
  {
    return reduction_call<value_type, Op>(Verb::kind, sent.in(in.view()), target(), in.count(),
                                          where.root);
  }
  int post(comm::poster& post) {
    if constexpr (is_adasum<Op>) {
      pack(in.view(), target());
      return stages.begin(post, target(), in.count());
    } else {
      return post_reduction<Verb, Op>(post, sent.in(in.view()), target(), in.count(), where);
    }
  }
  bool advance(comm::poster& post)
    requires is_adasum<Op>
  {
    return stages.go_on(post);
  }
  auto finish(std::error_code error, const comm::outcome_of_requests&) {
    if (!error && Verb::delivers(where)) {
      result.finish(out.view());
      if constexpr (is_average<Op>) apply_average(out.view(), Verb::terms(where));
    }
    return std::tuple_cat(in.take(), out.take());
  }
  template <class Self, class Visit>
  static void each_buffer(Self& self, Visit visit) {
    visit("in", self.in, true, false);
    visit("out", self.out, false, Verb::delivers(self.where));
  }
  [[nodiscard]] bool gives_only() const noexcept { return Verb::rooted && !where.is_root(); }
  [[nodiscard]] value_type* target() { return gives_only() ? nullptr : result.out(out.view()); }

  comm::argument<In> in;
  comm::argument<Out> out;
  packed<const value_type> sent;
  packed<value_type> result;
  [[no_unique_address]] reduction_stages<value_type, Op> stages;
  place where;
};

/// A compile error that says what is wrong with a reducing verb's arguments, buffers first.
template <has_root Rooted, class... Arguments>
consteval void explain_reduction() {
  comm::require_tokens<Arguments...>();
  constexpr bool has_reduction = (reduction<Arguments> || ...);
  static_assert(has_reduction,
                "no reduction given; use cohort::op::sum, cohort::op::max, … or "
                "cohort::user_op{function, cohort::commutative}");
  if constexpr (has_reduction) {
    using first = std::tuple_element_t<0, std::tuple<Arguments&&...>>;
    constexpr bool is_buffer = comm::require_buffer<first, Arguments...>();
    constexpr bool rooted =
        Rooted == has_root::no || (std::integral<std::remove_cvref_t<Arguments>> || ...);
    static_assert(!is_buffer || rooted, "the root is missing: an integer after the reduction");
    static_assert(!is_buffer || !rooted || never<Arguments...>,
                  "this call does not fit: the result needs a writable buffer, both buffers need "
                  "one element type, and the reduction must be defined for it (no sum of bool, no "
                  "bitwise operation on floating point, no min of complex, average of floating "
                  "point only, adasum in all_reduce of float, double, f16 and bf16 only); a "
                  "completion token comes last");
  }
}

}  // namespace cohort::collectives::detail
