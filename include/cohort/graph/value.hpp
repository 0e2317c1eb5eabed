// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Values of tasks with their types: how they are kept, and how they travel.

#include <cohort/core/copy.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/type_name.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/graph/machine/content.hpp>
#include <cohort/progress/operation.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace cohort::graph {

/// The value of a task that returns nothing.
struct nothing {};

template <class T>
using value_of = std::conditional_t<std::is_void_v<T>, nothing, T>;

namespace runtime {

using cohort::detail::type_name;

/// Its bytes in memory say nothing but its value.
template <class T>
concept plain_element =
    !std::same_as<T, bool> && !std::is_pointer_v<T> && !std::is_member_pointer_v<T> &&
    (std::is_arithmetic_v<T> ||
     (std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T> &&
      std::default_initializable<T> && !std::is_class_v<T>));

template <class T>
inline constexpr bool is_plain_array = plain_element<T>;
template <class T, std::size_t N>
inline constexpr bool is_plain_array<std::array<T, N>> = is_plain_array<T>;

template <class T>
inline constexpr bool is_sequence = false;
template <plain_element T>
inline constexpr bool is_sequence<std::vector<T>> = true;
template <>
inline constexpr bool is_sequence<std::string> = true;

/// Travels as it lies in memory: sent from there, without a copy.
template <class T>
concept raw_value = is_plain_array<T> || is_sequence<T>;

/// Whether the wire format takes it. Members of aggregates are not looked at: if one cannot travel,
/// the compiler says so.
template <class T>
[[nodiscard]] consteval bool has_wire_format() noexcept {
  namespace fields = wire::detail;
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, std::byte> ||
                std::same_as<T, std::string> || std::same_as<T, nothing>) {
    return !std::same_as<T, long double>;
  } else if constexpr (fields::is_std_array<T> || fields::is_optional<T>) {
    return has_wire_format<std::remove_cv_t<typename T::value_type>>();
  } else if constexpr (fields::is_tuple<T>) {
    return []<class... Parts>(std::type_identity<std::tuple<Parts...>>) {
      return (has_wire_format<std::remove_cv_t<Parts>>() && ...);
    }(std::type_identity<decltype(std::tuple_cat(std::declval<T>()))>());
  } else if constexpr (fields::has_fields<T>) {
    return true;
  } else if constexpr (fields::container<T>) {
    return has_wire_format<std::remove_cv_t<typename T::value_type>>();
  } else {
    return fields::is_plain_aggregate<T>();
  }
}

/// A value in memory of the pool.
template <class T>
class value_content final : public machine::content {
 public:
  template <class... Arguments>
  explicit value_content(std::in_place_t, Arguments&&... arguments)
      : value(std::forward<Arguments>(arguments)...) {}

  [[nodiscard]] bool travels() const noexcept override {
    return raw_value<T> || has_wire_format<T>();
  }
  [[nodiscard]] std::span<const std::byte> bytes() override {
    if constexpr (is_sequence<T>) {
      return std::as_bytes(std::span(value.data(), value.size()));
    } else if constexpr (is_plain_array<T>) {
      return std::as_bytes(std::span<const T, 1>(&value, 1));
    } else if constexpr (std::same_as<T, nothing>) {
      return {};
    } else if constexpr (has_wire_format<T>()) {
      if (encoded_.empty()) {
        std::vector<std::byte> all;  // what puts its fields may throw
        wire::writer(all).put(value);
        encoded_ = std::move(all);
      }
      return encoded_;
    } else {
      return {};
    }
  }

  static void* operator new(std::size_t bytes) {
    return progress::pool_allocator<value_content>().allocate(bytes / sizeof(value_content));
  }
  static void operator delete(void* block) noexcept {
    progress::pool_allocator<value_content>().deallocate(static_cast<value_content*>(block), 1);
  }

  T value;

 private:
  struct none {};
  static constexpr bool is_encoded = !raw_value<T> && has_wire_format<T>();
  [[no_unique_address]] std::conditional_t<is_encoded, std::vector<std::byte>, none> encoded_;
};

template <class T, class... Arguments>
[[nodiscard]] machine::content_ptr make_value(Arguments&&... arguments) {
  return machine::content_ptr(
      new value_content<T>(std::in_place, std::forward<Arguments>(arguments)...));
}

/// The value that the bytes of another rank hold. Throws error with a wire_errc.
template <class T>
[[nodiscard]] machine::content_ptr decoded(std::span<const std::byte> bytes) {
  const auto refuse = [](std::error_code why) {
    throw cohort::error(why, std::string("graph: a value of type ").append(type_name<T>()));
  };
  if constexpr (std::same_as<T, nothing>) {
    return make_value<nothing>();
  } else if constexpr (is_sequence<T>) {
    using element = typename T::value_type;
    if (bytes.size() % sizeof(element) != 0) refuse(make_error_code(wire_errc::trailing));
    machine::content_ptr made = make_value<T>(bytes.size() / sizeof(element), element());
    T& value = static_cast<value_content<T>&>(*made).value;
    copy_bytes(value.data(), bytes.data(), bytes.size());
    return made;
  } else if constexpr (is_plain_array<T>) {
    if (bytes.size() != sizeof(T)) refuse(make_error_code(wire_errc::truncated));
    machine::content_ptr made = make_value<T>();
    copy_bytes(&static_cast<value_content<T>&>(*made).value, bytes.data(), sizeof(T));
    return made;
  } else if constexpr (has_wire_format<T>() && std::default_initializable<T>) {
    machine::content_ptr made = make_value<T>();
    wire::reader in(bytes);
    in.get(static_cast<value_content<T>&>(*made).value);
    if (in.ok() && in.left() != 0) in.fail(wire_errc::trailing);
    if (!in.ok()) refuse(in.error());
    return made;
  } else {
    refuse(make_error_code(errc::type_mismatch));
    return {};
  }
}

template <class T>
[[nodiscard]] T& value_elsewhere(machine::content& one) {
  machine::content* from = &one;
  if (auto* const arrived = dynamic_cast<machine::arrived_content*>(&one)) {
    if (!arrived->decoded) arrived->decoded = decoded<T>(arrived->bytes());
    from = arrived->decoded.get();
  }
  // Once more, because two libraries may each have their own record of one type.
  if (auto* const here = dynamic_cast<value_content<T>*>(from)) return here->value;
  throw cohort::error(errc::type_mismatch,
                      std::string("graph: the value is no ").append(type_name<T>()));
}

/// The value in a content that is no failure: where it is, or decoded once. Throws
/// cohort::error(errc::type_mismatch) if it has another type here.
template <class T>
[[nodiscard]] T& value_in(machine::content& one) {
  if (&typeid(one) == &typeid(value_content<T>)) [[likely]] {
    return static_cast<value_content<T>&>(one).value;
  }
  return value_elsewhere<T>(one);
}

}  // namespace runtime
}  // namespace cohort::graph
