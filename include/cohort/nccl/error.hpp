// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Result codes of NCCL as std::error_code, with NCCL's own text.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/category.hpp>

#include <string>
#include <system_error>

namespace cohort::nccl {

/// The category of codes that NCCL returned; its name is "nccl". It is registered, so a code keeps
/// its category on the way from another process (core/category.hpp).
const std::error_category& nccl_category() noexcept;

/// The code of a return value; no error for `ncclSuccess`.
[[nodiscard]] std::error_code make_error(ncclResult_t code) noexcept;

/// Throws std::system_error with the code and the name of the call, unless it succeeded or goes on
/// in the background.
void check(ncclResult_t code, const char* call);

namespace detail {

class category final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "nccl"; }
  [[nodiscard]] std::string message(int value) const override {
    return ncclGetErrorString(static_cast<ncclResult_t>(value));
  }
  [[nodiscard]] std::error_condition default_error_condition(int value) const noexcept override {
    if (value == ncclInvalidArgument) return std::errc::invalid_argument;
    return {value, *this};
  }
};

/// At the start of the program: a code of another process may come before any of this one.
inline const bool category_is_registered = [] {
  register_category(nccl_category());
  return true;
}();

}  // namespace detail

inline const std::error_category& nccl_category() noexcept {
  static const detail::category& instance = *new detail::category;
  return instance;
}

inline std::error_code make_error(ncclResult_t code) noexcept {
  return {static_cast<int>(code), nccl_category()};
}

inline void check(ncclResult_t code, const char* call) {
  if (code == ncclSuccess || code == ncclInProgress) [[likely]]
    return;
  throw std::system_error(make_error(code), call);
}

}  // namespace cohort::nccl

#endif
