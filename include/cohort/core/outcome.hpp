// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Either a value or the error that took its place, to be looked at without a try block.

#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace cohort {

/// The result of something that ran elsewhere: a value, or the exception it ended with.
/// Empty only after having been moved from.
template <class T>
class [[nodiscard]] outcome {
 public:
  using value_type = T;

  outcome(const T& value) : value_(value) {}        // NOLINT(*-explicit-*)
  outcome(T&& value) : value_(std::move(value)) {}  // NOLINT(*-explicit-*)
  /// The exception must not be null.
  outcome(std::exception_ptr error) noexcept : error_(std::move(error)) {}  // NOLINT

  [[nodiscard]] bool has_value() const noexcept { return value_.has_value(); }
  [[nodiscard]] explicit operator bool() const noexcept { return has_value(); }

  /// The value; throws the error if there is one instead.
  T& value() &;
  const T& value() const&;
  T&& value() &&;
  /// The value if there is one, otherwise the argument.
  template <class U>
  T value_or(U&& other) const& {
    return value_.value_or(std::forward<U>(other));
  }

  /// The error, or null if there is a value.
  [[nodiscard]] const std::exception_ptr& error() const noexcept { return error_; }

 private:
  void rethrow() const;

  std::optional<T> value_;
  std::exception_ptr error_;
};

/// The outcome of something that has no value.
template <>
class [[nodiscard]] outcome<void> {
 public:
  using value_type = void;

  outcome() noexcept {}
  outcome(std::exception_ptr error) noexcept : error_(std::move(error)) {}  // NOLINT

  [[nodiscard]] bool has_value() const noexcept { return error_ == nullptr; }
  [[nodiscard]] explicit operator bool() const noexcept { return has_value(); }
  /// Throws the error if there is one.
  void value() const;
  [[nodiscard]] const std::exception_ptr& error() const noexcept { return error_; }

 private:
  std::exception_ptr error_;
};

/// Calls the function and keeps what it returned or threw.
template <class Function>
[[nodiscard]] auto outcome_of(Function&& function)
    -> outcome<std::remove_cvref_t<std::invoke_result_t<Function>>>;

template <class T>
T& outcome<T>::value() & {
  rethrow();
  return *value_;
}

template <class T>
const T& outcome<T>::value() const& {
  rethrow();
  return *value_;
}

template <class T>
T&& outcome<T>::value() && {
  rethrow();
  return std::move(*value_);
}

template <class T>
void outcome<T>::rethrow() const {
  if (error_ != nullptr) {
    std::rethrow_exception(error_);
  }
}

inline void outcome<void>::value() const {
  if (error_ != nullptr) {
    std::rethrow_exception(error_);
  }
}

template <class Function>
auto outcome_of(Function&& function)
    -> outcome<std::remove_cvref_t<std::invoke_result_t<Function>>> {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Function>>) {
      std::forward<Function>(function)();
      return {};
    } else {
      return std::forward<Function>(function)();
    }
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace cohort
