// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the verbs accept as data: the buffer concepts, the view that every buffer becomes,
/// a strided view to build one, and the customisation point for classes of other libraries.

#include <cohort/core/copy.hpp>
#include <cohort/core/element.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>  // also brings the range concepts, without the cost of <ranges>
#include <type_traits>
#include <utility>

namespace cohort {

/// The one form every buffer argument is turned into: `count` elements in blocks of `block` that
/// start every `stride` elements. Contiguous data is a single block. Borrows; knows no owner.
template <class T>
struct buffer_view {
  T* data = nullptr;
  std::size_t count = 0;
  std::size_t block = 0;
  std::ptrdiff_t stride = 0;

  /// Whether the elements lie side by side.
  [[nodiscard]] constexpr bool contiguous() const noexcept {
    return block >= count || stride == static_cast<std::ptrdiff_t>(block);
  }
  /// The bytes of all elements, without the gaps.
  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return count * sizeof(T); }
  /// How many blocks there are.
  [[nodiscard]] constexpr std::size_t blocks() const noexcept {
    return block == 0 ? 0 : count / block;
  }
  constexpr operator buffer_view<const T>() const noexcept  // NOLINT(*-explicit-*)
    requires(!std::is_const_v<T>)
  {
    return {data, count, block, stride};
  }
};

/// A view of `count` elements that lie side by side.
template <class T>
[[nodiscard]] constexpr buffer_view<T> contiguous_view(T* data, std::size_t count) noexcept {
  return {data, count, count, static_cast<std::ptrdiff_t>(count)};
}

/// Blocks of elements at a regular distance, for example a column or a rectangle of a row-major
/// matrix: `strided_view(&m[0][j], rows, 1, columns)`. A buffer like any other; verbs transfer it
/// by a derived datatype, and reductions pack it.
template <class T>
class strided_view {
 public:
  /// `blocks` blocks of `block` elements whose first elements are `stride` elements apart.
  constexpr strided_view(T* data, std::size_t blocks, std::size_t block,
                         std::ptrdiff_t stride) noexcept
      : view_{data, blocks * block, block, stride} {}

  [[nodiscard]] constexpr T* data() const noexcept { return view_.data; }
  /// The number of elements in all blocks together.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return view_.count; }
  [[nodiscard]] constexpr std::size_t blocks() const noexcept { return view_.blocks(); }
  [[nodiscard]] constexpr std::size_t block() const noexcept { return view_.block; }
  [[nodiscard]] constexpr std::ptrdiff_t stride() const noexcept { return view_.stride; }
  [[nodiscard]] constexpr buffer_view<T> view() const noexcept { return view_; }

 private:
  buffer_view<T> view_;
};

/// Copies the elements of a view side by side to `out`, in the order of the view.
template <class T>
void pack(buffer_view<T> from, std::remove_const_t<T>* out);

/// The reverse: copies elements that lie side by side into a view.
template <class T>
  requires(!std::is_const_v<T>)
void unpack(const T* in, buffer_view<T> to);

template <class T>
void pack(buffer_view<T> from, std::remove_const_t<T>* out) {
  if (from.contiguous()) return copy_elements(out, from.data, from.count);
  for (std::size_t done = 0; done < from.count; done += from.block) {
    copy_elements(out, from.data, from.block);
    out += from.block;
    from.data += from.stride;
  }
}

template <class T>
  requires(!std::is_const_v<T>)
void unpack(const T* in, buffer_view<T> to) {
  if (to.contiguous()) return copy_elements(to.data, in, to.count);
  for (std::size_t done = 0; done < to.count; done += to.block) {
    copy_elements(to.data, in, to.block);
    in += to.block;
    to.data += to.stride;
  }
}

/// The customisation point for classes that are no contiguous ranges: matrices, views of several
/// dimensions. Specialise it for the class; every verb then takes its objects.
///
///     template <>
///     struct cohort::buffer_traits<grid> {
///       static constexpr bool owns = true;       // copies and moves carry the elements
///       static auto view(auto& g) noexcept {     // of grid& and const grid&
///         return cohort::contiguous_view(g.cells(), g.width() * g.height());
///       }
///     };
///
/// `view` gives a buffer_view: the pointer, whose constness says whether the elements may be
/// written, their count, and their blocks and stride; core/flatten.hpp makes one from dimensions.
/// `owns` says what an rvalue is. If false, it is a view of elements that are elsewhere: the
/// operation borrows them. If true, the operation has the rvalue moved in, asks for its view there,
/// and hands it back; for that `view` must be noexcept and the class have a default constructor, or
/// an rvalue is refused. The traits are asked before the class is taken for a range. The headers in
/// cohort/adapters/ have them for mdspan, Eigen and Kokkos.
template <class B>
struct buffer_traits {};

template <class T>
struct buffer_traits<buffer_view<T>> {
  static constexpr bool owns = false;
  static constexpr buffer_view<T> view(const buffer_view<T>& view) noexcept { return view; }
};

template <class T>
struct buffer_traits<strided_view<T>> {
  static constexpr bool owns = false;
  static constexpr buffer_view<T> view(const strided_view<T>& view) noexcept { return view.view(); }
};

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

/// What buffer_traits give for an object, which may be const.
template <class B>
using described_view_t = decltype(buffer_traits<std::remove_cv_t<B>>::view(std::declval<B&>()));

template <class B>
concept has_traits = requires {
  { buffer_traits<std::remove_cv_t<B>>::owns } -> std::convertible_to<bool>;
  requires std::same_as<described_view_t<B>,
                        buffer_view<std::remove_pointer_t<decltype(described_view_t<B>::data)>>>;
};
template <class B>
concept described =
    has_traits<B> && element_or_const<std::remove_pointer_t<decltype(described_view_t<B>::data)>>;

/// Whether an rvalue of the class, which is described, is a view.
template <class B>
concept described_as_view = described<B> && !buffer_traits<std::remove_cv_t<B>>::owns;

template <class B>
concept scalar = std::is_lvalue_reference_v<B> && element<std::remove_cvref_t<B>> &&
                 !std::ranges::range<std::remove_reference_t<B>>;

// An rvalue may be passed where the view survives the object: spans and the like.
template <class B>
concept borrowed_range_of_elements =
    std::ranges::borrowed_range<B> && range_of_elements<std::remove_reference_t<B>>;

template <class B>
concept borrowed_buffer =
    (described<std::remove_reference_t<B>>
         ? std::is_lvalue_reference_v<B> || described_as_view<std::remove_reference_t<B>>
         : borrowed_range_of_elements<B> || scalar<B>);

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
/// array or of a class that has buffer_traits, a span or another view, a lvalue element. `B` is
/// deduced as for a forwarding reference, so that a temporary container, which would dangle, is not
/// one.
template <class B>
concept readable_buffer = detail::borrowed_buffer<B> && !detail::is_off_host<B>;

namespace detail {
// A range owns its elements where its constness is deep, as it is for owners and is not for views.
template <class B>
concept owner_by_constness =
    !std::ranges::borrowed_range<B> && range_of_elements<B> && range_of_elements<const B> &&
    !std::is_const_v<std::remove_pointer_t<data_pointer_t<B>>> &&
    std::is_const_v<std::remove_pointer_t<data_pointer_t<const B>>>;
template <class B>
concept described_as_owner =
    buffer_traits<B>::owns && std::default_initializable<B> &&
    noexcept(buffer_traits<B>::view(std::declval<B&>())) &&
    !std::is_const_v<std::remove_pointer_t<decltype(described_view_t<B>::data)>>;
}  // namespace detail

/// A container passed as an rvalue: the operation owns it and hands it back. A movable class whose
/// buffer_traits say that it owns elements, or a contiguous range whose constness is deep.
template <class B>
concept owned_buffer =
    std::is_object_v<B> && !std::is_const_v<B> && std::movable<B> && !detail::is_off_host<B> &&
    (detail::described<B> ? detail::described_as_owner<B> : detail::owner_by_constness<B>);

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
/// elements, its place, its lease, and an owner like it. Verbs of MPI take them where a
/// header that knows the memory says how it comes to the host (core/devices.hpp); named operations
/// do where the coordinator has a backend for devices.
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
  using object = std::remove_reference_t<B>;
  if constexpr (described<object>) {
    return buffer_traits<std::remove_cv_t<object>>::view(buffer);
  } else if constexpr (std::ranges::range<object>) {
    return contiguous_view(std::ranges::data(buffer),
                           static_cast<std::size_t>(std::ranges::size(buffer)));
  } else {
    return contiguous_view(&buffer, 1);
  }
}

}  // namespace cohort
