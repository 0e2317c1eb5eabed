// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What moves in a collective: the two sides as MPI wants them, lists of blocks, and the result
/// that an operation makes.

#include <cohort/collectives/block_list.hpp>
#include <cohort/collectives/bodies/call.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/native.hpp>
#include <cohort/mpi/post.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::collectives::detail {

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

}  // namespace cohort::collectives::detail
