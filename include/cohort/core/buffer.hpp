// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the verbs accept as data: the buffer concepts and the view that every buffer becomes.

#include <cohort/core/element.hpp>
#include <cohort/core/strided.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>  // also brings the range concepts, without the cost of <ranges>
#include <type_traits>
#include <utility>

namespace cohort {

/// Where memory is. Managed memory counts as device memory.
enum class memory_space { host, pinned, device, managed };

/// What a buffer tells about its memory; `producer` is opaque here (a stream, for device memory).
struct memory_location {
  memory_space space = memory_space::host;
  int device = -1;
  const void* producer = nullptr;
};

/// The customisation point for buffers that are not in host memory. Specialise it for the buffer
/// class, which has `data()` and `size()`; `space` is the static answer, locate() the complete one.
/// Where `space` is not host, `lease(buffer)` keeps the memory as long as what it returns lives
/// (null: it must outlive the operation), and `make(count, like)` makes an owner of `count`
/// elements beside a buffer, of the class `result`; that class may have `make(count, like, stream)`
/// too, which takes the memory in the order of another stream.
template <class B>
struct memory_traits {
  static constexpr memory_space space = memory_space::host;
  static constexpr memory_location locate(const B&) noexcept { return {}; }
};

/// The memory space of a buffer type, known at compile time.
template <class B>
inline constexpr memory_space memory_space_of = memory_traits<std::remove_cvref_t<B>>::space;

namespace detail {

template <class T>
concept element_or_const = element<std::remove_const_t<T>>;

/// The pointer behind a contiguous range, with the constness that the range grants.
template <class R>
using data_pointer_t = decltype(std::ranges::data(std::declval<R&>()));

// A range of elements. char arrays and the like are ranges; std::array is one too, so a lvalue
// std::array<double, 3> is a buffer of three doubles.
template <class R>
concept range_of_elements = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                            element_or_const<std::remove_pointer_t<data_pointer_t<R>>>;

template <class V>
inline constexpr bool is_strided_view = false;
template <class T>
inline constexpr bool is_strided_view<strided_view<T>> = true;
template <class T>
inline constexpr bool is_strided_view<buffer_view<T>> = true;

template <class V>
inline constexpr bool is_element_mdspan = false;
template <mdspan_like V>
inline constexpr bool is_element_mdspan<V> = element_or_const<typename V::element_type>;

template <class V>
concept strided =
    is_strided_view<std::remove_cvref_t<V>> || is_element_mdspan<std::remove_cvref_t<V>>;

template <class B>
concept scalar = std::is_lvalue_reference_v<B> && element<std::remove_cvref_t<B>> &&
                 !std::ranges::range<std::remove_reference_t<B>> && !strided<B>;

// An rvalue may be passed where the view survives the object: spans and the like.
template <class B>
concept borrowed_range_of_elements =
    std::ranges::borrowed_range<B> && range_of_elements<std::remove_reference_t<B>>;

template <class B>
concept borrowed_buffer = borrowed_range_of_elements<B> || strided<B> || scalar<B>;

template <class B>
inline constexpr bool is_off_host =
    memory_space_of<B> == memory_space::device || memory_space_of<B> == memory_space::managed;

template <class B>
using data_of_t = decltype(std::declval<B&>().data());
template <class B>
inline constexpr bool data_is_const = std::is_const_v<std::remove_pointer_t<data_of_t<B>>>;

struct view_maker {
  template <class B>
  static constexpr auto make(B&& buffer);
};

template <class B>
using viewed_t = decltype(view_maker::make(std::declval<std::remove_reference_t<B>&>()));

}  // namespace detail

/// Something to read elements from that outlives the call: a lvalue of a contiguous container or
/// array, a span, a strided view, a lvalue element. `B` is deduced as for a forwarding reference,
/// so that a temporary container, which would dangle, is not one.
template <class B>
concept readable_buffer = detail::borrowed_buffer<B> && !detail::is_off_host<B>;

/// A container passed as an rvalue: the operation owns it and hands it back. Recognised by being a
/// movable contiguous range whose constness is deep, as it is for owners and is not for views.
template <class B>
concept owned_buffer =
    std::is_object_v<B> && !std::is_const_v<B> && std::movable<B> && !detail::is_off_host<B> &&
    !detail::strided<B> && !std::ranges::borrowed_range<B> && detail::range_of_elements<B> &&
    detail::range_of_elements<const B> &&
    !std::is_const_v<std::remove_pointer_t<detail::data_pointer_t<B>>> &&
    std::is_const_v<std::remove_pointer_t<detail::data_pointer_t<const B>>>;

/// The view of a buffer. Free: no call into MPI, no allocation. For an owned buffer, pass the
/// lvalue where it has been moved to.
template <class B>
  requires readable_buffer<B&&> || readable_buffer<B> || owned_buffer<std::remove_cvref_t<B>>
[[nodiscard]] constexpr auto view_of(B&& buffer) {
  return detail::view_maker::make(buffer);
}

/// A readable buffer whose elements may be written.
template <class B>
concept writable_buffer =
    readable_buffer<B> &&
    !std::is_const_v<std::remove_pointer_t<decltype(detail::viewed_t<B>::data)>>;

/// What a verb takes to read from or to write to: borrowed or owned.
template <class B>
concept input_buffer = readable_buffer<B> || owned_buffer<B>;
template <class B>
concept output_buffer = writable_buffer<B> || owned_buffer<B>;

/// A buffer of a class whose `memory_traits` say that it is on a device: `data()` and `size()` of
/// elements, its place, its lease, and an owner like it. Verbs of MPI take them where who knows
/// that memory carries it to the host (core/carrier.hpp); named operations do, where the
/// coordinator has a backend for devices.
template <class B>
concept located_buffer = detail::is_off_host<B> && requires(std::remove_reference_t<B>& buffer) {
  requires element<std::remove_const_t<std::remove_pointer_t<decltype(buffer.data())>>>;
  { buffer.size() } -> std::convertible_to<std::size_t>;
  { memory_traits<std::remove_cvref_t<B>>::locate(buffer) } -> std::same_as<memory_location>;
  {
    memory_traits<std::remove_cvref_t<B>>::lease(buffer)
  } -> std::convertible_to<std::shared_ptr<const void>>;
  typename memory_traits<std::remove_cvref_t<B>>::result;
};
/// One that can be written.
template <class B>
concept writable_located_buffer =
    located_buffer<B> && !detail::data_is_const<std::remove_reference_t<B>>;
/// One whose lease keeps the memory: an owner, recognised as `owned_buffer` is, or a lvalue of it.
template <class B>
concept leased_buffer = located_buffer<B> && !detail::data_is_const<std::remove_cvref_t<B>> &&
                        detail::data_is_const<const std::remove_cvref_t<B>>;
/// An owner passed as an rvalue: the operation has it meanwhile.
template <class B>
concept owned_located_buffer =
    leased_buffer<B> && std::is_object_v<B> && !std::is_const_v<B> && std::movable<B>;

namespace detail {
template <class B>
struct element_of {
  using type = std::remove_pointer_t<decltype(viewed_t<std::remove_reference_t<B>&>::data)>;
};
template <located_buffer B>
struct element_of<B> {
  using type = std::remove_pointer_t<data_of_t<std::remove_reference_t<B>>>;
};
}  // namespace detail

/// The element type of a buffer, without const.
template <class B>
  requires(input_buffer<B> || located_buffer<B>)
using element_of_t = std::remove_const_t<typename detail::element_of<B>::type>;

template <class B>
constexpr auto detail::view_maker::make(B&& buffer) {
  using object = std::remove_cvref_t<B>;
  if constexpr (mdspan_like<object>) {
    return flatten(buffer);
  } else if constexpr (requires { buffer.view(); } && is_strided_view<object>) {
    return buffer.view();
  } else if constexpr (is_strided_view<object>) {
    return object(buffer);
  } else if constexpr (std::ranges::range<std::remove_reference_t<B>>) {
    return contiguous_view(std::ranges::data(buffer),
                           static_cast<std::size_t>(std::ranges::size(buffer)));
  } else {
    return contiguous_view(&buffer, 1);
  }
}

}  // namespace cohort
