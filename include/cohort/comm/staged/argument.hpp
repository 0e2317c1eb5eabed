// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A buffer argument in device memory. What enters this room is the body of a verb with such
/// arguments; what leaves it is an operation that is posted when a carrier has brought the elements
/// to the host, and ends when they are back.

#include <cohort/comm/argument.hpp>
#include <cohort/core/carrier.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::comm {

/// Borrowed, or owned and handed back, as other arguments. Its elements are where the carrier of
/// the operation has brought them; before that there is no `view()`.
template <located_buffer B>
class argument<B> {
  using object = std::remove_cvref_t<B>;
  using element = typename cohort::detail::element_of<B>::type;
  static constexpr bool comes_back = owned_located_buffer<B>;

 public:
  static constexpr bool is_staged = true;
  using carriers = carrier_of<memory_space_of<B>>;
  /// Nothing is borrowed where a lease keeps the memory.
  static constexpr bool owned = leased_buffer<B>;
  using value_type = std::remove_const_t<element>;
  using view_type = buffer_view<element>;

  explicit argument(std::remove_reference_t<B>& buffer)
      : stage_{data_of(buffer), buffer.size() * sizeof(element),
               memory_traits<object>::locate(buffer), memory_traits<object>::lease(buffer)},
        kept_(keep(buffer)) {}
  argument(argument&& other) noexcept
      : stage_(std::move(other.stage_)), kept_(std::move(other.kept_)) {}

  [[nodiscard]] view_type view() const noexcept {
    return contiguous_view(reinterpret_cast<element*>(stage_.at), count());
  }
  [[nodiscard]] std::size_t count() const noexcept { return bytes() / sizeof(element); }
  [[nodiscard]] std::size_t bytes() const noexcept { return stage_.bytes; }
  [[nodiscard]] stage& where() noexcept { return stage_; }
  [[nodiscard]] const stage& where() const noexcept { return stage_; }

  /// What the completion gives back: nothing, or the container.
  [[nodiscard]] auto take() {
    if constexpr (comes_back) {
      return std::tuple<object>(std::move(kept_));
    } else {
      return std::tuple<>();
    }
  }

 private:
  struct nothing {};
  static std::byte* data_of(std::remove_reference_t<B>& buffer) noexcept {
    return reinterpret_cast<std::byte*>(const_cast<value_type*>(buffer.data()));
  }
  static decltype(auto) keep(std::remove_reference_t<B>& buffer) {
    if constexpr (comes_back) {
      return std::move(buffer);
    } else {
      return nothing();
    }
  }

  stage stage_;
  [[no_unique_address]] std::conditional_t<comes_back, object, nothing> kept_;
};

}  // namespace cohort::comm
