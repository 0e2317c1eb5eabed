// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What the collectives need of a call that move blocks. For the room see `place.hpp`.

#include <cohort/collectives/block_list.hpp>
#include <cohort/collectives/bodies/place.hpp>
#include <cohort/comm/body.hpp>
#include <cohort/core/buffer.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/native.hpp>

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::collectives::detail {

/// A compile error that says what is wrong with a moving verb's arguments, buffers first.
template <has_root Rooted, class... Arguments>
consteval void explain_movement() {
  comm::require_tokens<Arguments...>();
  using first = argument_at<0, Arguments...>;
  using second = argument_at<1, Arguments...>;
  constexpr bool is_buffer = comm::require_buffer<first, Arguments...>();
  constexpr bool rooted =
      Rooted == has_root::no || (std::integral<std::remove_cvref_t<Arguments>> || ...);
  static_assert(!is_buffer || rooted, "the root is missing: an integer after the buffers");
  if constexpr (is_buffer && rooted) {
    using value = element_of_t<std::remove_reference_t<first>&>;
    constexpr bool one_type = !any_buffer<second> || std::integral<std::remove_cvref_t<second>> ||
                              std::same_as<value, element_if_buffer<second>>;
    static_assert(one_type, "both buffers need one element type");
    static_assert(
        !one_type || never<Arguments...>,
        "this call does not fit: a buffer that receives must be writable (not const); "
        "after the buffers come counts for the _v forms, or cohort::exchanged_counts, then "
        "the root where there is one, then a completion token");
  }
}

/// One side of a movement as MPI wants it. `parts` instead of `count` where blocks have a list.
struct end {
  void* data = nullptr;
  MPI_Count count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  mpi::blocks* parts = nullptr;
};

/// Which sides of a verb have a list of blocks.
struct no_lists {};
struct in_list {
  block_list in;
};
struct out_list {
  block_list out;
};
struct both_lists {
  block_list in;
  block_list out;
};

template <block_counts List>
[[nodiscard]] block_list to_list(const List& list) {
  return block_list(list);
}

/// How many blocks the two sides have. Learnt from the communicator when the operation starts.
struct block_numbers {
  std::size_t in = 0;
  std::size_t out = 0;
};

/// Elements of one block, or nothing if the buffer does not divide.
[[nodiscard]] inline std::optional<std::size_t> block_of(std::size_t count, std::size_t blocks) {
  if (blocks == 0) return 0;
  if (count % blocks != 0) return std::nullopt;
  return count / blocks;
}

/// One side while it is posted and until it is complete: packed elements, the derived type, and the
/// arrays that MPI reads until then.
template <class T>
class side {
 public:
  side() noexcept {}
  /// Before it is posted or after its end, when MPI reads neither type nor lists.
  side(side&& other) noexcept : copy_(std::move(other.copy_)) {}

  /// Elements in one piece, for a backend.
  [[nodiscard]] void* whole(buffer_view<T> view) {
    return const_cast<std::remove_const_t<T>*>(copy_.in(view));
  }
  /// `blocks` equal blocks. A single one may be strided, more are packed: where a block ends need
  /// not be where a stride ends. What is written is packed too: MPI may leave gaps as they were.
  [[nodiscard]] end equal(buffer_view<T> view, std::size_t blocks) {
    if (blocks == 1 && !copy_.made()) {
      layout_.emplace(view);
    } else {
      T* const elements = copy_.in(view);
      layout_.emplace(contiguous_view(elements, blocks == 0 ? 0 : view.count / blocks));
    }
    return {layout_->data(), layout_->count(), layout_->type(), nullptr};
  }
  [[nodiscard]] end listed(buffer_view<T> view, const block_list& list) {
    const MPI_Datatype type = mpi::datatype_of<std::remove_const_t<T>>();
    parts_.emplace(list.counts(), list.displacements(), type);
    return {whole(view), 0, type, &*parts_};
  }
  /// A side that this rank neither reads nor writes.
  [[nodiscard]] end unused(void* stands_for_it = nullptr) {
    const MPI_Datatype type = mpi::datatype_of<std::remove_const_t<T>>();
    parts_.emplace(std::span<const std::size_t>(), type);
    return {stands_for_it, 0, type, &*parts_};
  }
  void finish(buffer_view<T> view) { copy_.finish(view); }

 private:
  packed<T> copy_;
  std::optional<mpi::layout> layout_;
  std::optional<mpi::blocks> parts_;
};

/// Stands for the argument `out` where the operation makes the result.
template <class T>
class result_vector {
 public:
  using made_here = void;
  static constexpr bool is_staged = false;
  using value_type = T;
  static constexpr bool owned = true;

  /// Of a size that comes later.
  result_vector() noexcept {}
  explicit result_vector(const block_list& list) : elements_(list.extent()) {}
  void make(std::size_t count) { elements_.resize(count); }

  [[nodiscard]] buffer_view<T> view() noexcept {
    return contiguous_view(elements_.data(), elements_.size());
  }
  [[nodiscard]] std::size_t count() const noexcept { return elements_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return elements_.size() * sizeof(T); }
  [[nodiscard]] auto take() { return std::tuple<std::vector<T>>(std::move(elements_)); }

 private:
  std::vector<T> elements_;
};

}  // namespace cohort::collectives::detail
