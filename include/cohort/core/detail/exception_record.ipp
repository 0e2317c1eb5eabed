// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// One exception that travels, and the types that are known by name: for `core/exception.hpp`.
///
/// On the wire: rank, host, the number of levels, then each exception from the outside in: kind,
/// type, text, and what the kind has besides.

#include <cohort/core/error.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/core/wire_std.hpp>

#include <cxxabi.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <typeinfo>
#include <variant>

namespace cohort {

namespace detail {

// --- Texts --------------------------------------------------------------------------------------

[[nodiscard]] inline std::string demangled(const char* name) {
  int status = -1;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : name;
}

/// Puts a text in place of what() of a class that has no place for one.
template <class Base>
class with_text : public Base {
 public:
  explicit with_text(std::string text) : text_(std::move(text)) {}
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// What the user has thrown, without what throw_with_nested or decode_exception put around it.
[[nodiscard]] inline std::string thrown_type(const std::type_info& type) {
  std::string name = demangled(type.name());
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::string_view around :
         {"std::_Nested_exception<", "std::__1::__nested<", "cohort::detail::with_text<"}) {
      if (!name.starts_with(around) || !name.ends_with('>')) continue;
      name = name.substr(around.size(), name.size() - around.size() - 1);
      if (name.ends_with(' ')) name.pop_back();
      changed = true;
    }
  }
  return name;
}

[[nodiscard]] inline std::string place_of(int rank, std::string_view host) {
  std::string text = rank < 0 ? std::string("the manager") : "rank ";
  if (rank >= 0) text.append(std::to_string(rank));
  if (!host.empty()) text.append(" (").append(host).append(")");
  return text;
}

/// "rank 2 (host): std::runtime_error: text"
[[nodiscard]] inline std::string located_text(int rank, std::string_view host,
                                              std::string_view type, std::string_view what) {
  std::string text = place_of(rank, host);
  text.append(": ").append(type);
  if (!what.empty()) text.append(": ").append(what);
  return text;
}

[[nodiscard]] inline std::string cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  std::string shorter(text.substr(0, limit));
  return shorter.append("... (").append(std::to_string(text.size() - limit)).append(" bytes more)");
}

// --- One exception ------------------------------------------------------------------------------

enum class exception_kind : std::uint8_t {
  other = 0,
  standard,    // std::runtime_error and its like, known by name
  system,      // std::system_error
  own,         // cohort::error
  deadline,    // deadline_error
  ranks,       // rank_error
  peer_lost,   // peer_lost_error
  joined,      // joined_error
  data,        // data_error
  remote,      // remote_error
  registered,  // known to register_exception
};

struct exception_record {
  exception_kind kind = exception_kind::other;
  std::string type;
  std::string text;
  std::error_code code;           // system, own and what follows
  std::vector<int> ranks;         // of rank_error
  stall_facts stall;              // of deadline_error
  int rank = -1;                  // of remote_error
  std::string host;               // of remote_error
  std::vector<std::byte> fields;  // of a registered type that travels by its fields
};

[[nodiscard]] inline bool has_code(exception_kind kind) noexcept {
  return kind >= exception_kind::system && kind <= exception_kind::data;
}
[[nodiscard]] inline bool has_ranks(exception_kind kind) noexcept {
  return kind >= exception_kind::ranks && kind <= exception_kind::data;
}

template <class Archive>
void wire_fields(Archive& archive, exception_record& one) {
  archive(one.kind, one.type, one.text);
  if (has_code(one.kind)) archive(one.code);
  if (has_ranks(one.kind)) archive(one.ranks);
  if (one.kind == exception_kind::deadline) {
    archive(one.stall.ready, one.stall.missing, one.stall.silent, one.stall.unknown);
  }
  if (one.kind == exception_kind::remote) archive(one.rank, one.host);
  if (one.kind == exception_kind::registered) archive(one.fields);
}

/// Puts `inner` into the exception, as throw_with_nested does, if there is one.
template <class Exception>
[[nodiscard]] std::exception_ptr nest(Exception exception, const std::exception_ptr& inner) {
  if (inner == nullptr) return std::make_exception_ptr(std::move(exception));
  try {
    std::rethrow_exception(inner);
  } catch (...) {
    try {
      std::throw_with_nested(std::move(exception));
    } catch (...) {
      return std::current_exception();
    }
  }
}

// --- Types that are known by name ---------------------------------------------------------------

using fields_function = std::vector<std::byte> (*)(const std::exception_ptr&);
using make_function = std::exception_ptr (*)(const exception_record&, const std::string& text,
                                             const std::exception_ptr& inner);

struct exception_type {
  std::string name;
  fields_function fields = nullptr;
  make_function make = nullptr;
  bool standard = false;
};

template <class T>
std::exception_ptr make_from_text(const exception_record&, const std::string& text,
                                  const std::exception_ptr& inner) {
  return nest(T(text), inner);
}

template <class T>
[[nodiscard]] exception_type standard_type() {
  if constexpr (std::is_constructible_v<T, const std::string&>) {
    return {demangled(typeid(T).name()), nullptr, &make_from_text<T>, true};
  } else {
    return {demangled(typeid(T).name()), nullptr, &make_from_text<with_text<T>>, true};
  }
}

/// What register_exception knows. For any thread.
template <class Any>
class basic_exception_types {
 public:
  [[nodiscard]] static basic_exception_types& instance() {
    static basic_exception_types& all =
        *new basic_exception_types;  // for static destructors that decode
    return all;
  }
  void add(exception_type one) {
    const std::lock_guard guard(mutex_);
    for (exception_type& known : all_) {
      if (known.name == one.name) {
        known = std::move(one);
        return;
      }
    }
    all_.push_back(std::move(one));
  }
  [[nodiscard]] std::optional<exception_type> find(std::string_view name) const {
    const std::lock_guard guard(mutex_);
    for (const exception_type& known : all_) {
      if (known.name == name) return known;
    }
    return std::nullopt;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<exception_type> all_{standard_type<std::runtime_error>(),
                                   standard_type<std::logic_error>(),
                                   standard_type<std::invalid_argument>(),
                                   standard_type<std::domain_error>(),
                                   standard_type<std::length_error>(),
                                   standard_type<std::out_of_range>(),
                                   standard_type<std::range_error>(),
                                   standard_type<std::overflow_error>(),
                                   standard_type<std::underflow_error>(),
                                   standard_type<std::bad_alloc>(),
                                   standard_type<std::bad_array_new_length>(),
                                   standard_type<std::bad_cast>(),
                                   standard_type<std::bad_typeid>(),
                                   standard_type<std::bad_exception>(),
                                   standard_type<std::bad_optional_access>(),
                                   standard_type<std::bad_variant_access>(),
                                   standard_type<std::bad_weak_ptr>(),
                                   standard_type<std::bad_function_call>(),
                                   standard_type<std::exception>()};
};
using exception_types = basic_exception_types<void>;

template <class T>
std::vector<std::byte> fields_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const T& one) {
    return wire::encode(one);
  }
}

template <class T>
std::exception_ptr make_from_fields(const exception_record& from, const std::string&,
                                    const std::exception_ptr& inner) {
  return nest(wire::decode<T>(from.fields), inner);
}

}  // namespace detail

}  // namespace cohort
