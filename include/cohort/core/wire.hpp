// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The one serializer: values to bytes and back, little-endian, bounded by the bytes there
/// are.
///
/// Everything that travels between ranks as an object goes through here: the messages of the
/// coordinator, arguments and results of remote calls, what broadcast_object carries.

#include <cohort/core/config.hpp>
#include <cohort/core/copy.hpp>
#include <cohort/core/element.hpp>

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
concept number = (std::integral<T> || std::floating_point<T>) && !std::same_as<T, bool> &&
                 !std::same_as<T, long double>;

template <class T>
concept has_fields = requires(writer& out, T& value) { wire_fields(out, value); };

}  // namespace detail

/// Appends values to a vector of bytes, whose memory is reused from message to message.
///
/// `put` takes numbers, bool, enumerations, std::string, std::vector, std::array, std::pair,
/// std::tuple, std::optional, containers of these that have `begin`, `end` and `size` (maps, sets),
/// aggregates of up to 12 members, arrays among them, without a base, and classes with a function
/// found by argument-dependent lookup that serves both directions:
/// `template <class Archive> void wire_fields(Archive& archive, particle& p)` with the body
/// `archive(p.position, p.mass);`. core/wire_std.hpp has more of the standard library.
class writer {
 public:
  static constexpr bool reads = false;

  explicit writer(std::vector<std::byte>& out) noexcept : out_(&out) {}

  [[nodiscard]] std::size_t size() const noexcept { return out_->size(); }

  /// A number in seven bits a byte: small ones are short.
  void varint(std::uint64_t value) {
    if (value >= 0x80) return long_varint(value);
    byte(static_cast<std::uint8_t>(value));
  }
  /// The same for numbers that may be negative.
  void signed_varint(std::int64_t value) {
    varint((static_cast<std::uint64_t>(value) << 1U) ^ static_cast<std::uint64_t>(value >> 63));
  }
  /// Bytes as they are, without their length.
  void raw(std::span<const std::byte> bytes) {
    if (bytes.size() > 64) {
      append_bytes(*out_, bytes);
    } else if (!bytes.empty()) {  // g++ 12 warns of inserting a few bytes
      const std::size_t end = out_->size();
      out_->resize(end + bytes.size());
      std::memcpy(out_->data() + end, bytes.data(), bytes.size());
    }
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
  void long_varint(std::uint64_t value);
  template <class T>
  void member(const T& value);

  std::vector<std::byte>* out_;
};

/// Reads values from bytes. An error sticks: after it everything reads as zero or empty, and
/// `error` tells the first. It never reads beyond the bytes, and never allocates more than a
/// small multiple of them (the size of the largest element of a container per byte), whatever
/// the lengths in the bytes say. Elements that take no bytes are counted instead.
class reader {
 public:
  static constexpr bool reads = true;
  static constexpr int depth_limit = 64;                                 ///< objects within objects
  static constexpr std::uint64_t empty_limit = std::uint64_t{1} << 20U;  ///< elements without bytes

  explicit reader(std::span<const std::byte> bytes) noexcept
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  [[nodiscard]] std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }
  [[nodiscard]] bool ok() const noexcept { return error_ == wire_errc{}; }
  [[nodiscard]] std::error_code error() const noexcept {
    return ok() ? std::error_code{} : make_error_code(error_);
  }
  /// Makes the reader fail: for rules of the values that only the code that reads them knows.
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
  template <class T>
  void member(T& value);

  const std::byte* at_;
  const std::byte* end_;
  wire_errc error_{};
  int depth_ = 0;
  std::uint64_t empty_left_ = empty_limit;
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

#include <cohort/core/detail/wire.ipp>
