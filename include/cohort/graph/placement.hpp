// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Where tasks are at home: `graph::hash`, `graph::block_cyclic`, `graph::on`, or a function.

#include <cohort/core/error.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/graph/runtime/naming.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace cohort::graph {

/// The indices that name a task of its family.
using indices = std::span<const std::int64_t>;

/// By a hash of the indices: tasks of other families with the same indices are at home there too.
struct hash {
  constexpr hash() noexcept {}
};

/// Tiles of a matrix over a grid of p times q ranks, by the first two indices. One index counts
/// twice. Ranks beyond the grid get nothing; a grid that is too large begins again at rank 0.
struct block_cyclic {
  /// Throws cohort::error(errc::invalid_argument) if one of them is not positive.
  block_cyclic(int rows, int columns) : p(rows), q(columns) {
    if (p < 1 || q < 1) {
      throw cohort::error(errc::invalid_argument, "graph: block_cyclic(" + std::to_string(p) +
                                                      ", " + std::to_string(q) + ")");
    }
  }
  int p;
  int q;
};

/// All on one rank.
struct on {
  explicit constexpr on(int one) noexcept : rank(one) {}
  int rank;
};

/// The home of each task of a family, the same on all ranks that name it (graph K2). A value.
class placement {
 public:
  placement() noexcept {}
  placement(hash) noexcept {}                   // NOLINT(*-explicit-*)
  placement(const block_cyclic& grid) noexcept  // NOLINT(*-explicit-*)
      : kind_(kind::block_cyclic), first_(grid.p), second_(grid.q) {}
  placement(on one) noexcept : kind_(kind::on), first_(one.rank) {}  // NOLINT(*-explicit-*)

  /// By a function `int f(graph::indices, int ranks)` or `int f(graph::indices, int ranks, const P&
  /// parameters)` with parameters that are trivially copyable and have no padding. It must give the
  /// same on all ranks.
  template <auto F>
  [[nodiscard]] static placement by() {
    return by_function(&call_plain<F>, registered<F>::name(), {});
  }
  template <auto F, class P>
  [[nodiscard]] static placement by(const P& parameters) {
    constexpr bool good = std::is_trivially_copyable_v<P> && sizeof(P) <= most_parameters &&
                          std::has_unique_object_representations_v<P>;
    static_assert(good,
                  "the parameters of a placement are trivially copyable, have no padding and no "
                  "floating point, and take 32 bytes at most");
    if constexpr (good) {
      return by_function(&call_with<F, P>, registered<F>::name(),
                         std::as_bytes(std::span<const P, 1>(&parameters, 1)));
    } else {
      return placement();
    }
  }

  /// `hashed` are these indices. Throws cohort::error(errc::bad_rank) if a function gives no rank.
  [[nodiscard]] std::int32_t home(graph::indices of, const machine::digest128& hashed,
                                  int ranks) const {
    if (kind_ == kind::hash) [[likely]] {
      return static_cast<std::int32_t>((hashed.high >> 32U) * static_cast<std::uint32_t>(ranks) >>
                                       32U);
    }
    return kind_ == kind::on ? first_ : other_home(of, ranks);
  }
  /// Equal for equal placements: "block_cyclic(2, 2)".
  [[nodiscard]] std::string text() const;
  /// Throws cohort::error(errc::bad_rank) for one that names a rank which is not there.
  void check(int ranks) const {
    if (kind_ == kind::on && (first_ < 0 || first_ >= ranks)) bad_rank(first_, ranks);
  }

 private:
  enum class kind : std::uint8_t { hash, block_cyclic, on, function };
  static constexpr std::size_t most_parameters = 32;
  using parameter_bytes = std::array<std::byte, most_parameters>;
  using function = int (*)(graph::indices, int ranks, const parameter_bytes&);

  template <auto F>
  static int call_plain(graph::indices of, int ranks, const parameter_bytes&) {
    return F(of, ranks);
  }
  template <auto F, class P>
  static int call_with(graph::indices of, int ranks, const parameter_bytes& bytes) {
    std::array<std::byte, sizeof(P)> mine;
    std::memcpy(mine.data(), bytes.data(), sizeof(P));
    return F(of, ranks, std::bit_cast<P>(mine));
  }
  static placement by_function(function code, std::string_view name,
                               std::span<const std::byte> parameters) {
    placement one;
    one.kind_ = kind::function;
    one.code_ = code;
    one.name_ = name;
    one.first_ = static_cast<int>(parameters.size());
    if (!parameters.empty()) {
      std::memcpy(one.parameters_.data(), parameters.data(), parameters.size());
    }
    return one;
  }
  [[noreturn]] static void bad_rank(int rank, int ranks) {
    throw cohort::error(errc::bad_rank, "graph: a placement on rank " + std::to_string(rank) +
                                            " of " + std::to_string(ranks));
  }
  static int wrapped(std::int64_t index, int size) noexcept {
    const auto left = static_cast<int>(index % size);
    return left < 0 ? left + size : left;
  }
  [[nodiscard]] inline std::int32_t other_home(graph::indices of, int ranks) const;

  kind kind_ = kind::hash;
  int first_ = 0;
  int second_ = 0;
  function code_ = nullptr;
  std::string_view name_;  // of static storage
  parameter_bytes parameters_{};
};

inline std::int32_t placement::other_home(graph::indices of, int ranks) const {
  if (kind_ == kind::block_cyclic) {
    if (of.empty()) return 0;
    const int row = wrapped(of[0], first_);
    const int column = wrapped(of[of.size() > 1 ? 1 : 0], second_);
    return static_cast<std::int32_t>((std::int64_t{row} * second_ + column) % ranks);
  }
  const int rank = code_(of, ranks, parameters_);
  if (rank < 0 || rank >= ranks) bad_rank(rank, ranks);
  return rank;
}

inline std::string placement::text() const {
  const auto numbers = [](int a, int b) { return std::to_string(a) + ", " + std::to_string(b); };
  switch (kind_) {
    case kind::hash:
      break;
    case kind::block_cyclic:
      return "block_cyclic(" + numbers(first_, second_) + ")";
    case kind::on:
      return "on(" + std::to_string(first_) + ")";
    case kind::function: {
      std::string all(name_);
      all += '(';
      constexpr std::string_view digits = "0123456789abcdef";
      for (int i = 0; i < first_; ++i) {
        const auto byte = std::to_integer<unsigned>(parameters_[static_cast<std::size_t>(i)]);
        all += digits[byte >> 4U];
        all += digits[byte & 15U];
      }
      return all + ")";
    }
  }
  return "hash";
}

}  // namespace cohort::graph
