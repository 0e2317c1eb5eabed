// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `core/wire.hpp` that depend on the types that travel.

#include <cohort/core/copy.hpp>
#include <cohort/core/wire.hpp>

namespace cohort::wire {

namespace detail {

template <class T>
inline constexpr bool is_vector = false;
template <class T, class A>
inline constexpr bool is_vector<std::vector<T, A>> = true;
using cohort::detail::is_std_array;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_tuple = false;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;
template <class T, class U>
inline constexpr bool is_tuple<std::pair<T, U>> = true;

template <class T>
concept container = requires(T& values) {
  typename T::value_type;
  values.begin();
  values.end();
  values.size();
  values.clear();
};

template <class T>
inline constexpr bool always_false = false;

/// The bytes of a number in the order of the wire.
template <number T>
[[nodiscard]] constexpr std::array<std::byte, sizeof(T)> to_wire(T value) noexcept {
  auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  if constexpr (std::endian::native == std::endian::big) {
    for (std::size_t i = 0; i < sizeof(T) / 2; ++i) std::swap(bytes[i], bytes[sizeof(T) - 1 - i]);
  }
  return bytes;
}

/// Whether a contiguous sequence of these is its own image on the wire.
template <class T>
inline constexpr bool copied_whole = false;
template <number T>
inline constexpr bool copied_whole<T> = std::endian::native == std::endian::little;
template <>
inline constexpr bool copied_whole<std::byte> = true;
template <class T, std::size_t N>
inline constexpr bool copied_whole<std::array<T, N>> = (N > 0 && copied_whole<T>);

/// Converts to the bases of T and to nothing else.
template <class T>
struct base_of {
  template <class Base>
    requires(std::is_base_of_v<Base, T> && !std::same_as<Base, T>)
  operator Base() const noexcept;
};

inline constexpr std::size_t member_limit = 12;

/// How many members an aggregate has: so many times {} initialises it, whatever their types are.
/// More than member_limit if there are more.
template <class T>
[[nodiscard]] consteval std::size_t member_count() noexcept {
  // clang-format off
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 13;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 12;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 11;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 10;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 9;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}}; }) return 8;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}}; }) return 7;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}}; }) return 6;
  else if constexpr (requires { T{{}, {}, {}, {}, {}}; }) return 5;
  else if constexpr (requires { T{{}, {}, {}, {}}; }) return 4;
  else if constexpr (requires { T{{}, {}, {}}; }) return 3;
  else if constexpr (requires { T{{}, {}}; }) return 2;
  else if constexpr (requires { T{{}}; }) return 1;
  else return 0;
  // clang-format on
}

/// A class whose members travel one by one without being named: no base, not too many of them.
template <class T>
[[nodiscard]] consteval bool is_plain_aggregate() noexcept {
  if constexpr (!std::is_aggregate_v<T> || !std::is_class_v<T>) {
    return false;
  } else if constexpr (requires { T{base_of<T>{}}; }) {
    return false;
  } else {
    return member_count<T>() <= member_limit && (member_count<T>() > 0 || std::is_empty_v<T>);
  }
}

/// Calls the function with the members of a plain aggregate.
template <class T, class Function>
void with_members(T& value, Function function) {
  constexpr std::size_t count = member_count<std::remove_const_t<T>>();
  if constexpr (count == 0) {
    function();
  } else if constexpr (count == 1) {
    auto& [a] = value;
    function(a);
  } else if constexpr (count == 2) {
    auto& [a, b] = value;
    function(a, b);
  } else if constexpr (count == 3) {
    auto& [a, b, c] = value;
    function(a, b, c);
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = value;
    function(a, b, c, d);
  } else if constexpr (count == 5) {
    auto& [a, b, c, d, e] = value;
    function(a, b, c, d, e);
  } else if constexpr (count == 6) {
    auto& [a, b, c, d, e, f] = value;
    function(a, b, c, d, e, f);
  } else if constexpr (count == 7) {
    auto& [a, b, c, d, e, f, g] = value;
    function(a, b, c, d, e, f, g);
  } else if constexpr (count == 8) {
    auto& [a, b, c, d, e, f, g, h] = value;
    function(a, b, c, d, e, f, g, h);
  } else if constexpr (count == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = value;
    function(a, b, c, d, e, f, g, h, i);
  } else if constexpr (count == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = value;
    function(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (count == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
    function(a, b, c, d, e, f, g, h, i, j, k);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
    function(a, b, c, d, e, f, g, h, i, j, k, l);
  }
}

// A pair<const Key, T> of a map is read as a pair<Key, T>.
template <class T>
struct element_of {
  using type = T;
};
template <class T, class U>
struct element_of<std::pair<const T, U>> {
  using type = std::pair<T, U>;
};

}  // namespace detail

inline void writer::long_varint(std::uint64_t value) {
  while (value >= 0x80) {
    byte(static_cast<std::uint8_t>(value | 0x80U));
    value >>= 7U;
  }
  byte(static_cast<std::uint8_t>(value));
}

template <class T>
void writer::put(const T& value) {
  if constexpr (std::same_as<T, bool>) {
    byte(value ? 1 : 0);
  } else if constexpr (std::same_as<T, std::byte>) {
    out_->push_back(value);
  } else if constexpr (detail::number<T>) {
    raw(detail::to_wire(value));
  } else if constexpr (std::is_enum_v<T>) {
    put(static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::same_as<T, std::string>) {
    text(value);
  } else if constexpr (detail::is_std_array<T>) {
    if constexpr (detail::copied_whole<T>) {
      raw(std::as_bytes(std::span(value)));
    } else {
      for (const auto& element : value) put(element);
    }
  } else if constexpr (detail::is_optional<T>) {
    put(value.has_value());
    if (value) put(*value);
  } else if constexpr (detail::is_tuple<T>) {
    std::apply([this](const auto&... parts) { (this->put(parts), ...); }, value);
  } else if constexpr (detail::has_fields<T>) {
    wire_fields(*this, const_cast<T&>(value));  // NOLINT: one function for both directions
  } else if constexpr (detail::container<T>) {
    varint(value.size());
    if constexpr (detail::is_vector<T> && detail::copied_whole<typename T::value_type>) {
      raw(std::as_bytes(std::span(value)));
    } else {
      for (const typename T::value_type& element : value) put(element);
    }
  } else if constexpr (detail::is_plain_aggregate<T>()) {
    detail::with_members(value, [this](const auto&... members) { (this->member(members), ...); });
  } else {
    static_assert(detail::always_false<T>,
                  "this type cannot travel; give it wire_fields(Archive&, T&)");
  }
}

template <class T>
void writer::member(const T& value) {
  if constexpr (std::is_array_v<T>) {
    for (const auto& element : value) member(element);
  } else {
    put(value);
  }
}

inline void reader::fail(wire_errc why) noexcept {
  if (ok()) error_ = why;
  at_ = end_;
}

inline std::uint64_t reader::varint() noexcept {
  if (at_ != end_ && (static_cast<std::uint8_t>(*at_) & 0x80U) == 0) {
    return static_cast<std::uint8_t>(*at_++);
  }
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const std::uint64_t next = byte();
    value |= (next & 0x7fU) << shift;
    if ((next & 0x80U) == 0) {
      if (shift == 63 && next > 1) break;
      return value;
    }
  }
  fail(wire_errc::bad_value);
  return 0;
}

inline std::uint64_t reader::varint_up_to(std::uint64_t most) noexcept {
  const std::uint64_t value = varint();
  if (value <= most) return value;
  fail(wire_errc::bad_value);
  return 0;
}

inline std::size_t reader::count(std::size_t least_bytes) noexcept {
  const std::uint64_t value = varint();
  if (value <= left() / least_bytes) return static_cast<std::size_t>(value);
  fail(wire_errc::too_long);
  return 0;
}

inline std::span<const std::byte> reader::raw(std::size_t size) noexcept {
  if (size > left()) {
    fail(wire_errc::truncated);
    return {};
  }
  const std::span<const std::byte> bytes(at_, size);
  at_ += size;
  return bytes;
}

inline std::uint8_t reader::byte() noexcept {
  if (at_ == end_) {
    fail(wire_errc::truncated);
    return 0;
  }
  return static_cast<std::uint8_t>(*at_++);
}

inline std::string_view reader::text() noexcept {
  const auto bytes = raw(count());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};  // NOLINT
}

template <detail::number T>
void reader::number(T& value) noexcept {
  std::array<std::byte, sizeof(T)> bytes{};
  const auto from = raw(sizeof(T));
  if (from.size() == sizeof(T)) std::memcpy(bytes.data(), from.data(), sizeof(T));
  if constexpr (std::endian::native == std::endian::big) {
    for (std::size_t i = 0; i < sizeof(T) / 2; ++i) std::swap(bytes[i], bytes[sizeof(T) - 1 - i]);
  }
  value = std::bit_cast<T>(bytes);
}

// A vector grows as its elements arrive: a length alone reserves no more than one object per byte
// that is left.
template <class Container>
void reader::container(Container& values) {
  using element = typename detail::element_of<typename Container::value_type>::type;
  values.clear();
  if constexpr (detail::is_vector<Container> && detail::copied_whole<element>) {
    const auto bytes = raw(count(sizeof(element)) * sizeof(element));
    values.resize(bytes.size() / sizeof(element));
    copy_bytes(values.data(), bytes.data(), bytes.size());
  } else {
    std::uint64_t size = 0;
    if constexpr (std::is_empty_v<element>) {
      size = varint_up_to(empty_left_);
      empty_left_ -= size;
    } else {
      size = count();
    }
    for (std::uint64_t i = 0; i < size && ok(); ++i) {
      element next{};
      get(next);
      if (!ok()) break;
      values.insert(values.end(), std::move(next));
    }
  }
}

template <class T>
void reader::get(T& value) {
  if constexpr (std::same_as<T, bool>) {
    value = varint_up_to(1) != 0;
  } else if constexpr (std::same_as<T, std::byte>) {
    value = static_cast<std::byte>(byte());
  } else if constexpr (detail::number<T>) {
    number(value);
  } else if constexpr (std::is_enum_v<T>) {
    value = static_cast<T>(get<std::underlying_type_t<T>>());
  } else if constexpr (std::same_as<T, std::string>) {
    value = text();
  } else if constexpr (detail::is_std_array<T>) {
    if constexpr (detail::copied_whole<T>) {
      const auto bytes = raw(sizeof(T));
      value = T{};
      copy_bytes(value.data(), bytes.data(), bytes.size());
    } else {
      for (auto& element : value) get(element);
    }
  } else if constexpr (detail::is_optional<T>) {
    if (get<bool>()) {
      get(value.emplace());
    } else {
      value.reset();
    }
  } else if constexpr (detail::is_tuple<T>) {
    std::apply([this](auto&... parts) { (this->get(parts), ...); }, value);
  } else if constexpr (detail::has_fields<T>) {
    if (++depth_ > depth_limit) fail(wire_errc::too_deep);
    if (ok()) wire_fields(*this, value);
    --depth_;
  } else if constexpr (detail::container<T>) {
    container(value);
  } else if constexpr (detail::is_plain_aggregate<T>()) {
    if (++depth_ > depth_limit) fail(wire_errc::too_deep);
    if (ok()) {
      detail::with_members(value, [this](auto&... members) { (this->member(members), ...); });
    }
    --depth_;
  } else {
    static_assert(detail::always_false<T>,
                  "this type cannot travel; give it wire_fields(Archive&, T&)");
  }
}

template <class T>
void reader::member(T& value) {
  if constexpr (std::is_array_v<T>) {
    for (auto& element : value) member(element);
  } else {
    get(value);
  }
}

}  // namespace cohort::wire
