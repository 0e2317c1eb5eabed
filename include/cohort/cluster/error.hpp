// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Exceptions that travel between processes, and the errors of many processes in one.
///
/// ```
/// try {
///   co_await workers.call<&load>(2, path);
/// } catch (const my_error& failed) {  // after register_exception<my_error>() in all processes
/// } catch (const std::runtime_error& failed) {  // "rank 2 (node1): std::runtime_error: ..."
/// }
/// auto all = cluster::values(co_await workers.call_all<&energy>(x));  // throws multi_error
/// ```

#include <cohort/core/error.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/progress/exception.hpp>

#include <concepts>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::cluster {

using cohort::exception_depth_limit;
using cohort::exception_text_limit;
using cohort::register_exception;
using cohort::remote_error;
using progress::decode_exception;
using progress::encode_exception;

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

// ---- implementation --------------------------------------------------------------------------

namespace detail {

using namespace cohort::detail;  // NOLINT: the same room, one layer below

template <class Any = void>
[[nodiscard]] std::string list_of(const std::vector<multi_error::member>& errors, std::size_t of) {
  constexpr std::size_t most_errors = 16;
  constexpr std::size_t most_bytes = 512;  // of each
  std::string text = std::to_string(errors.size());
  if (of != 0) text.append(" of ").append(std::to_string(of));
  text.append(of == 1 || (of == 0 && errors.size() == 1) ? " rank failed" : " ranks failed");
  for (std::size_t i = 0; i < errors.size() && i < most_errors; ++i) {
    exception_record one;
    static_cast<void>(describe(errors[i].error, one));
    const std::string place = place_of(errors[i].rank, {});
    text.append(i == 0 ? ": " : "; ");
    if (one.kind == exception_kind::remote) {
      text.append(cut(located_text(one.rank, one.host, one.type, one.text), most_bytes));
    } else {
      if (!one.text.starts_with(place)) text.append(place).append(": ");
      text.append(cut(one.text.empty() ? one.type : one.text, most_bytes));
    }
  }
  if (errors.size() > most_errors) {
    text.append("; and ").append(std::to_string(errors.size() - most_errors)).append(" more");
  }
  return text;
}

template <class T>
void throw_errors(const std::vector<outcome<T>>& each, std::span<const int> ranks) {
  std::vector<multi_error::member> errors;
  for (std::size_t i = 0; i < each.size(); ++i) {
    if (each[i].error() == nullptr) continue;
    errors.push_back({i < ranks.size() ? ranks[i] : static_cast<int>(i), each[i].error()});
  }
  if (!errors.empty()) throw multi_error(std::move(errors), each.size());
}

}  // namespace detail

template <class Any>
multi_error::multi_error(std::vector<member> errors, std::size_t of)
    : error(errc::remote, detail::list_of(errors, of)), errors_(std::move(errors)) {}

template <class T>
  requires(!std::is_void_v<T>)
std::vector<T> values(std::vector<outcome<T>> each, std::span<const int> ranks) {
  detail::throw_errors(each, ranks);
  std::vector<T> all;
  all.reserve(each.size());
  for (outcome<T>& one : each) all.push_back(std::move(one).value());
  return all;
}

template <std::same_as<void> T>
void values(const std::vector<outcome<T>>& each, std::span<const int> ranks) {
  detail::throw_errors(each, ranks);
}

}  // namespace cohort::cluster
