// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The buffer concepts and the views that buffers become.

#include <cohort/adapters/mdspan.hpp>
#include <cohort/core/buffer.hpp>
#include <cohort/core/flatten.hpp>

#include <array>
#include <complex>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"

namespace {

using cohort::element_of_t;
using cohort::input_buffer;
using cohort::output_buffer;
using cohort::owned_buffer;
using cohort::readable_buffer;
using cohort::strided_view;
using cohort::view_of;
using cohort::writable_buffer;

using vector = std::vector<double>;

// Lvalues of contiguous containers.
static_assert(writable_buffer<vector&>);
static_assert(readable_buffer<const vector&> && !writable_buffer<const vector&>);
static_assert(writable_buffer<std::array<int, 3>&> && writable_buffer<int (&)[4]>);
static_assert(!readable_buffer<std::vector<bool>&> && !readable_buffer<std::vector<std::string>&>);
static_assert(!readable_buffer<std::vector<int*>&>);
static_assert(readable_buffer<std::initializer_list<int>&>);

// Views survive the object, so an rvalue will do, and their constness is that of the element.
static_assert(writable_buffer<std::span<float>> && writable_buffer<const std::span<float>&>);
static_assert(readable_buffer<std::span<const float>> && !writable_buffer<std::span<const float>>);
static_assert(readable_buffer<std::string_view> && !writable_buffer<std::string_view>);
static_assert(writable_buffer<strided_view<float>> && !writable_buffer<strided_view<const float>>);

// A lvalue element is a buffer of one; an rvalue would dangle.
static_assert(writable_buffer<double&> && writable_buffer<std::complex<double>&>);
static_assert(readable_buffer<const int&> && !writable_buffer<const int&>);
static_assert(!readable_buffer<double> && !readable_buffer<int*&>);

// Temporaries dangle unless the operation owns them.
static_assert(!readable_buffer<vector> && owned_buffer<vector> && owned_buffer<std::string>);
static_assert(owned_buffer<std::array<int, 3>>);
static_assert(!owned_buffer<vector&> && !owned_buffer<const vector> && !owned_buffer<double>);
static_assert(!owned_buffer<std::span<double>> && !owned_buffer<strided_view<double>>);
static_assert(!owned_buffer<std::initializer_list<int>>);
static_assert(!readable_buffer<std::initializer_list<int>>);
static_assert(input_buffer<vector> && output_buffer<vector> && !output_buffer<const vector&>);

static_assert(std::same_as<element_of_t<const vector&>, double>);
static_assert(std::same_as<element_of_t<vector>, double>);
static_assert(std::same_as<element_of_t<std::span<const float>>, float>);
static_assert(std::same_as<element_of_t<std::array<std::array<int, 3>, 2>&>, std::array<int, 3>>);

// A span-like class that does not own and does not say that it may outlive itself.
struct shallow_view {
  double* data_ = nullptr;
  [[nodiscard]] double* begin() const { return data_; }
  [[nodiscard]] double* end() const { return data_ + 1; }
};
static_assert(!owned_buffer<shallow_view> && !readable_buffer<shallow_view>);

// What std::mdspan offers, for any strides.
template <class T, std::size_t Rank, class Reference = T&>
struct matrix_view {
  using element_type = T;
  using reference = Reference;
  T* data_;
  std::array<std::size_t, Rank> extents_;
  std::array<std::size_t, Rank> strides_;
  [[nodiscard]] T* const& data_handle() const { return data_; }
  static constexpr std::size_t rank() { return Rank; }
  [[nodiscard]] std::size_t extent(std::size_t i) const { return extents_[i]; }
  [[nodiscard]] std::size_t stride(std::size_t i) const { return strides_[i]; }
};
static_assert(writable_buffer<matrix_view<int, 2>> && !writable_buffer<matrix_view<const int, 2>>);
static_assert(!readable_buffer<matrix_view<std::string, 2>>);
static_assert(!readable_buffer<matrix_view<int, 2, int>>);  // as of an accessor that scales

}  // namespace

namespace described_classes {

// Owns its elements, which are no range; constness is deep.
template <class T>
struct grid {
  explicit grid(std::size_t n = 0) : cells_(new T[n]()), n_(n) {}
  T* cells() { return cells_.get(); }
  [[nodiscard]] const T* cells() const { return cells_.get(); }
  std::unique_ptr<T[]> cells_;
  std::size_t n_;
};

// Refers to every second element of an array; constness is shallow. It is a contiguous range too,
// of something else.
struct every_second {
  int* data_;
  std::size_t n_;
  [[nodiscard]] const char* begin() const { return "what it prints"; }
  [[nodiscard]] const char* end() const { return begin(); }
};

// Owns its elements, and may fail to say where they are.
struct doubtful : grid<double> {
  using grid::grid;
};

// No buffers: one gives no buffer_view, the other does not say whether it owns.
struct no_view {};
struct silent {};

}  // namespace described_classes

template <class T>
struct cohort::buffer_traits<described_classes::grid<T>> {
  static constexpr bool owns = true;
  static auto view(auto& g) noexcept { return cohort::contiguous_view(g.cells(), g.n_); }
};
template <>
struct cohort::buffer_traits<described_classes::every_second> {
  static constexpr bool owns = false;
  static auto view(const described_classes::every_second& v) {
    return cohort::buffer_view<int>{v.data_, v.n_, 1, 2};
  }
};
template <>
struct cohort::buffer_traits<described_classes::doubtful> {
  static constexpr bool owns = true;
  static auto view(auto& g) { return cohort::contiguous_view(g.cells(), g.n_); }
};
template <>
struct cohort::buffer_traits<described_classes::no_view> {
  static constexpr bool owns = false;
  static int view(const described_classes::no_view&) { return 0; }
};
template <>
struct cohort::buffer_traits<described_classes::silent> {
  static cohort::buffer_view<int> view(const described_classes::silent&) { return {}; }
};

namespace {

using described_classes::every_second;
using grid = described_classes::grid<double>;

static_assert(writable_buffer<grid&> && !writable_buffer<const grid&>);
static_assert(readable_buffer<const grid&> && !readable_buffer<grid> && owned_buffer<grid>);
static_assert(!owned_buffer<const grid> && !owned_buffer<grid&> && output_buffer<grid>);
static_assert(writable_buffer<described_classes::doubtful&> &&
              !input_buffer<described_classes::doubtful>);
static_assert(std::same_as<element_of_t<grid>, double>);
static_assert(std::same_as<element_of_t<const grid&>, double>);
static_assert(writable_buffer<every_second> && writable_buffer<const every_second&>);
static_assert(writable_buffer<const every_second> && !owned_buffer<every_second>);
static_assert(std::same_as<element_of_t<every_second>, int>);
static_assert(!input_buffer<described_classes::no_view&> &&
              !input_buffer<described_classes::silent&>);
static_assert(!input_buffer<described_classes::grid<std::string>&>);

struct every_dimension {
  [[nodiscard]] static std::size_t extent(std::size_t) { return 7; }
  [[nodiscard]] static std::size_t stride(std::size_t) { return 1; }
};

std::vector<int> numbers(std::size_t n) {
  std::vector<int> result(n);
  std::iota(result.begin(), result.end(), 0);
  return result;
}

template <class View>
std::vector<int> packed(View view) {
  std::vector<int> result(view.count);
  cohort::pack(view, result.data());
  return result;
}

}  // namespace

TEST_CASE("a container becomes one block of all its elements") {
  vector data(5);
  const auto view = view_of(data);
  CHECK(view.data == data.data());
  CHECK(view.count == 5);
  CHECK(view.block == 5);
  CHECK(view.contiguous());
  CHECK(view.bytes() == 40);
  CHECK(view.blocks() == 1);
}

TEST_CASE("a scalar becomes a view of one, and an empty container a view of none") {
  double value = 0;
  CHECK(view_of(value).data == &value);
  CHECK(view_of(value).count == 1);
  vector none;
  CHECK(view_of(none).count == 0);
  CHECK(view_of(none).contiguous());
  CHECK(view_of(none).blocks() == 0);
}

TEST_CASE("the view of a const container is read-only") {
  const vector data(3);
  static_assert(std::is_same_v<decltype(view_of(data)), cohort::buffer_view<const double>>);
  CHECK(view_of(data).count == 3);
}

TEST_CASE("a column of a matrix is packed and unpacked in its order") {
  auto matrix = numbers(12);  // 3 rows of 4
  const strided_view<int> column(matrix.data() + 1, 3, 1, 4);
  CHECK(column.size() == 3);
  CHECK_FALSE(column.view().contiguous());
  CHECK(packed(view_of(column)) == std::vector<int>{1, 5, 9});
  const std::vector<int> replacement{-1, -5, -9};
  cohort::unpack(replacement.data(), view_of(column));
  CHECK(matrix[1] == -1);
  CHECK(matrix[5] == -5);
  CHECK(matrix[9] == -9);
  CHECK(matrix[2] == 2);
}

TEST_CASE("blocks that touch are contiguous, and a negative stride is not") {
  auto data = numbers(6);
  CHECK(strided_view<int>(data.data(), 3, 2, 2).view().contiguous());
  const strided_view<int> reversed(data.data() + 5, 6, 1, -1);
  CHECK(packed(reversed.view()) == std::vector<int>{5, 4, 3, 2, 1, 0});
}

TEST_CASE("unpacking into a rectangle writes its rows and leaves the gaps alone") {
  std::vector<int> matrix(12, -1);  // 3 rows of 4
  const strided_view<int> rectangle(matrix.data() + 5, 2, 2, 4);
  CHECK(rectangle.blocks() == 2);
  CHECK(rectangle.view().bytes() == 4 * sizeof(int));
  const std::vector<int> rows{1, 2, 3, 4};
  cohort::unpack(rows.data(), rectangle.view());
  CHECK(matrix == std::vector<int>{-1, -1, -1, -1, -1, 1, 2, -1, -1, 3, 4, -1});
  CHECK(packed(rectangle.view()) == rows);
}

TEST_CASE("a multidimensional view becomes the simplest strided view") {
  auto data = numbers(24);
  using view = matrix_view<int, 2>;
  using cube = matrix_view<int, 3>;

  SECTION("a whole matrix is contiguous in either order of its dimensions") {
    CHECK(view_of(view{data.data(), {4, 6}, {6, 1}}).contiguous());
    CHECK(view_of(view{data.data(), {6, 4}, {1, 6}}).contiguous());
  }
  SECTION("a rectangle keeps its rows") {
    const auto part = view_of(view{data.data() + 7, {2, 3}, {6, 1}});
    CHECK(part.block == 3);
    CHECK(part.stride == 6);
    CHECK(packed(part) == std::vector<int>{7, 8, 9, 13, 14, 15});
  }
  SECTION("a column has blocks of one") {
    const auto column = view_of(view{data.data() + 2, {4, 1}, {6, 1}});
    CHECK(column.block == 1);
    CHECK(packed(column) == std::vector<int>{2, 8, 14, 20});
  }
  SECTION("dimensions that continue each other merge") {
    const auto part = view_of(cube{data.data(), {2, 2, 3}, {12, 3, 1}});
    CHECK(part.block == 6);
    CHECK(part.blocks() == 2);
  }
  SECTION("an empty one has no elements") {
    CHECK(view_of(view{data.data(), {0, 3}, {6, 1}}).count == 0);
  }
  SECTION("two gaps are refused") {
    CHECK_THROWS_AS(view_of(cube{data.data(), {2, 2, 2}, {12, 4, 1}}), cohort::error);
    CHECK_THROWS_AS(view_of(view{data.data(), {2, 2}, {12, 2}}), cohort::error);
  }
}

TEST_CASE("a class with buffer_traits becomes the view that these give") {
  grid cells(6);
  CHECK(view_of(cells).data == cells.cells());
  CHECK(view_of(cells).count == 6);
  static_assert(
      std::is_same_v<decltype(view_of(std::as_const(cells))), cohort::buffer_view<const double>>);

  auto data = numbers(6);
  CHECK(packed(view_of(every_second{data.data() + 1, 3})) == std::vector<int>{1, 3, 5});
}

TEST_CASE("data of several dimensions are flattened by their extents and strides") {
  auto data = numbers(24);
  using extents = std::array<std::size_t, 2>;
  using strides = std::array<std::ptrdiff_t, 2>;
  CHECK(packed(cohort::flatten(data.data(), extents{2, 3}, strides{1, 6})) ==
        std::vector<int>{0, 1, 6, 7, 12, 13});
  CHECK(packed(cohort::flatten(data.data() + 23, extents{1, 3}, strides{24, -1})) ==
        std::vector<int>{23, 22, 21});
  CHECK(cohort::flatten<0>(data.data(), every_dimension{}).count == 1);
  CHECK_THROWS_AS(cohort::flatten(data.data(), extents{2, 2}, strides{2, 12}), cohort::error);
}

TEST_CASE("buffers are in host memory unless a trait says otherwise") {
  static_assert(cohort::memory_space_of<vector&> == cohort::memory_space::host);
  const vector data;
  CHECK(cohort::memory_traits<vector>::locate(data).device == -1);
}
