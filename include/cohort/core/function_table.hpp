// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The functions of this program that other processes of the same program may call, numbered
/// alike in all of them.
///
/// A function enters the table because a template names it: `registered<&f>` used anywhere, even in
/// code that never runs, puts it in before main begins. Names cannot be the numbers, because two
/// files may have a static function of the same name, and all lambdas of a function print alike;
/// but the place of the code within its executable or library is unique, and the same in every
/// process that runs the same file. So the table is sorted by module and place, and the number is
/// the index.
///
/// Needs ELF and dl_iterate_phdr (Linux, the BSDs).

#include <cohort/core/crypto.hpp>
#include <cohort/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace cohort {

/// Any function, for the table; cast back to its type before it is called.
using any_function = void (*)();

namespace detail {

/// One function that wants to be in the table. Static objects link themselves before main.
class registration {
 public:
  registration(any_function code, const std::type_info& type, std::string_view signature) noexcept;
  ~registration();
  registration(const registration&) = delete;
  registration& operator=(const registration&) = delete;

  any_function code;
  const std::type_info* type;
  std::string_view signature;
  registration* next = nullptr;
  registration* previous = nullptr;
};

/// The compiler's text about a function, of which name_in() and signature_of() take what they need:
/// g++ "... [with Type = int (*)(int); Type Callee = square]", clang "... [Type = int (*)(int),
/// Callee = &square]".
template <class Type, Type Callee>
[[nodiscard]] constexpr const char* text_of() noexcept {
  return __PRETTY_FUNCTION__;
}

[[nodiscard]] constexpr std::string_view within_brackets(std::string_view text) noexcept {
  const std::size_t begin = text.find("Type = ");
  const std::size_t end = text.rfind(']');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return text;
  return text.substr(begin, end - begin);
}

[[nodiscard]] constexpr std::string_view name_in(std::string_view text) noexcept {
  constexpr std::string_view before = "Callee = ";
  text = within_brackets(text);
  const std::size_t begin = text.find(before);
  if (begin == std::string_view::npos) return text;
  text.remove_prefix(begin + before.size());
  if (text.starts_with('&')) text.remove_prefix(1);
  return text;
}

template <auto First, auto...>
[[nodiscard]] constexpr std::string_view first_signature() noexcept {
  return within_brackets(text_of<decltype(First), First>());
}

template <auto Code, auto... Named>
[[nodiscard]] constexpr std::string_view signature_of() noexcept {
  if constexpr (sizeof...(Named) == 0) {
    return first_signature<Code>();
  } else {
    return first_signature<Named...>();
  }
}

}  // namespace detail

/// The table of the registered functions of this process, which does not change once it was asked
/// for. What a library registers that is loaded later is not in it.
class function_table {
 public:
  /// How an entry looks to another process.
  struct entry {
    std::string module;        ///< build id of its executable or library, else the file's name
    std::uint64_t offset = 0;  ///< of the code from where the module is loaded, in bytes
    std::string signature;     ///< what the compiler calls it: its type and its name

    friend bool operator==(const entry&, const entry&) = default;
  };

  /// The table of this process. The first call makes it: O(n log n) for n functions, once. Any
  /// thread may call it. A template: see docs/design/layers.md.
  template <class Any = void>
  [[nodiscard]] static const function_table& instance();

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  /// The function with this number. Throws error(errc::unknown_function) if there is none, or if it
  /// has another type than `Function`: numbers come from outside. O(1).
  template <class Function>
  [[nodiscard]] Function* at(std::size_t index) const {
    return reinterpret_cast<Function*>(code_at(index, typeid(Function)));  // NOLINT
  }

  /// The same, but null where `at` throws.
  template <class Function>
  [[nodiscard]] Function* find(std::size_t index) const noexcept {
    const bool fits = index < known_.size() && *known_[index].type == typeid(Function);
    return fits ? reinterpret_cast<Function*>(known_[index].code) : nullptr;  // NOLINT
  }

  /// The number of a function; functions of one type that the linker folded into one share it.
  /// Throws error(errc::invalid_argument) if it is not in the table, because it was not registered
  /// or belongs to a library that was loaded after the table was made; `name` is for that text.
  /// O(log n).
  template <class Function>
  [[nodiscard]] std::size_t index_of(Function* code, std::string_view name = {}) const {
    return number_of(reinterpret_cast<any_function>(code), typeid(Function), name);  // NOLINT
  }

  /// By number, to be compared with those of another process.
  [[nodiscard]] std::span<const entry> entries() const noexcept { return entries_; }

  /// SHA-256 of the number of functions and of every entry: equal in all processes of one program.
  [[nodiscard]] const sha256_digest& digest() const noexcept { return digest_; }

 private:
  struct known {
    any_function code;
    const std::type_info* type;
  };

  function_table() = default;
  template <class Any>
  void fill();
  [[nodiscard]] any_function code_at(std::size_t index, const std::type_info& type) const;
  [[nodiscard]] std::size_t number_of(any_function code, const std::type_info& type,
                                      std::string_view name) const;

  std::vector<entry> entries_;
  std::vector<known> known_;                                     // by number
  std::vector<std::pair<std::uintptr_t, std::size_t>> by_code_;  // address and number, ascending
  sha256_digest digest_{};
};

/// The entry is one of those that travel.
template <class Archive>
void wire_fields(Archive& archive, function_table::entry& one) {
  archive(one.module, one.offset, one.signature);
}

/// Names the first entry in which two tables differ, in a sentence; empty if there is none.
template <class Any = void>
[[nodiscard]] std::string first_difference(std::span<const function_table::entry> mine,
                                           std::span<const function_table::entry> others,
                                           std::string_view my_name = "here",
                                           std::string_view others_name = "there");

/// Which executable this process runs: "build-id:" and the GNU build id in hexadecimal, or
/// "sha256:" and the digest of the file where the linker left no build id, or "unknown" if the file
/// cannot be read. Found once; with a digest that costs reading the file.
template <class Any = void>
[[nodiscard]] const std::string& program_id();

/// Where code lies, alike in all processes that run the same files.
struct code_place {
  std::string module;        ///< which executable or library, in the manner of program_id()
  std::uint64_t offset = 0;  ///< from where that is loaded, in bytes
  friend bool operator==(const code_place&, const code_place&) = default;
};

/// The place of a function. Looked up at each call; where the linker left no build id, that costs
/// reading the file.
template <class Any = void>
[[nodiscard]] code_place place_of(any_function code);

/// What the compiler calls a function or a captureless lambda: "square", "a::b<int>".
template <auto Function>
[[nodiscard]] constexpr std::string_view function_name() noexcept {
  return detail::name_in(detail::text_of<decltype(Function), Function>());
}

/// Registers the function `Code`, which must be a pointer to a function. If other values follow,
/// the entry has the name of the first of them: that of the user's function, where `Code` is only
/// the way to call it.
template <auto Code, auto... Named>
class registered {
 public:
  /// The number of `Code`, as function_table::index_of; O(1) after the first time.
  [[nodiscard]] static std::size_t index() {
    static const std::size_t number = index(function_table::instance());
    return number;
  }

  /// The same in the table that is given. A library that a program loads with dlopen() may have a
  /// table of its own, so a sender of numbers keeps the table that belongs to the connection.
  [[nodiscard]] static std::size_t index(const function_table& table) {
    static_cast<void>(&one_);  // brings it into being
    return table.index_of(Code, name());
  }

  /// Of the first of `Named`, or of `Code`.
  [[nodiscard]] static constexpr std::string_view name() noexcept {
    return detail::name_in(detail::signature_of<Code, Named...>());
  }

 private:
  static inline const detail::registration one_{
      reinterpret_cast<any_function>(Code),  // NOLINT: the table holds functions of every type
      typeid(std::remove_pointer_t<decltype(Code)>), detail::signature_of<Code, Named...>()};
};

}  // namespace cohort

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/core/detail/function_table.ipp>
#endif
