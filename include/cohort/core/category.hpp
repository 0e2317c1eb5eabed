// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Error categories found by their names, so that a std::error_code of another process can be
/// put together again.

#include <cohort/core/error.hpp>
#include <cohort/core/wire.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace cohort {

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
