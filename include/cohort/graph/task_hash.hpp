// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The semantic hash of a task: equal for tasks that compute the same, in all ranks, runs and
/// machines.

#include <cohort/core/crypto.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/graph/machine/definition.hpp>

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <vector>

namespace cohort::graph {

/// What a task computes, as 256 bits (SHA-256). It travels, is a key of maps, and names files.
///
/// It covers:
/// - the function: its name and type, with the version that the user gives it; where none is given,
///   the build of the program, the build of the library that has the function, and its place there;
/// - each parameter in order: the value with which it was spawned, as core/wire.hpp writes the
///   declared type, or the hashes of the tasks whose values fill it, and how they are used;
/// - of a source, the type and the value that was put.
///
/// The names of tasks, families and scopes are not part of it; nor are placements, ranks, their
/// number, and windows.
///
/// It cannot see what else a function depends on: global variables, files, the environment, clocks,
/// random numbers, the rank on which it runs, and libraries that it calls. Nor does it see the
/// machine: other processors and other libraries may round otherwise. Under a version it does not
/// see compiler flags and changes of the code either. So only a function that depends on its
/// arguments alone should have its results kept, and two hashes are equal where the results are
/// *meant* to be equal.
///
/// Where two equal values are written differently (a std::unordered_map that was filled in another
/// order, -0.0 and 0.0), the hashes differ: work is done again, and nothing is wrong.
class task_hash {
 public:
  /// All zero: of no task.
  constexpr task_hash() noexcept = default;
  constexpr explicit task_hash(const sha256_digest& bytes) noexcept : bytes_(bytes) {}
  /// Of what has a hash: a task of a scope, or the context of a running one.
  template <class Named>
    requires requires(const Named& one) {
      { one.hash() } -> std::same_as<task_hash>;
    }
  explicit task_hash(const Named& one) : task_hash(one.hash()) {}

  [[nodiscard]] constexpr const sha256_digest& bytes() const noexcept { return bytes_; }
  /// 64 digits, 0-9 and a-f.
  [[nodiscard]] std::string text() const;

  friend constexpr bool operator==(const task_hash&, const task_hash&) = default;
  friend constexpr auto operator<=>(const task_hash&, const task_hash&) = default;

  template <class Archive>
  friend void wire_fields(Archive& archive, task_hash& one) {
    archive(one.bytes_);
  }

 private:
  sha256_digest bytes_{};
};

/// The version that a user gives a function: a text or a number, 3 and "3" being the same.
///
/// Who gives one promises that the function of this name, with this version, gives the same results
/// in all programs that will ever use the same directory. So the version is changed with the
/// function, with what it calls, and with the wire format of its arguments and its result.
class function_version {
 public:
  /// Throws cohort::error(errc::invalid_argument) if the text is empty.
  function_version(std::string text);                                          // NOLINT
  function_version(const char* text) : function_version(std::string(text)) {}  // NOLINT
  template <std::integral Number>
    requires(!std::same_as<Number, bool> && !std::same_as<Number, char>)
  function_version(Number number) : function_version(std::to_string(number)) {}  // NOLINT

  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

namespace detail {

/// What the compiler's name for this type tells of a function: its scopes, its template arguments
/// and its parameters, alike for g++ and clang. (Clang leaves template arguments out of
/// function_name().)
template <auto Function>
struct name_tag {};

/// Names of one function, for the hash and for people.
struct function_facts {
  std::string_view mangled;  ///< of name_tag
  std::string_view type;     ///< mangled
  std::string_view name;
  any_function code;
};

}  // namespace detail

/// Which function it is, as the hash knows it: made once for a family.
///
/// Two functions of a program that are told apart by nothing but their place, as static functions
/// of one name in two files, cannot both have the same version.
class function_identity {
 public:
  /// As this program has it: another build of it is another function. Throws
  /// cohort::error(errc::not_supported) if the program has no build id and its file cannot be read.
  /// *Cost*: microseconds; without a build id, that of reading the file.
  template <auto Function>
  [[nodiscard]] static function_identity of() {
    return of_build(facts_of<Function>());
  }

  /// As the user has versioned it. Throws cohort::error(errc::invalid_argument) for a lambda, which
  /// has no name that lasts, and for a second function of the same name, type and version in this
  /// program.
  template <auto Function>
  [[nodiscard]] static function_identity of(const function_version& version) {
    return of_version(facts_of<Function>(), version);
  }

  [[nodiscard]] const sha256_digest& bytes() const noexcept { return bytes_; }
  friend bool operator==(const function_identity&, const function_identity&) = default;

 private:
  explicit function_identity(const sha256_digest& bytes) noexcept : bytes_(bytes) {}

  template <auto Function>
  [[nodiscard]] static detail::function_facts facts_of() noexcept {
    const auto code = +Function;  // of a lambda too
    static_assert(std::is_function_v<std::remove_pointer_t<decltype(code)>>, "not a function");
    return {typeid(detail::name_tag<Function>).name(), typeid(code).name(),
            function_name<Function>(), reinterpret_cast<any_function>(code)};  // NOLINT
  }
  static function_identity of_build(const detail::function_facts& facts);
  static function_identity of_version(const detail::function_facts& facts,
                                      const function_version& version);

  sha256_digest bytes_{};
};

/// Makes the hash of a task: one call for each parameter, in their order, then `finish`. A pure
/// function of what it is told.
///
/// \code
/// using namespace cohort::graph;
/// constexpr auto bits = [](std::string text, int each) { return each * std::ssize(text); };
/// task_hasher hasher(function_identity::of<bits>());
/// hasher.task(source_hash<std::string>("a text"), use_kind::take);
/// hasher.value<int>(8);
/// const task_hash what = hasher.finish();
/// \endcode
class task_hasher {
 public:
  explicit task_hasher(const function_identity& function) noexcept;

  /// The next parameter is this value, encoded as the declared type of the parameter. Where the
  /// values of several parameters stand in one sequence of bytes, the first may be given all of it,
  /// and the others none.
  void encoded_value(std::span<const std::byte> bytes) noexcept;
  /// The same: `value<T>(x)`, of which `T` is the declared type without const and reference.
  template <class T>
  void value(const std::type_identity_t<T>& one) {
    std::vector<std::byte> bytes;
    wire::writer(bytes).put(one);
    encoded_value(bytes);
  }
  /// The next parameter is the value of this task. With `after` it fills none.
  void task(const task_hash& what, machine::use_kind use) noexcept;
  /// The next parameter is a range of the values of tasks, which follow as so many calls of `task`.
  void range(std::size_t count) noexcept;

  /// The hash. The object is then used up.
  [[nodiscard]] task_hash finish() noexcept { return task_hash(hash_.finish()); }

 private:
  sha256 hash_;
};

/// The hash of a source. `type` is typeid(T).name() of the family's type.
[[nodiscard]] task_hash encoded_source_hash(std::string_view type,
                                            std::span<const std::byte> value) noexcept;

/// The same, where the value is at hand: `source_hash<T>(x)`.
template <class T>
[[nodiscard]] task_hash source_hash(const std::type_identity_t<T>& value) {
  std::vector<std::byte> bytes;
  wire::writer(bytes).put(value);
  return encoded_source_hash(typeid(T).name(), bytes);
}

using machine::use_kind;

}  // namespace cohort::graph

template <>
struct std::hash<cohort::graph::task_hash> {
  std::size_t operator()(const cohort::graph::task_hash& one) const noexcept {
    std::size_t first = 0;
    std::memcpy(&first, one.bytes().data(), sizeof first);
    return first;
  }
};

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/graph/task_hash.ipp>
#endif
