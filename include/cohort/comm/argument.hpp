// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What a body keeps of the arguments of a verb, and the words for arguments that do not fit.

#include <cohort/core/buffer.hpp>
#include <cohort/core/devices.hpp>
#include <cohort/core/token.hpp>

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort::comm {

/// A compile error where a verb is called under another token than `cohort::blocking` in a file
/// that has no other.
template <class... Call>
consteval void require_tokens() {
  constexpr bool has_tokens = cohort::detail::has_tokens<cohort::detail::with_asio, Call...>;
  constexpr bool blocks = (std::same_as<std::remove_cvref_t<Call>, blocking_t> || ...);
  static_assert(
      has_tokens || blocks,
      "only cohort::blocking is a token here: for co_await, and for any other token, include "
      "<cohort/comm.hpp>");
}

template <class B>
concept any_buffer = verb_input<B> || owned_buffer<std::remove_reference_t<B>>;

/// A compile error where a verb is given something else for its first buffer. Says whether it is
/// one. `Call` are all arguments: compilers tell of the same mistake with the same types once.
template <class B, class... Call>
consteval bool require_buffer() {
  constexpr bool is_buffer = any_buffer<B>;  // a name: the error says no more than the text
  static_assert(is_buffer,
                "the first argument is no buffer: pass a contiguous range or scalar lvalue, a "
                "span, a strided view, or a container rvalue (a temporary would dangle)");
  return is_buffer;
}

namespace detail {
/// What a completion gives back of an argument: nothing, or the container.
template <bool Owned, class Container, class Kept>
[[nodiscard]] auto back_to_caller(Kept& kept) {
  if constexpr (Owned) {
    return std::tuple<Container>(std::move(kept));
  } else {
    return std::tuple<>();
  }
}

template <class B>
struct kept_of {
  using to_write = B;
  using to_read = B;
};
template <readable_buffer B>
struct kept_of<B> {
  using to_write = decltype(view_of(std::declval<std::remove_reference_t<B>&>()));
  using to_read = buffer_view<const std::remove_pointer_t<decltype(to_write::data)>>;
};
}  // namespace detail

/// What a body keeps of a parameter `B&&` that it writes, or only reads: of borrowed memory of the
/// host a view, so that bodies differ by the type of the elements and not by that of the container.
template <class B>
using kept = typename detail::kept_of<B>::to_write;
template <class B>
using kept_to_read = typename detail::kept_of<B>::to_read;

/// Keeps what a verb was given for a parameter `B&&`: the view of a borrowed buffer, or the
/// container itself if it was passed as an rvalue. An owned container lies in the operation, which
/// does not move while MPI works, so take `view()` at the post, not before.
template <class B>
class argument {
 public:
  static constexpr bool is_staged = false;
  static constexpr bool owned = owned_buffer<B>;
  using value_type = element_of_t<B>;
  using view_type = decltype(view_of(std::declval<std::remove_reference_t<B>&>()));

  /// Of `B`, or of a buffer of which `B` is the view.
  template <class Buffer>
    requires(!std::same_as<std::remove_const_t<Buffer>, argument>)
  explicit argument(Buffer& buffer) : kept_(keep(buffer)) {}

  [[nodiscard]] view_type view() noexcept {
    if constexpr (owned) {
      return view_of(kept_);
    } else {
      return kept_;
    }
  }
  /// Elements; the same for an owned container before and after it is moved in.
  [[nodiscard]] std::size_t count() const noexcept {
    if constexpr (owned) {
      return view_of(const_cast<B&>(kept_)).count;
    } else {
      return kept_.count;
    }
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return count() * sizeof(value_type); }

  [[nodiscard]] auto take() { return detail::back_to_caller<owned, B>(kept_); }

 private:
  template <class Buffer>
  static decltype(auto) keep(Buffer& buffer) {
    if constexpr (owned) {
      return std::move(buffer);
    } else {
      return view_of(buffer);
    }
  }
  std::conditional_t<owned, B, view_type> kept_;
};

/// A buffer in device memory. Borrowed, or owned and handed back, as other arguments. Its elements
/// are where the carrier of the operation has brought them; before that there is no `view()`.
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
      : place_{data_of(buffer), buffer.size() * sizeof(element),
               memory_traits<object>::locate(buffer), memory_traits<object>::lease(buffer)},
        kept_(keep(buffer)) {}
  argument(argument&& other) noexcept
      : place_(std::move(other.place_)), kept_(std::move(other.kept_)) {}

  [[nodiscard]] view_type view() const noexcept {
    return contiguous_view(reinterpret_cast<element*>(place_.at), count());
  }
  [[nodiscard]] std::size_t count() const noexcept { return bytes() / sizeof(element); }
  [[nodiscard]] std::size_t bytes() const noexcept { return place_.bytes; }
  [[nodiscard]] staged_buffer& where() noexcept { return place_; }
  [[nodiscard]] const staged_buffer& where() const noexcept { return place_; }

  [[nodiscard]] auto take() { return detail::back_to_caller<comes_back, object>(kept_); }

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

  staged_buffer place_;
  [[no_unique_address]] std::conditional_t<comes_back, object, nothing> kept_;
};

}  // namespace cohort::comm
