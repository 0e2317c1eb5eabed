// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::serialized(x)`: an object of any type that core/wire.hpp takes, in the place of a
/// buffer; and how its bytes travel.

#include <cohort/core/config.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/type_name.hpp>
#include <cohort/core/wire.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {

/// A reference to an object that a verb serializes, or fills with what it receives. Made by
/// `serialized`.
template <class T>
class serialized_ref {
 public:
  serialized_ref(T& object, std::size_t limit) noexcept : object_(&object), limit_(limit) {}

  [[nodiscard]] T& object() const noexcept { return *object_; }
  /// The most bytes to be received.
  [[nodiscard]] std::size_t limit() const noexcept { return limit_; }

 private:
  T* object_;
  std::size_t limit_;
};

/// What may be sent in this way: what the serializer takes, core/wire.hpp. (With core/wire_std.hpp
/// more of the standard library, with core/wire_cereal.hpp what has functions for cereal.)
template <class T>
concept serializable = wire::value<std::remove_const_t<T>> && std::default_initializable<T> &&
                       std::movable<std::remove_const_t<T>>;

/// The bytes that an object may have, if a receiver says nothing else: 1 GiB.
inline constexpr std::size_t serialized_limit = std::size_t{1} << 30U;

/// An object for `send`, `recv` and `broadcast`: strings, maps, containers of containers, structs.
///
/// *Requires* the same type on both sides, in programs of the same compiler, and an object of the
/// receiver that can be written; it is assigned when all bytes are there and right, and else left
/// as it was. Its size need not be known before. A sender's object is read before the call returns.
/// *Errors*: of a receiver `errc::type_mismatch` if the bytes are of another type or of no object,
/// `errc::message_too_long` above `limit` bytes, a wire_errc if they are damaged. What the
/// serializer throws leaves the call of `send`. *Cost*: a copy on each side, and 8 bytes.
///
/// \code
/// std::map<std::string, std::vector<double>> weights;
/// co_await cohort::broadcast(world, cohort::serialized(weights), /*root*/ 0);
/// \endcode
template <class T>
  requires serializable<std::remove_reference_t<T>>
[[nodiscard]] auto serialized(T&& object, std::size_t limit = serialized_limit) noexcept {
  using type = std::conditional_t<std::is_lvalue_reference_v<T>, std::remove_reference_t<T>,
                                  const std::remove_reference_t<T>>;
  return serialized_ref<type>(object, limit);
}

namespace comm {

/// An object as it travels: the number of its type, and the archive of core/wire.hpp.
template <class T>
[[nodiscard]] std::vector<std::byte> encode_object(const T& object) {
  std::vector<std::byte> bytes;
  wire::writer out(bytes);
  out.put(cohort::detail::type_number<T>);
  out.put(object);
  return bytes;
}

/// The receiving end of an object: what bytes may come, and what becomes of them.
template <class T>
class object_end {
 public:
  explicit object_end(serialized_ref<T> to) noexcept : to_(&to.object()), limit_(to.limit()) {}

  [[nodiscard]] bool takes(std::size_t bytes) const noexcept { return bytes <= limit_; }
  /// Nobody waits for the object any more.
  void let_go() noexcept { to_ = nullptr; }

  /// Assigns the object, or returns what is wrong with the bytes.
  [[nodiscard]] std::error_code assign(std::span<const std::byte> bytes) {
    if (to_ == nullptr) return {};
    wire::reader in(bytes);
    const auto type = in.get<std::uint64_t>();
    if (!in.ok() || type != cohort::detail::type_number<T>) return errc::type_mismatch;
    try {
      *to_ = wire::decode<T>(bytes.last(in.left()));
    } catch (const std::system_error& failed) {
      return failed.code();
    } catch (const std::bad_alloc&) {
      return std::make_error_code(std::errc::not_enough_memory);
    } catch (const std::exception& failed) {  // of the functions of T
      what_ = failed.what();
      return wire_errc::bad_value;
    } catch (...) {
      return wire_errc::bad_value;
    }
    return {};
  }

  void explain(failure_text& text, std::size_t bytes) const {
    text.with("type", cohort::detail::type_name<T>()).with("message.bytes", bytes);
    if (!takes(bytes)) text.with("limit", limit_);
    if (!what_.empty()) text.note(what_);
  }

 private:
  T* to_;
  std::size_t limit_;
  std::string what_;
};

}  // namespace comm
}  // namespace cohort
