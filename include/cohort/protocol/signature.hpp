// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The numbers by which a rank refers to names, signatures and submissions; and what must be
/// equal on all ranks for one operation, and what the protocol asks about it.

#include <cohort/core/buffer.hpp>
#include <cohort/core/element.hpp>
#include <cohort/core/kinds.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace cohort::protocol {

/// The number of a submission of a name: the n-th on one rank is matched with the n-th on every
/// other. Negative where a new generation has renumbered what lies behind.
using epoch = std::int64_t;

/// Numbers of this rank alone: of a name in a set, of a name with a signature, of a record.
using name_index = std::uint32_t;
using entry_index = std::uint32_t;
using record_index = std::uint32_t;

/// Index that stands for "none".
inline constexpr std::uint32_t none = UINT32_MAX;

using cohort::is_persistent;
using cohort::is_sized;
using cohort::name_of;
using cohort::op_kind;
using cohort::reduction_code;

/// The first dimensions of an operation's tensors; more than eight are joined by who submits.
class shape {
 public:
  static constexpr std::size_t max_dimensions = 8;

  shape() noexcept {}
  /// The dimensions beyond the eighth are multiplied into it.
  explicit shape(std::span<const std::int64_t> dimensions) noexcept;
  shape(std::initializer_list<std::int64_t> dimensions) noexcept
      : shape(std::span(dimensions.begin(), dimensions.size())) {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::int64_t operator[](std::size_t i) const noexcept { return dimensions_[i]; }
  [[nodiscard]] const std::int64_t* begin() const noexcept { return dimensions_.data(); }
  [[nodiscard]] const std::int64_t* end() const noexcept { return dimensions_.data() + size_; }
  /// The product of the dimensions, at most the largest number there is.
  [[nodiscard]] std::uint64_t elements() const noexcept;
  /// "3x4".
  [[nodiscard]] std::string str() const;

  friend bool operator==(const shape& a, const shape& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<std::int64_t, max_dimensions> dimensions_{};
  std::uint8_t size_ = 0;
};

/// The signature of an operation. Two ranks that submit the same (name, epoch) with signatures
/// that differ in any field get a mismatch_error that names the fields.
struct signature {
  op_kind kind = op_kind::all_reduce;
  std::uint8_t element = 0;  ///< element_type, or 255 for a type of the user's own
  memory_space space = memory_space::host;
  std::uint8_t flags = 0;          ///< of signature_flag
  std::uint32_t element_size = 0;  ///< bytes
  std::uint32_t reduction = 0;     ///< a reduction_code
  std::int32_t root = -1;          ///< a rank of the negotiation; -1: not rooted
  std::int32_t priority = 0;       ///< higher is elected first
  double prescale = 1;
  double postscale = 1;
  shape dimensions;          ///< without the first one where it may differ per rank
  std::uint64_t detail = 0;  ///< of the kind: see op_kind
  std::string members;       ///< of a bundle: its tensors, canonically; else empty
  std::string places;        ///< of tensors in an arena of a device: which and where; else empty

  friend bool operator==(const signature&, const signature&) = default;

  [[nodiscard]] bool has(std::uint8_t flag) const noexcept { return (flags & flag) != 0; }
  /// The number of bytes that a rank brings; what fusion counts.
  [[nodiscard]] std::uint64_t bytes() const noexcept;
};

/// Properties of an operation beyond its fields.
struct signature_flag {
  static constexpr std::uint8_t needs_all = 1;      ///< no neutral element: protocol J6
  static constexpr std::uint8_t divide_by_all = 2;  ///< average: by the set's size
  static constexpr std::uint8_t unnamed = 4;        ///< never cached (protocol C2)
  static constexpr std::uint8_t half_on_wire = 8;   ///< `element` is what callers' data becomes
  static constexpr std::uint8_t alone = 16;         ///< never fused
};

/// Where a submission was written; `file` empty: not known.
struct call_site {
  std::string file;
  std::uint32_t line = 0;

  friend bool operator==(const call_site&, const call_site&) = default;
  [[nodiscard]] std::string str() const {
    return file.empty() ? std::string("?") : file + ":" + std::to_string(line);
  }
};

/// Whether no member may have joined (protocol J6).
[[nodiscard]] inline bool needs_everyone(const signature& sig) noexcept {
  return sig.kind == op_kind::all_to_all || sig.kind == op_kind::group_create ||
         sig.kind == op_kind::set_add || sig.kind == op_kind::arena_add ||
         sig.has(signature_flag::needs_all);
}
[[nodiscard]] inline bool is_cached(const signature& sig) noexcept {
  return !is_persistent(sig.kind) && sig.kind != op_kind::set_add &&
         sig.kind != op_kind::arena_add && !sig.has(signature_flag::unnamed);
}

[[nodiscard]] std::size_t hash_of(const signature& sig) noexcept;

// ---- implementation --------------------------------------------------------------------------

inline shape::shape(std::span<const std::int64_t> dimensions) noexcept {
  for (const std::int64_t dimension : dimensions) {
    if (size_ < max_dimensions) {
      dimensions_[size_++] = dimension;
    } else {
      dimensions_[max_dimensions - 1] *= dimension;
    }
  }
}

inline std::uint64_t shape::elements() const noexcept {
  std::uint64_t product = 1;
  for (const std::int64_t dimension : *this) {
    const auto factor = static_cast<std::uint64_t>(std::max<std::int64_t>(dimension, 0));
    if (factor != 0 && product > UINT64_MAX / factor) return UINT64_MAX;
    product *= factor;
  }
  return product;
}

inline std::string shape::str() const {
  std::string text;
  for (const std::int64_t dimension : *this) {
    if (!text.empty()) text += 'x';
    text += std::to_string(dimension);
  }
  return text.empty() ? "scalar" : text;
}

inline std::uint64_t signature::bytes() const noexcept {
  const std::uint64_t count = dimensions.elements();
  if (element_size != 0 && count > UINT64_MAX / element_size) return UINT64_MAX;
  return count * element_size;
}

inline std::size_t hash_of(const signature& sig) noexcept {
  std::size_t seed = 0;
  const auto mix = [&seed](std::uint64_t value) {
    seed ^= value + 0x9e3779b97f4a7c15U + (seed << 6U) + (seed >> 2U);
  };
  mix(static_cast<std::uint64_t>(sig.kind) | static_cast<std::uint64_t>(sig.element) << 8U |
      static_cast<std::uint64_t>(sig.flags) << 16U | static_cast<std::uint64_t>(sig.space) << 24U |
      static_cast<std::uint64_t>(sig.reduction) << 32U);
  mix(static_cast<std::uint32_t>(sig.root) | static_cast<std::uint64_t>(sig.element_size) << 32U);
  mix(static_cast<std::uint32_t>(sig.priority));
  mix(std::hash<double>{}(sig.prescale));
  mix(std::hash<double>{}(sig.postscale));
  for (const std::int64_t dimension : sig.dimensions) mix(static_cast<std::uint64_t>(dimension));
  mix(sig.detail);
  if (!sig.members.empty()) mix(std::hash<std::string>{}(sig.members));
  if (!sig.places.empty()) mix(std::hash<std::string>{}(sig.places));
  return seed;
}

}  // namespace cohort::protocol
