// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The body of every collective that moves blocks: one side is read, the other is written.

#include <cohort/collectives/bodies/call.hpp>
#include <cohort/comm/body.hpp>
#include <cohort/mpi/post.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace cohort::collectives::detail {

/// What a verb says of itself; the comment at each line tells the question.
template <class Verb>
concept movement = requires(place where, const comm::communicator_base& state, end side,
                            MPI_Comm native, MPI_Request* request) {
  { Verb::name } -> std::convertible_to<const char*>;
  { Verb::rooted } -> std::convertible_to<bool>;           // has it a root?
  { Verb::own_block_stays } -> std::convertible_to<bool>;  // does a rank send to itself?
  { Verb::reads(where) } -> std::same_as<bool>;            // does this rank read `in`?
  { Verb::writes(where) } -> std::same_as<bool>;           // does it write `out`?
  { Verb::blocks(where, state) } -> std::same_as<std::optional<block_numbers>>;  // none: not here
  { Verb::post(side, side, where, native, request) } -> std::same_as<int>;
};

/// A verb that a backend may do: it has a `kind`, and no lists.
template <class Verb, class Lists>
concept has_backend_kind = std::same_as<Lists, no_lists> && requires { Verb::kind; };

/// What both bodies below share: where the rank stands, the lists, and the verb's questions.
template <movement Verb, class Lists>
struct movement_base {
  static constexpr const char* name = Verb::name;
  static constexpr bool in_listed = requires(Lists& lists) { lists.in; };
  static constexpr bool out_listed = requires(Lists& lists) { lists.out; };
  // Between blocks of a list, or where there is no neighbour.
  static constexpr bool has_gaps = out_listed || !Verb::own_block_stays;

  movement_base(place where_, Lists lists_) : where(where_), lists(std::move(lists_)) {}

  /// Errors that need no sizes. Asks the communicator how many blocks there are.
  [[nodiscard]] errc check_place(const comm::communicator_base& state) const {
    if (Verb::rooted && !where.good_root()) return errc::bad_root;
    const auto numbers = Verb::blocks(where, state);
    if (!numbers) return errc::invalid_communicator;
    blocks = *numbers;
    return errc{};
  }
  /// Whether `count` elements are what a side can have.
  [[nodiscard]] bool fits_in(std::size_t count) const {
    if constexpr (in_listed) return lists.in.fits(blocks.in, count);
    return block_of(count, blocks.in).has_value();
  }
  [[nodiscard]] bool fits_out(std::size_t count) const {
    if constexpr (out_listed) return lists.out.fits(blocks.out, count);
    return block_of(count, blocks.out).has_value();
  }
  /// What this rank sends to itself and receives from itself must be equally long.
  [[nodiscard]] bool own_blocks_match(std::size_t in_count, std::size_t out_count) const {
    if constexpr (!Verb::own_block_stays && (in_listed || out_listed)) return true;
    if (blocks.in == 0 || blocks.out == 0) return true;
    std::size_t sent = 0;
    std::size_t received = 0;
    if constexpr (in_listed) {
      sent = lists.in.counts()[where.index()];
    } else {
      sent = *block_of(in_count, blocks.in);
    }
    if constexpr (out_listed) {
      received = lists.out.counts()[where.index()];
    } else {
      received = *block_of(out_count, blocks.out);
    }
    return sent == received;
  }
  void explain_place(failure_text& text) const {
    text.with("ranks", where.ranks);
    if (Verb::rooted) text.with("root", where.root);
    if constexpr (in_listed) explain_list(text, "in", lists.in);
    if constexpr (out_listed) explain_list(text, "out", lists.out);
  }
  [[nodiscard]] std::array<std::int64_t, 4> values(std::size_t block, std::size_t size) const {
    std::int64_t list = 0;
    // Only an all_gather_v has a list that all ranks give, and give equally.
    if constexpr (out_listed && !in_listed && !Verb::rooted && Verb::own_block_stays) {
      list = lists.out.digest();
    }
    // With a list on either side counts agree in pairs of ranks only.
    std::int64_t count = 0;
    if constexpr (!in_listed && !out_listed) {
      const bool alone = blocks.in == 0 && blocks.out == 0;  // without neighbours
      count = alone ? comm::argument_check::any_value : static_cast<std::int64_t>(block);
    }
    return {count, static_cast<std::int64_t>(size), list, where.root};
  }

  template <class T>
  [[nodiscard]] end in_end(side<T>& from, std::type_identity_t<buffer_view<T>> view) {
    if constexpr (in_listed) {
      return from.listed(view, lists.in);
    } else {
      return from.equal(view, blocks.in);
    }
  }
  template <class T>
  [[nodiscard]] end out_end(side<T>& to, std::type_identity_t<buffer_view<T>> view) {
    if constexpr (out_listed) {
      return to.listed(view, lists.out);
    } else {
      return to.equal(view, blocks.out);
    }
  }

  place where;
  Lists lists;
  mutable block_numbers blocks;  // looked up by check(), which is the first thing a start does

 private:
  static void explain_list(failure_text& text, std::string_view what, const block_list& list) {
    text.with(std::string(what) + ".blocks", list.counts().size());
    text.with(std::string(what) + ".blocks.total", list.total());
  }
};

/// A result that the operation makes comes first, containers that it was given follow.
template <class In, class Out>
using in_and_out = std::conditional_t<requires { typename Out::made_here; }, std::tuple<Out, In>,
                                      std::tuple<In, Out>>;

/// From one buffer to another.
template <movement Verb, class In, class Out, class Lists = no_lists>
struct movement_body : movement_base<Verb, Lists>, comm::body_over<in_and_out<In, Out>> {
  using base = movement_base<Verb, Lists>;
  using base::blocks;
  using base::where;
  using value_type = typename Out::value_type;
  static constexpr bool makes_result = requires { typename Out::made_here; };

  movement_body(In in_, Out out_, place where_, Lists lists_ = {})
      : base(where_, std::move(lists_)), in(std::move(in_)), out(std::move(out_)) {}

  [[nodiscard]] errc check(const comm::communicator_base& state) const noexcept {
    const errc bad = base::check_place(state);
    if (bad != errc{}) return bad;
    const bool reads = Verb::reads(where);
    const bool writes = Verb::writes(where);
    const bool fits = (!reads || base::fits_in(in.count())) &&
                      (!writes || base::fits_out(out.count())) &&
                      (!reads || !writes || base::own_blocks_match(in.count(), out.count()));
    return fits ? errc{} : errc::size_mismatch;
  }
  void explain(failure_text& text) const {
    text.with("in.count", in.count()).with("out.count", out.count());
    base::explain_place(text);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return std::max(in.bytes(), out.bytes()); }
  [[nodiscard]] std::size_t block() const {
    const bool by_in = Verb::reads(where) && blocks.in != 0;
    return by_in ? block_of(in.count(), blocks.in).value_or(0)
                 : block_of(out.count(), blocks.out).value_or(0);
  }
  [[nodiscard]] std::array<std::int64_t, 4> agreed() const {
    return base::values(block(), sizeof(value_type));
  }
  [[nodiscard]] comm::collective_call call()
    requires has_backend_kind<Verb, Lists>
  {
    return {Verb::kind,
            Verb::reads(where) ? from.whole(in.view()) : nullptr,
            Verb::writes(where) ? to.whole(out.view()) : nullptr,
            block(),
            mpi::datatype_of<value_type>(),
            MPI_OP_NULL,
            where.root};
  }
  /// Both sides as MPI wants them.
  [[nodiscard]] std::pair<end, end> ends() {
    end source = Verb::reads(where) ? base::in_end(from, in.view()) : from.unused();
    end target = Verb::writes(where) ? base::out_end(to, out.view()) : to.unused();
    // Open MPI 4.1 wants one size on both sides, also of a rank that only sends to neighbours, or
    // only receives. What the address is does not matter then, but it must not be null.
    if constexpr (!base::in_listed && !base::out_listed) {
      static char nowhere;
      if (blocks.in == 0) source = {&nowhere, target.count, target.type, nullptr};
      if (blocks.out == 0) target = {&nowhere, source.count, source.type, nullptr};
    }
    return {source, target};
  }
  int post(comm::poster& post) {
    const auto [source, target] = ends();
    MPI_Request request = MPI_REQUEST_NULL;
    return post.add(Verb::post(source, target, where, post.native(), &request), request);
  }
  auto finish(std::error_code error, const comm::outcome_of_requests&) {
    if (!error && Verb::writes(where)) to.finish(out.view());
    if constexpr (makes_result) {
      return std::tuple_cat(out.take(), in.take());
    } else {
      return std::tuple_cat(in.take(), out.take());
    }
  }

  template <class Self, class Visit>
  static void each_buffer(Self& self, Visit visit) {
    const bool writes = Verb::writes(self.where);
    visit("in", self.in, Verb::reads(self.where), false);
    visit("out", self.out, writes && base::has_gaps, writes);
  }

  In in;
  Out out;
  side<const value_type> from;
  side<value_type> to;
};

/// In one buffer. A rank that would both read and write has the larger side in it; at the others it
/// is the one side they have.
template <movement Verb, class Buffer, class Lists = no_lists>
struct in_place_movement_body : movement_base<Verb, Lists>, comm::body_over<std::tuple<Buffer>> {
  using base = movement_base<Verb, Lists>;
  using base::blocks;
  using base::where;
  using value_type = typename Buffer::value_type;

  in_place_movement_body(Buffer buffer, place where_, Lists lists_ = {})
      : base(where_, std::move(lists_)), data(std::move(buffer)) {}

  [[nodiscard]] errc check(const comm::communicator_base& state) const noexcept {
    const errc bad = base::check_place(state);
    if (bad != errc{}) return bad;
    const bool fits = is_in() ? base::fits_in(data.count()) : base::fits_out(data.count());
    return fits ? errc{} : errc::size_mismatch;
  }
  void explain(failure_text& text) const {
    text.with("count", data.count());
    base::explain_place(text);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return data.bytes(); }
  [[nodiscard]] std::size_t block() const {
    return block_of(data.count(), is_in() ? blocks.in : blocks.out).value_or(0);
  }
  [[nodiscard]] std::array<std::int64_t, 4> agreed() const {
    return base::values(block(), sizeof(value_type));
  }
  [[nodiscard]] comm::collective_call call()
    requires has_backend_kind<Verb, Lists>
  {
    void* const elements = whole.whole(data.view());
    return {Verb::kind,
            is_in()     ? elements
            : is_both() ? MPI_IN_PLACE
                        : nullptr,
            !is_in()    ? elements
            : is_both() ? MPI_IN_PLACE
                        : nullptr,
            block(),
            mpi::datatype_of<value_type>(),
            MPI_OP_NULL,
            where.root};
  }
  int post(comm::poster& post) {
    end here = is_in() ? base::in_end(whole, data.view()) : base::out_end(whole, data.view());
    end there = other.unused(is_both() ? MPI_IN_PLACE : nullptr);
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = is_in() ? Verb::post(here, there, where, post.native(), &request)
                           : Verb::post(there, here, where, post.native(), &request);
    return post.add(rc, request);
  }
  auto finish(std::error_code error, const comm::outcome_of_requests&) {
    if (!error && !is_in()) whole.finish(data.view());
    return data.take();
  }

  template <class Self, class Visit>
  static void each_buffer(Self& self, Visit visit) {
    const bool is_in = self.is_in();
    visit("buffer", self.data, is_in || self.is_both() || base::has_gaps, !is_in);
  }

  [[nodiscard]] bool is_both() const noexcept { return Verb::reads(where) && Verb::writes(where); }
  [[nodiscard]] bool is_in() const noexcept {
    return is_both() ? Verb::in_is_larger : Verb::reads(where);
  }

  Buffer data;
  side<value_type> whole;
  side<value_type> other;
};

// ---- calls ------------------------------------------------------------------------------------

/// What is needed to move from one buffer to another.
template <class In, class Out>
concept movable_to =
    verb_input<In> && verb_output<Out> && std::same_as<element_of_t<In>, element_of_t<Out>>;

template <class Verb, class In, class Out, class Lists = no_lists>
using moves = movement_body<Verb, comm::argument<comm::kept_to_read<In>>,
                            comm::argument<comm::kept<Out>>, Lists>;
template <class Verb, class Buffer, class Lists = no_lists>
using moves_in_place = in_place_movement_body<Verb, comm::argument<comm::kept<Buffer>>, Lists>;

template <class Body>
using signature_of = typename Body::signature;

/// Whether a call of a moving verb fits.
template <class Token, class Verb, class In, class Out, class Lists = no_lists>
concept movement_call =
    movable_to<In, Out> && completion_token_for<Token, signature_of<moves<Verb, In, Out, Lists>>>;
template <class Token, class Verb, class Buffer, class Lists = no_lists>
concept movement_call_in_place =
    verb_output<Buffer> &&
    completion_token_for<Token, signature_of<moves_in_place<Verb, Buffer, Lists>>>;

template <class Verb, class In, class Out, class Token, class Lists = no_lists>
auto start_movement(const communicator& comm, In&& in, Out&& out, int root, Token& token,
                    Lists lists = {}) {
  return comm::initiate(comm,
                        moves<Verb, In, Out, Lists>(comm::argument<comm::kept_to_read<In>>(in),
                                                    comm::argument<comm::kept<Out>>(out),
                                                    place_in(comm, root), std::move(lists)),
                        token);
}

template <class Verb, class Buffer, class Token, class Lists = no_lists>
auto start_movement_in_place(const communicator& comm, Buffer&& buffer, int root, Token& token,
                             Lists lists = {}) {
  return comm::initiate(
      comm,
      moves_in_place<Verb, Buffer, Lists>(comm::argument<comm::kept<Buffer>>(buffer),
                                          place_in(comm, root), std::move(lists)),
      token);
}

/// What the list of kinds answers for a verb.
template <op_kind Kind>
struct moves_as {
  static constexpr bool rooted = is_rooted(Kind);
  static constexpr bool own_block_stays = true;
  static constexpr bool in_is_larger = is_divided(Kind) && !is_assembled(Kind);
  static constexpr bool reads(place where) noexcept { return brings_data(Kind, where.is_root()); }
  static constexpr bool writes(place where) noexcept { return gets_result(Kind, where.is_root()); }
  static std::optional<block_numbers> blocks(place where, const comm::communicator_base&) {
    const std::size_t all = where.blocks();
    return block_numbers{is_divided(Kind) ? all : 1, is_assembled(Kind) ? all : 1};
  }
};

}  // namespace cohort::collectives::detail
