// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// From a verb's arguments to its body: what the moving verbs share in their declarations.

#include <cohort/collectives/detail/movement.hpp>

namespace cohort::collectives::detail {

/// What is needed to move from one buffer to another.
template <class In, class Out>
concept movable_to =
    verb_input<In> && verb_output<Out> && std::same_as<element_of_t<In>, element_of_t<Out>>;

template <class Verb, class In, class Out, class Lists = no_lists>
using moves = movement_body<Verb, comm::argument<In>, comm::argument<Out>, Lists>;
template <class Verb, class Buffer, class Lists = no_lists>
using moves_in_place = in_place_movement_body<Verb, comm::argument<Buffer>, Lists>;

template <class Body>
using signature_of = typename Body::signature;

/// Whether a call of a moving verb fits.
template <class Token, class Verb, class In, class Out, class Lists = no_lists>
concept movement_call =
    movable_to<In, Out> && completion_token_for<Token, signature_of<moves<Verb, In, Out, Lists>>>;
template <class Token, class Verb, class Buffer, class Lists = no_lists>
concept movement_call_in_place = verb_output<Buffer> &&
    completion_token_for<Token, signature_of<moves_in_place<Verb, Buffer, Lists>>>;

template <class Verb, class In, class Out, class Token, class Lists = no_lists>
auto start_movement(const communicator& comm, In&& in, Out&& out, int root, Token& token,
                    Lists lists = {}) {
  return comm::initiate(
      comm,
      moves<Verb, In, Out, Lists>(comm::argument<In>(in), comm::argument<Out>(out),
                                  place_in(comm, root), std::move(lists)),
      token);
}

template <class Verb, class Buffer, class Token, class Lists = no_lists>
auto start_movement_in_place(const communicator& comm, Buffer&& buffer, int root, Token& token,
                             Lists lists = {}) {
  return comm::initiate(comm,
                        moves_in_place<Verb, Buffer, Lists>(comm::argument<Buffer>(buffer),
                                                            place_in(comm, root), std::move(lists)),
                        token);
}

/// Stands for the argument `out` where the operation makes the result.
template <class T>
class result_vector {
 public:
  using made_here = void;
  static constexpr bool is_staged = false;
  using value_type = T;
  static constexpr bool owned = true;

  explicit result_vector(const block_list& list) : elements_(list.extent()) {}

  [[nodiscard]] buffer_view<T> view() noexcept {
    return contiguous_view(elements_.data(), elements_.size());
  }
  [[nodiscard]] std::size_t count() const noexcept { return elements_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return elements_.size() * sizeof(T); }
  [[nodiscard]] auto take() { return std::tuple<std::vector<T>>(std::move(elements_)); }

 private:
  std::vector<T> elements_;
};

/// What most verbs answer.
struct unrooted {
  static constexpr bool rooted = false;
  static constexpr bool own_block_stays = true;
  static constexpr bool in_is_larger = false;
  static constexpr bool reads(place) noexcept { return true; }
  static constexpr bool writes(place) noexcept { return true; }
};

}  // namespace cohort::collectives::detail
