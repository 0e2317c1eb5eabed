// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The one serializer: values to bytes and back, little-endian, bounded by the bytes there
/// are.
///
/// Everything that travels between ranks as an object goes through here: the messages of the
/// coordinator, arguments and results of remote calls, what broadcast_object carries.

#include <cohort/core/config.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {

/// What is wrong with bytes that do not decode. The category's name is "cohort.wire".
enum class wire_errc {
  truncated = 1,  ///< the bytes end before the value does
  too_long,       ///< a length is larger than the bytes that are left can hold
  bad_value,      ///< a value outside its range: a bool that is 2, a number that overflows
  trailing,       ///< bytes are left after the value
  too_deep,       ///< objects within objects beyond the limit
};

/// The category of wire_errc.
const std::error_category& wire_category() noexcept;
std::error_code make_error_code(wire_errc code) noexcept;

}  // namespace cohort

template <>
struct std::is_error_code_enum<cohort::wire_errc> : std::true_type {};

namespace cohort::wire {

class writer;
class reader;

namespace detail {

template <class T>
concept number = (std::integral<T> || std::floating_point<T>)&&!std::same_as<T, bool> &&
                 !std::same_as<T, long double>;

template <class T>
concept has_fields = requires(writer& out, T& value) {
  wire_fields(out, value);
};

}  // namespace detail

/// Appends values to a vector of bytes, whose memory is reused from message to message.
///
/// `put` takes numbers, bool, enumerations, std::string, std::vector, std::array, std::pair,
/// std::tuple, std::optional, containers of these that have `begin`, `end` and `size` (maps, sets),
/// and classes with a function found by argument-dependent lookup that serves both directions:
/// `template <class Archive> void wire_fields(Archive& archive, particle& p)` with the body
/// `archive(p.position, p.mass);`.
class writer {
 public:
  static constexpr bool reads = false;

  explicit writer(std::vector<std::byte>& out) noexcept : out_(&out) {}

  [[nodiscard]] std::size_t size() const noexcept { return out_->size(); }

  /// A number in seven bits a byte: small ones are short.
  void varint(std::uint64_t value);
  /// The same for numbers that may be negative.
  void signed_varint(std::int64_t value) {
    varint((static_cast<std::uint64_t>(value) << 1U) ^ static_cast<std::uint64_t>(value >> 63));
  }
  /// Bytes as they are, without their length.
  void raw(std::span<const std::byte> bytes) {
    out_->insert(out_->end(), bytes.begin(), bytes.end());
  }
  void byte(std::uint8_t value) { out_->push_back(static_cast<std::byte>(value)); }
  /// A text with its length.
  void text(std::string_view value) {
    varint(value.size());
    raw(std::as_bytes(std::span(value.data(), value.size())));
  }

  template <class T>
  void put(const T& value);
  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }

 private:
  std::vector<std::byte>* out_;
};

/// Reads values from bytes. An error sticks: after it everything reads as zero or empty, and
/// `error` tells the first. It never reads beyond the bytes, and never allocates more than a
/// small multiple of them (the size of the largest element of a container per byte), whatever
/// the lengths in the bytes say.
class reader {
 public:
  static constexpr bool reads = true;
  static constexpr int depth_limit = 64;  ///< objects within objects

  explicit reader(std::span<const std::byte> bytes) noexcept
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  [[nodiscard]] std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }
  [[nodiscard]] bool ok() const noexcept { return error_ == wire_errc{}; }
  [[nodiscard]] std::error_code error() const noexcept {
    return ok() ? std::error_code{} : make_error_code(error_);
  }
  /// Makes the reader fail: for the values' own rules, checked by who reads.
  void fail(wire_errc why) noexcept;

  [[nodiscard]] std::uint64_t varint() noexcept;
  [[nodiscard]] std::int64_t signed_varint() noexcept {
    const std::uint64_t value = varint();
    return static_cast<std::int64_t>((value >> 1U) ^ (~(value & 1U) + 1));
  }
  /// A varint that must not exceed `most`.
  [[nodiscard]] std::uint64_t varint_up_to(std::uint64_t most) noexcept;
  /// A count of elements that take at least `least_bytes` each, so that no more can follow.
  [[nodiscard]] std::size_t count(std::size_t least_bytes = 1) noexcept;
  /// The next bytes, still where they are; empty if there are not so many.
  [[nodiscard]] std::span<const std::byte> raw(std::size_t size) noexcept;
  [[nodiscard]] std::uint8_t byte() noexcept;
  /// A text, still where its bytes are.
  [[nodiscard]] std::string_view text() noexcept;

  template <class T>
  void get(T& value);
  template <class T>
  [[nodiscard]] T get() {
    T value{};
    get(value);
    return value;
  }
  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }

 private:
  template <detail::number T>
  void number(T& value) noexcept;
  template <class Container>
  void container(Container& values);

  const std::byte* at_;
  const std::byte* end_;
  wire_errc error_{};
  int depth_ = 0;
};

/// Something that `writer::put` takes and `reader::get` gives back.
template <class T>
concept value = requires(writer& out, reader& in, T& object) {
  out.put(std::as_const(object));
  in.get(object);
};

/// A value as bytes.
template <class T>
[[nodiscard]] std::vector<std::byte> encode(const T& value) {
  std::vector<std::byte> bytes;
  writer(bytes).put(value);
  return bytes;
}

/// The value that the bytes hold, all of them. Throws std::system_error with a wire_errc.
template <class T>
[[nodiscard]] T decode(std::span<const std::byte> bytes) {
  reader in(bytes);
  T value = in.get<T>();
  if (in.ok() && in.left() != 0) in.fail(wire_errc::trailing);
  if (!in.ok()) throw std::system_error(in.error());
  return value;
}

// ---- implementation --------------------------------------------------------------------------

namespace detail {

template <class T>
inline constexpr bool is_vector = false;
template <class T, class A>
inline constexpr bool is_vector<std::vector<T, A>> = true;
template <class T>
inline constexpr bool is_std_array = false;
template <class T, std::size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;
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

inline void writer::varint(std::uint64_t value) {
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
    for (const auto& element : value) put(element);
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
  } else {
    static_assert(detail::always_false<T>,
                  "this type cannot travel; give it wire_fields(Archive&, T&)");
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
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    const std::size_t size = count();
    for (std::size_t i = 0; i < size && ok(); ++i) {
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
    for (auto& element : value) get(element);
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
  } else {
    static_assert(detail::always_false<T>,
                  "this type cannot travel; give it wire_fields(Archive&, T&)");
  }
}

}  // namespace cohort::wire

namespace cohort {

namespace detail {

class wire_category_type final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "cohort.wire"; }
  [[nodiscard]] std::string message(int value) const override {
    switch (static_cast<wire_errc>(value)) {
      case wire_errc::truncated:
        return "the bytes end before the value does";
      case wire_errc::too_long:
        return "a length is larger than the bytes that are left can hold";
      case wire_errc::bad_value:
        return "a value is outside its range";
      case wire_errc::trailing:
        return "bytes are left after the value";
      case wire_errc::too_deep:
        return "objects are nested beyond the limit";
    }
    return "unknown error of the wire format";
  }
};

}  // namespace detail

inline const std::error_category& wire_category() noexcept {
  static const detail::wire_category_type category;
  return category;
}

inline std::error_code make_error_code(wire_errc code) noexcept {
  return {static_cast<int>(code), wire_category()};
}

}  // namespace cohort
