// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How what ran elsewhere has ended: a value, or the error that took its place, to be looked
/// at without a try block; and error categories found by their names, so that a std::error_code of
/// another process can be put together again.

#include <cohort/core/error.hpp>
#include <cohort/core/wire.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

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

/// Lets codes of this category come back from other processes as what they were. The category must
/// live to the end of the process, and its name must be its own. "generic", "system", "iostream",
/// "cohort" and "cohort.wire" are known already. Any thread may call it; again is no harm.
void register_category(const std::error_category& category);

/// The category of that name. One that nobody has registered becomes a category that knows its name
/// and nothing else, the same object for the same name; after 256 of these it is cohort_category().
/// O(number of categories).
[[nodiscard]] const std::error_category& category_named(std::string_view name);

namespace detail {

/// The category of codes whose category exists in another process only.
class foreign_category final : public std::error_category {
 public:
  explicit foreign_category(std::string_view name) : name_(name) {}
  [[nodiscard]] const char* name() const noexcept override { return name_.c_str(); }
  [[nodiscard]] std::string message(int value) const override {
    std::string text = "error ";
    return text.append(std::to_string(value)).append(" of category ").append(name_);
  }

 private:
  std::string name_;
};

struct category_list {
  static constexpr std::size_t foreign_limit = 256;
  static constexpr std::size_t name_limit = 256;  // bytes; a longer name is cut

  [[nodiscard]] const std::error_category* find(std::string_view name) const noexcept {
    for (const std::error_category* one : known) {
      if (one->name() == name) return one;
    }
    for (const auto& one : foreign) {
      if (one->name() == name) return one.get();
    }
    return nullptr;
  }

  std::mutex mutex;
  std::vector<const std::error_category*> known{&std::generic_category(), &std::system_category(),
                                                &std::iostream_category(), &cohort_category(),
                                                &wire_category()};
  std::vector<std::unique_ptr<const foreign_category>> foreign;
};

inline category_list& categories() {
  static category_list& list = *new category_list;  // codes may be decoded by static destructors
  return list;
}

}  // namespace detail

inline void register_category(const std::error_category& category) {
  auto& list = detail::categories();
  const std::lock_guard guard(list.mutex);
  for (const std::error_category*& one : list.known) {
    if (std::string_view(one->name()) == category.name()) {
      one = &category;
      return;
    }
  }
  list.known.push_back(&category);
}

inline const std::error_category& category_named(std::string_view name) {
  auto& list = detail::categories();
  name = name.substr(0, detail::category_list::name_limit);
  const std::lock_guard guard(list.mutex);
  if (const auto* const found = list.find(name)) return *found;
  if (list.foreign.size() == detail::category_list::foreign_limit) return cohort_category();
  list.foreign.push_back(std::make_unique<const detail::foreign_category>(name));
  return *list.foreign.back();
}

}  // namespace cohort
