// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `core/wire.hpp` that depend on no type: the texts of its errors.

#include <cohort/core/wire.hpp>

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

COHORT_INLINE const std::error_category& wire_category() noexcept {
  static const detail::wire_category_type category;
  return category;
}

COHORT_INLINE std::error_code make_error_code(wire_errc code) noexcept {
  return {static_cast<int>(code), wire_category()};
}

}  // namespace cohort
