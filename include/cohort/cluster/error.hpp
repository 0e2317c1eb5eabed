// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Exceptions that travel between processes, and the errors of many processes in one.

#include <cohort/core/error.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/wire.hpp>

#include <concepts>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// An exception of another process whose type has no counterpart here. Its code is errc::remote.
class remote_error : public error {
 public:
  remote_error(int rank, std::string host, std::string type, std::string text);

  /// Where it was thrown, also if it came by way of others. Negative: the manager.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] const std::string& host() const noexcept { return host_; }
  /// What the compiler calls its type there.
  [[nodiscard]] const std::string& type() const noexcept { return type_; }
  /// Its what() there; empty if it is no std::exception.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  int rank_;
  std::string host_;
  std::string type_;
  std::string text_;
};

/// Longest text of one exception that travels, in bytes. A longer one is cut, and says so.
inline constexpr std::size_t exception_text_limit = std::size_t{1} << 20U;
/// How many exceptions within each other travel (std::nested_exception); the innermost are left
/// out.
inline constexpr std::size_t exception_depth_limit = 16;

/// Writes an exception that rank `rank` on `host` has thrown: its type, text, code and what is
/// nested in it. Throws only std::bad_alloc. The exception must not be null.
template <class Any = void>
void encode_exception(wire::writer& out, const std::exception_ptr& thrown, int rank,
                      std::string_view host);

/// The exception again, to be rethrown:
///
/// - a cohort::error as such, with its code; deadline_error and the errors about ranks with their
///   facts, those that are about more (mismatch_error, withdrawn_error) as rank_error;
/// - any other std::system_error as such, with its code (register_category() tells which come
/// back);
/// - std::runtime_error, std::logic_error, the classes of <stdexcept> derived from them, and
///   std::bad_alloc, bad_cast, bad_optional_access and their like as these;
/// - types given to register_exception() as such;
/// - all others as remote_error.
///
/// The text begins with where it was thrown, "rank 2 (host): std::runtime_error: ...", except for
/// registered types that travel by their fields. Nested exceptions are nested again. If the bytes
/// are no exception, the reader has failed and the result is a cohort::error with its code.
template <class Any = void>
[[nodiscard]] std::exception_ptr decode_exception(wire::reader& in);

/// Lets exceptions of exactly the type T travel as T: by their fields if T has wire_fields or is a
/// plain aggregate, otherwise by their what(), from which T is constructed. To be called in all
/// processes, before such an exception is thrown; any thread, again is no harm. True, so that it
/// can initialise a static object.
template <class T>
bool register_exception();

/// The errors of several processes. Its code is errc::remote; its text lists the first few.
class multi_error : public error {
 public:
  struct member {
    int rank;
    std::exception_ptr error;
  };

  /// `of` is the number of processes that took part; 0 if that is not known.
  template <class Any = void>
  explicit multi_error(std::vector<member> errors, std::size_t of = 0);

  /// All of them, in the order of the ranks.
  [[nodiscard]] const std::vector<member>& errors() const noexcept { return errors_; }

 private:
  std::vector<member> errors_;
};

/// The values of all, or multi_error with the errors of all that failed. `ranks` says whose outcome
/// each is; without it they are those of the ranks 0, 1, ...
template <class T>
  requires(!std::is_void_v<T>)
std::vector<T> values(std::vector<outcome<T>> each, std::span<const int> ranks = {});
template <std::same_as<void> T>
void values(const std::vector<outcome<T>>& each, std::span<const int> ranks = {});

}  // namespace cohort::cluster

#include <cohort/cluster/detail/error.ipp>
