// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The body of the `_v` collectives that are given no counts of what comes.

#include <cohort/collectives/bodies/movement.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::collectives::detail {

/// Stands among the arguments of a body for how much has come of each rank.
struct received_counts {
  static constexpr bool is_staged = false;
  static constexpr bool owned = true;
  [[nodiscard]] auto take() { return std::tuple<std::vector<std::size_t>>(std::move(counts)); }
  std::vector<std::size_t> counts;
};

template <class In, class Out>
using counted_arguments = std::conditional_t<requires {
  typename Out::made_here;
}, std::tuple<Out, received_counts, In>, std::tuple<received_counts, In, Out>>;

/// From one buffer to another, where the ranks tell each other how much comes.
///
/// 1. `CountsVerb` moves the counts. 2. `Verb` moves the elements. In between the operation keeps
/// its turn: what is started after it is posted after it, or ranks would disagree on the order.
///
/// A rank without room for what comes receives it all the same and throws it away, for the others
/// cannot know. It alone ends with errc::size_mismatch, and its `out` is left as it was.
template <movement CountsVerb, movement Verb, class In, class Out, class Lists = out_list>
struct exchanging_body : movement_base<Verb, Lists>, comm::body_over<counted_arguments<In, Out>> {
  using base = movement_base<Verb, Lists>;
  using base::blocks;
  using base::lists;
  using base::where;
  using value_type = typename In::value_type;
  static constexpr bool makes_result = requires { typename Out::made_here; };
  static constexpr bool keeps_turn = true;

  exchanging_body(In in_, Out out_, place where_, Lists lists_ = {})
      : base(where_, std::move(lists_)), in(std::move(in_)), out(std::move(out_)) {}

  [[nodiscard]] errc check(const comm::communicator_base& state) const noexcept {
    const errc bad = base::check_place(state);
    if (bad != errc{}) return bad;
    return base::fits_in(in.count()) ? errc{} : errc::size_mismatch;
  }
  void explain(failure_text& text) const {
    text.with("in.count", in.count());
    if (!makes_result) text.with("out.count", out.count());
    base::explain_place(text);
    if (spare) text.note("out has no room for what comes");
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return std::max(in.bytes(), out.bytes()); }
  [[nodiscard]] std::array<std::int64_t, 4> agreed() const {
    auto values = base::values(0, sizeof(value_type));
    values[2] = -1;  // no digest of counts that are given
    return values;
  }
  int post(comm::poster& post) {
    const MPI_Datatype type = mpi::datatype_of<std::size_t>();
    if (Verb::writes(where)) come.counts.resize(blocks.out);
    const std::size_t* told = &mine;
    mine = in.count();
    if constexpr (base::in_listed) told = lists.in.counts().data();
    MPI_Request request = MPI_REQUEST_NULL;
    return post.add(CountsVerb::post({const_cast<std::size_t*>(told), 1, type},
                                     {come.counts.data(), 1, type}, where, post.native(), &request),
                    request);
  }
  bool advance(comm::poster& post) {
    if (std::exchange(counted, true)) return false;
    end source = base::in_end(from, in.view());
    end target = Verb::writes(where) ? make_room(post) : to.unused();
    MPI_Request request = MPI_REQUEST_NULL;
    post.check(post.add(Verb::post(source, target, where, post.native(), &request), request));
    return true;
  }
  auto finish(std::error_code error, const comm::outcome_of_requests&) {
    if (!error && Verb::writes(where)) to.finish(out.view());
    if constexpr (makes_result) {
      return std::tuple_cat(out.take(), come.take(), in.take());
    } else {
      return std::tuple_cat(come.take(), in.take(), out.take());
    }
  }

  template <class Self, class Visit>
  static void each_buffer(Self& self, Visit visit) {
    const bool writes = Verb::writes(self.where);
    visit("in", self.in, true, false);
    visit("out", self.out, writes, writes);
  }

  /// The counts are there.
  [[nodiscard]] end make_room(comm::poster& post) {
    lists.out = block_list(come.counts);
    const std::size_t total = lists.out.total();
    if constexpr (makes_result) {
      out.make(total);
    } else if (total > out.count()) {
      spare = std::make_unique_for_overwrite<value_type[]>(total);
      post.operation().fail(errc::size_mismatch);
      return to.listed(contiguous_view(spare.get(), total), lists.out);
    }
    return to.listed(out.view(), lists.out);
  }

  In in;
  Out out;
  received_counts come;
  std::size_t mine = 0;
  bool counted = false;
  std::unique_ptr<value_type[]> spare;  // for what `out` has no room for
  side<const value_type> from;
  side<value_type> to;
};

// ---- calls ------------------------------------------------------------------------------------

template <class CountsVerb, class Verb, class In, class Out, class Lists = out_list>
using exchanges = exchanging_body<CountsVerb, Verb, comm::argument<comm::kept_to_read<In>>,
                                  comm::argument<comm::kept<Out>>, Lists>;
template <class CountsVerb, class Verb, class In, class Lists = out_list>
using exchanges_into_vector =
    exchanging_body<CountsVerb, Verb, comm::argument<comm::kept_to_read<In>>,
                    result_vector<element_of_t<In>>, Lists>;

// A std::vector<bool> has no elements that MPI could write.
template <class In>
concept gatherable = verb_input<In> && !std::same_as<element_of_t<In>, bool>;

/// Whether a call that is given no counts of what comes fits.
template <class Token, class CountsVerb, class Verb, class In, class Out, class Lists = out_list>
concept exchanging_call =
    movable_to<In, Out> &&
    completion_token_for<Token, signature_of<exchanges<CountsVerb, Verb, In, Out, Lists>>>;
template <class Token, class CountsVerb, class Verb, class In, class Lists = out_list>
concept exchanging_call_into_vector =
    gatherable<In> &&
    completion_token_for<Token, signature_of<exchanges_into_vector<CountsVerb, Verb, In, Lists>>>;

template <class CountsVerb, class Verb, class In, class Out, class Token, class Lists = out_list>
auto start_exchange(const communicator& comm, In&& in, Out&& out, int root, Token& token,
                    Lists lists = {}) {
  return comm::initiate(
      comm,
      exchanges<CountsVerb, Verb, In, Out, Lists>(comm::argument<comm::kept_to_read<In>>(in),
                                                  comm::argument<comm::kept<Out>>(out),
                                                  place_in(comm, root), std::move(lists)),
      token);
}

template <class CountsVerb, class Verb, class In, class Token, class Lists = out_list>
auto start_exchange_into_vector(const communicator& comm, In&& in, int root, Token& token,
                                Lists lists = {}) {
  return comm::initiate(
      comm,
      exchanges_into_vector<CountsVerb, Verb, In, Lists>(comm::argument<comm::kept_to_read<In>>(in),
                                                         result_vector<element_of_t<In>>(),
                                                         place_in(comm, root), std::move(lists)),
      token);
}

}  // namespace cohort::collectives::detail
