// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Tensors that travel together: one operation of several buffers.

#include <cohort/coordinator/verbs/named_argument.hpp>
#include <cohort/core/buffer.hpp>
#include <cohort/core/copy.hpp>
#include <cohort/protocol/validation.hpp>

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort {

namespace coordination {
/// A buffer that can be in a bundle.
template <class B>
concept bundle_buffer = named_output<B&> && named_element<value_of<B&>>;
template <class... Arguments>
inline constexpr bool joins_bundle = false;
template <std::convertible_to<std::string> Name, class B>
inline constexpr bool joins_bundle<Name, B&> = bundle_buffer<B>;

template <class... Arguments>
consteval void explain_member() {
  static_assert(never_fits<Arguments...>,
                "add takes the member's name and a buffer that outlives the operation: a writable "
                "contiguous range or scalar of an element type (no temporary, nothing const)");
}

struct bundle_access;
struct bundle_gather_body;
struct located_members;
}  // namespace coordination

/// A tensor as plans are made from it.
struct named_size {
  std::string name;
  std::uint64_t bytes = 0;
};

/// Buffers that are reduced or broadcast as one operation: all of them or none. Each has a name
/// within the bundle, which belongs to what ranks must agree on; they are no operations of their
/// own. The buffers are borrowed until the operation has completed.
/// \code
/// cohort::coordinator coord(world);
/// std::vector<float> a(3), b(4);
/// co_await coord.grouped_all_reduce(cohort::bundle("bucket").add("a", a).add("b", b),
///                                   cohort::op::sum);
/// \endcode
class bundle {
 public:
  explicit bundle(std::string name) : name_(std::move(name)) {}
  bundle(const bundle& other) : name_(other.name_), members_(other.members_) {}
  bundle(bundle&& other) noexcept
      : name_(std::move(other.name_)), members_(std::move(other.members_)) {}
  bundle& operator=(bundle other) noexcept {
    std::swap(name_, other.name_);
    std::swap(members_, other.members_);
    return *this;
  }
  ~bundle() {}

  /// Throws errc::invalid_argument for a name that is in it and for memory of a device beside that
  /// of the host, errc::not_supported for a buffer that is not contiguous.
  template <class B>
    requires coordination::bundle_buffer<B>
  bundle& add(std::string name, B& buffer) & {
    member fresh;
    fresh.what.kernels = &coordination::kernels_of<coordination::value_of<B&>>;
    if constexpr (located_buffer<B&>) {
      using traits = memory_traits<std::remove_cvref_t<B>>;
      fresh.what.in = fresh.what.out = buffer.data();
      fresh.what.count = buffer.size();
      fresh.on_device = {"member", buffer.data(), fresh.what.bytes(), traits::locate(buffer),
                         traits::lease(buffer)};
      fresh.object = &buffer;
      fresh.make_result = &coordination::make_located_result<std::remove_cvref_t<B>>;
    } else {
      const auto view = view_of(buffer);
      if (!view.contiguous()) throw error(errc::not_supported, "bundle: '" + name + "' is strided");
      fresh.what.in = fresh.what.out = view.data;
      fresh.what.count = view.count;
    }
    for (const member& one : members_) {
      if (one.name == name) {
        throw error(errc::invalid_argument, "bundle: '" + name + "' is in it twice");
      }
    }
    if (!members_.empty() && members_.front().is_located() != fresh.is_located()) {
      throw error(
          errc::invalid_argument,
          "bundle: '" + name + "' is in another memory space than '" + members_.front().name + "'");
    }
    fresh.name = std::move(name);
    members_.push_back(std::move(fresh));
    return *this;
  }
  template <class B>
    requires coordination::bundle_buffer<B>
  bundle&& add(std::string name, B& buffer) && {
    return std::move(add(std::move(name), buffer));
  }
  /// Chosen when a call does not fit: says what is wrong with it.
  template <class... Arguments>
    requires(!coordination::joins_bundle<Arguments...>)
  bundle& add(Arguments&&...) & {
    coordination::explain_member<Arguments...>();
    return *this;
  }
  template <class... Arguments>
    requires(!coordination::joins_bundle<Arguments...>)
  bundle&& add(Arguments&&...) && {
    coordination::explain_member<Arguments...>();
    return std::move(*this);
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::size_t size() const noexcept { return members_.size(); }
  [[nodiscard]] std::vector<named_size> sizes() const {
    std::vector<named_size> all;
    for (const member& one : members_) all.push_back({one.name, one.what.bytes()});
    return all;
  }

 private:
  friend struct coordination::bundle_access;
  struct member {
    std::string name;
    coordination::tensor what;
    comm::device_buffer on_device = {};  // where it is on one
    const void* object = nullptr;        // then, and what makes an owner beside it
    std::shared_ptr<coordination::located_result> (*make_result)(const void*) = nullptr;
    [[nodiscard]] bool is_located() const noexcept {
      return on_device.where.space != memory_space::host;
    }
  };
  std::string name_;
  std::vector<member> members_;
};

/// What has come of a bundle: the elements of each member, in rank order. Of a reduce_scatter it is
/// this rank's part. On devices each member's are in memory of their own, which is taken out.
class gathered_bundle {
 public:
  gathered_bundle() {}

  /// Of all ranks. Throws errc::invalid_argument where no member has this name and type.
  template <named_element T>
  [[nodiscard]] std::vector<T> get(std::string_view name) const {
    const std::size_t at = place_of(name, coordination::kernels_of<T>.element);
    if (!located_.empty()) {
      throw error(errc::invalid_argument,
                  "gathered_bundle: '" + std::string(name) + "' is in device memory");
    }
    std::size_t bytes = 0;
    for (const piece& one : pieces_[at]) bytes += one.bytes;
    std::vector<T> result(bytes / sizeof(T));
    auto* to = reinterpret_cast<std::byte*>(result.data());
    for (const piece& one : pieces_[at]) {
      copy_bytes(to, all_.data() + one.offset, one.bytes);
      to += one.bytes;
    }
    return result;
  }
  /// On devices: what has come of a member, once. `Owner` is what the named verbs give for a buffer
  /// of its class, `device::vector<T>`. Throws errc::invalid_argument where no member has this name
  /// and class.
  template <class Owner>
  [[nodiscard]] Owner take(std::string_view name) {
    for (std::size_t i = 0; i < located_.size(); ++i) {
      auto* const one = dynamic_cast<coordination::located_result_of<Owner>*>(located_[i].get());
      if (one != nullptr && names_[i] == name) return std::move(one->value);
    }
    throw error(errc::invalid_argument,
                "gathered_bundle: no '" + std::string(name) + "' of this class in device memory");
  }
  /// How many elements each rank has brought; none where it had joined.
  [[nodiscard]] std::vector<std::size_t> counts(std::string_view name) const {
    const std::size_t at = place_of(name, std::nullopt);
    std::vector<std::size_t> result;
    for (const piece& one : pieces_[at]) result.push_back(one.bytes / kinds_[at]->size);
    return result;
  }

  // What fills it: members, then what came of each, in rank order, as places in the bytes.
  void add(std::string name, const coordination::element_kernels& kind) {
    names_.push_back(std::move(name));
    kinds_.push_back(&kind);
    pieces_.emplace_back();
  }
  void put(std::size_t member, std::size_t offset, std::size_t bytes) {
    pieces_[member].push_back({offset, bytes});
  }
  [[nodiscard]] std::vector<std::byte>& bytes() noexcept { return all_; }

 private:
  friend struct coordination::bundle_gather_body;
  friend struct coordination::located_members;
  struct piece {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  [[nodiscard]] std::size_t place_of(std::string_view name,
                                     std::optional<std::uint8_t> element) const {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name && (!element || *element == kinds_[i]->element)) return i;
    }
    throw error(errc::invalid_argument,
                "gathered_bundle: no '" + std::string(name) + "' of this type");
  }

  std::vector<std::string> names_;
  std::vector<const coordination::element_kernels*> kinds_;
  std::vector<std::vector<piece>> pieces_;  // of each member, of each rank
  std::vector<std::byte> all_;
  std::vector<std::shared_ptr<coordination::located_result>>
      located_;  // on devices, in place of it
};

namespace coordination {

struct bundle_access {
  using member = bundle::member;
  [[nodiscard]] static const std::vector<member>& members(const bundle& of) noexcept {
    return of.members_;
  }
  [[nodiscard]] static bool on_device(const bundle& of) noexcept {
    return !of.members_.empty() && of.members_.front().is_located();
  }
};

/// A member of a bundle as it stands in a signature: "1:a float32 x12".
struct bundle_member {
  std::string_view name;
  std::uint8_t element = 0;
  std::uint64_t count = 0;
};

inline void append_member(std::string& text, const bundle_member& one) {
  protocol::signature named;
  named.element = one.element;
  if (!text.empty()) text += "; ";
  text += std::to_string(one.name.size()) + ":" + std::string(one.name) + " " +
          protocol::element_name(named) + " x" + std::to_string(one.count);
}

/// What `append_member` has written; nothing for any other text.
[[nodiscard]] inline std::optional<std::vector<bundle_member>> parse_members(
    std::string_view text) {
  std::vector<bundle_member> all;
  while (!text.empty()) {
    bundle_member& one = all.emplace_back();
    std::size_t length = 0;
    auto [colon, bad] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<std::size_t>(colon - text.data());
    if (bad != std::errc{} || digits + 1 > text.size() || length > text.size() - digits - 1) {
      return std::nullopt;
    }
    one.name = text.substr(digits + 1, length);
    text.remove_prefix(digits + 1 + length);
    const std::size_t cross = text.find(" x");
    if (text.empty() || text[0] != ' ' || cross == std::string_view::npos || cross == 0) {
      return std::nullopt;
    }
    const std::string_view element = text.substr(1, cross - 1);
    constexpr std::uint8_t elements = static_cast<std::uint8_t>(element_type::byte) + 1;
    protocol::signature named;
    while (named.element < elements && protocol::element_name(named) != element) ++named.element;
    if (named.element == elements) return std::nullopt;
    one.element = named.element;
    text.remove_prefix(cross + 2);
    auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), one.count);
    if (wrong != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.starts_with("; ")) {
      text.remove_prefix(2);
    } else if (!text.empty()) {
      return std::nullopt;
    }
  }
  return all;
}

}  // namespace coordination
}  // namespace cohort
