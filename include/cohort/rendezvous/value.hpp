// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a value is to a rendezvous: its type, its bytes, and the packet that keeps it.

#include <cohort/core/copy.hpp>
#include <cohort/core/type_name.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/progress/operation.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {

/// What a receive gives: the value, and whether the sender was on a branch that is not taken
/// ("dead"). If only that was sent, there is no value.
template <class T>
struct received {
  received() noexcept {}  // user-provided: g++ 12, see tests/compilers/gcc12.cpp
  std::optional<T> value;
  bool dead = false;
};

namespace meeting {

/// A type of values in this program: a number that travels, and a name for errors.
struct type_record {
  std::uint64_t id;
  std::string_view name;
  const type_record* next;
};

inline std::atomic<const type_record*>& known_types() noexcept {
  static std::atomic<const type_record*> first{nullptr};
  return first;
}

/// The name of a type, or its number if this program has no such values.
[[nodiscard]] inline std::string type_name(std::uint64_t id) {
  for (const auto* one = known_types().load(); one != nullptr; one = one->next) {
    if (one->id == id) return std::string(one->name);
  }
  return "a type unknown to this program (" + std::to_string(id) + ")";
}

/// Copied as it lies in memory.
template <class T>
concept plain = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
                !std::is_member_pointer_v<T> && std::default_initializable<T>;

template <class T>
struct elements_of {
  using type = void;
};
template <plain E>
  requires(!std::same_as<E, bool>)
struct elements_of<std::vector<E>> {
  using type = E;
};
template <>
struct elements_of<std::string> {
  using type = char;
};

/// Elements in one piece of memory.
template <class T>
concept sequence = !std::is_void_v<typename elements_of<T>::type>;

template <class T>
struct is_view : std::false_type {};
template <class E, std::size_t N>
struct is_view<std::span<E, N>> : std::true_type {};
template <>
struct is_view<std::string_view> : std::true_type {};

/// Its bytes are those of its memory.
template <class T>
concept raw_value = sequence<T> || (plain<T> && !is_view<T>::value);

template <class T>
struct registered {
  registered() {
    record.next = known_types().load();
    while (!known_types().compare_exchange_weak(record.next, &record)) continue;
  }
  type_record record{cohort::detail::type_number<T>, cohort::detail::type_name<T>(), nullptr};
};
/// Registers the type before main, in programs that send or receive it.
template <class T>
inline registered<T> registration;

/// What values of type T are known by. Taking the address makes the registration happen.
template <class T>
[[nodiscard]] std::uint64_t type_id() noexcept {
  static_cast<void>(&registration<T>);
  return cohort::detail::type_number<T>;
}

class packet;
using packet_ptr = std::unique_ptr<packet>;

/// One value between its send and its receive.
class packet {
 public:
  packet() noexcept {}
  packet(const packet&) = delete;
  packet& operator=(const packet&) = delete;
  virtual ~packet() {}

  static void* operator new(std::size_t bytes) { return progress::pool::allocate(bytes); }
  static void operator delete(void* block, std::size_t bytes) noexcept {
    progress::pool::deallocate(block, bytes);
  }

  /// As they travel. Empty if `encode` must come first.
  [[nodiscard]] virtual std::span<const std::byte> bytes() const noexcept { return {}; }
  /// Where the object itself lies, if it does.
  [[nodiscard]] virtual void* object() noexcept { return nullptr; }
  /// A packet with bytes instead of this one; null if this one has them.
  [[nodiscard]] virtual packet_ptr encode() const { return nullptr; }

  std::uint64_t type = 0;  ///< 0: no value
  bool dead = false;
  bool foreign = false;      ///< its destructor may run code of the program's
  int origin = -1;           ///< the rank whose message brought it; -1: this process
  std::uint64_t credit = 0;  ///< bytes of the origin's credit that it holds
  packet_ptr next;           ///< in its queue
};

/// Packets in order. Not synchronised.
class packet_list {
 public:
  packet_list() noexcept {}
  packet_list(packet_list&& other) noexcept
      : first_(std::move(other.first_)), last_(std::exchange(other.last_, nullptr)) {}
  packet_list& operator=(packet_list&& other) noexcept {
    clear();
    first_ = std::move(other.first_);
    last_ = std::exchange(other.last_, nullptr);
    return *this;
  }
  ~packet_list() { clear(); }

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] packet& front() const noexcept { return *first_; }
  void push(packet_ptr one) noexcept {
    packet* const last = one.get();
    (first_ ? last_->next : first_) = std::move(one);
    last_ = last;
  }
  packet_ptr pop() noexcept {
    packet_ptr one = std::move(first_);
    first_ = std::move(one->next);
    return one;
  }
  template <class Visit>
  void for_each(Visit visit) const {
    for (const packet* each = first_.get(); each != nullptr; each = each->next.get()) visit(*each);
  }
  /// One after the other, not one inside the other.
  void clear() noexcept {
    while (first_) pop();
  }

 private:
  packet_ptr first_;
  packet* last_ = nullptr;  // meaningful only while first_ is not null
};

/// Bytes that came in a message, or that a value was encoded to.
class bytes_packet final : public packet {
 public:
  /// To be filled.
  explicit bytes_packet(std::size_t size) : size_(size) {
    if (size_ > near_.size()) far_ = std::make_unique_for_overwrite<std::byte[]>(size_);
  }
  bytes_packet(std::uint64_t type_, bool dead_, std::span<const std::byte> from)
      : bytes_packet(from.size()) {
    type = type_;
    dead = dead_;
    copy_bytes(data(), from.data(), size_);
  }
  [[nodiscard]] std::byte* data() noexcept { return far_ ? far_.get() : near_.data(); }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept override {
    return {far_ ? far_.get() : near_.data(), size_};
  }

 private:
  std::size_t size_;
  std::unique_ptr<std::byte[]> far_;
  std::array<std::byte, 64> near_;
};

template <class T>
[[nodiscard]] std::span<const std::byte> bytes_of(const T& value) noexcept {
  if constexpr (sequence<T>) {
    return std::as_bytes(std::span(value.data(), value.size()));
  } else {
    return std::as_bytes(std::span<const T, 1>(&value, 1));
  }
}

/// The object itself.
template <class T>
class object_packet final : public packet {
 public:
  template <class... Args>
  explicit object_packet(bool dead_, Args&&... args) : value_(std::forward<Args>(args)...) {
    type = type_id<T>();
    dead = dead_;
    foreign = !raw_value<T>;
  }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept override {
    if constexpr (raw_value<T>) return bytes_of(value_);
    return {};
  }
  [[nodiscard]] void* object() noexcept override { return &value_; }
  [[nodiscard]] packet_ptr encode() const override {
    if constexpr (!raw_value<T>) {
      return packet_ptr(new bytes_packet(type, dead, wire::encode(value_)));
    }
    return nullptr;
  }

 private:
  T value_;
};

/// An object that the sender shares and does not change.
template <class T>
class shared_packet final : public packet {
 public:
  shared_packet(bool dead_, std::shared_ptr<const T> value) noexcept : value_(std::move(value)) {
    type = type_id<T>();
    dead = dead_;
    foreign = true;  // the pointer may have a deleter
  }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept override {
    return bytes_of(*value_);
  }

 private:
  std::shared_ptr<const T> value_;
};

/// Only "dead".
[[nodiscard]] inline packet_ptr dead_packet() { return packet_ptr(new bytes_packet(0, true, {})); }

/// The type that a value of type T is kept as: a span as a vector, a text as a string.
template <class T>
struct kept {
  using type = T;
};
template <class E, std::size_t N>
struct kept<std::span<E, N>> {
  using type = std::vector<std::remove_const_t<E>>;
};
template <>
struct kept<std::string_view> {
  using type = std::string;
};
template <class E, std::size_t N>
struct kept<E[N]> {
  using type = std::conditional_t<std::same_as<std::remove_const_t<E>, char>, std::string,
                                  std::vector<std::remove_const_t<E>>>;
};
template <class T>
struct kept<std::shared_ptr<const T>> {
  using type = T;
};
template <class T>
using kept_t = typename kept<std::remove_cvref_t<T>>::type;

template <class T>
inline constexpr bool is_shared = false;
template <class T>
inline constexpr bool is_shared<std::shared_ptr<const T>> = true;

/// Something that can be received.
template <class T>
concept receivable = std::same_as<T, std::remove_cvref_t<T>> && std::movable<T> &&
                     std::default_initializable<T> && !is_view<T>::value && !std::is_pointer_v<T> &&
                     !is_shared<T> && (raw_value<T> || wire::value<T>);

/// Something that can be sent.
template <class T>
concept sendable =
    receivable<kept_t<T>> && (!is_shared<std::remove_cvref_t<T>> || raw_value<kept_t<T>>);

/// `remote`: it will leave this process, so an object that must be encoded need not be copied.
template <class T>
[[nodiscard]] packet_ptr make_packet(T&& value, bool dead, bool remote) {
  using type = kept_t<T>;
  using given = std::remove_cvref_t<T>;
  if constexpr (is_shared<given>) {
    return packet_ptr(new shared_packet<type>(dead, std::forward<T>(value)));
  } else if constexpr (is_view<given>::value || std::is_array_v<given>) {
    return packet_ptr(new object_packet<type>(dead, std::begin(value), [&] {
      if constexpr (std::same_as<type, std::string> && std::is_array_v<given>) {
        return std::find(std::begin(value), std::end(value), '\0');
      } else {
        return std::end(value);
      }
    }()));
  } else {
    if constexpr (!raw_value<type>) {
      if (remote) {
        return packet_ptr(new bytes_packet(type_id<type>(), dead, wire::encode(value)));
      }
    }
    return packet_ptr(new object_packet<type>(dead, std::forward<T>(value)));
  }
}

/// The value of a packet that has one of type T. Throws what decoding throws.
template <class T>
[[nodiscard]] T take_value(packet& from) {
  if (void* object = from.object()) return std::move(*static_cast<T*>(object));
  const std::span<const std::byte> bytes = from.bytes();
  if constexpr (sequence<T>) {
    using element = typename elements_of<T>::type;
    if (bytes.size() % sizeof(element) != 0) {
      throw std::system_error(make_error_code(wire_errc::trailing));
    }
    T value(bytes.size() / sizeof(element), element());
    copy_bytes(value.data(), bytes.data(), bytes.size());
    return value;
  } else if constexpr (raw_value<T>) {
    if (bytes.size() != sizeof(T)) {
      throw std::system_error(
          make_error_code(bytes.size() < sizeof(T) ? wire_errc::truncated : wire_errc::trailing));
    }
    T value;
    copy_bytes(&value, bytes.data(), sizeof(T));
    return value;
  } else {
    return wire::decode<T>(bytes);
  }
}

}  // namespace meeting
}  // namespace cohort
