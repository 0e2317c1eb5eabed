// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Exceptions that travel between processes.
///
/// ```
/// std::vector<std::byte> bytes;
/// wire::writer out(bytes);
/// encode_exception(out, std::current_exception(), 2, "node1");  // there
/// wire::reader in(bytes);
/// std::rethrow_exception(decode_exception(in));  // here: "rank 2 (node1): std::runtime_error:
/// ..."
/// ```

#include <cohort/core/detail/exception_record.ipp>
#include <cohort/core/error.hpp>
#include <cohort/core/wire.hpp>

#include <cxxabi.h>

#include <cstddef>
#include <exception>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {

/// An exception of another process whose type has no counterpart here. Its code is errc::remote.
class remote_error : public error {
 public:
  remote_error(int rank, std::string host, std::string type, std::string text)
      : error(errc::remote, detail::located_text(rank, host, type, text)),
        rank_(rank),
        host_(std::move(host)),
        type_(std::move(type)),
        text_(std::move(text)) {}

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
/// - std::runtime_error, std::logic_error, the classes of `<stdexcept>` derived from them, and
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

/// "std::runtime_error: its text", for messages; of a remote_error also where it was thrown.
template <class Any = void>
[[nodiscard]] std::string describe_exception(const std::exception_ptr& thrown);

/// The exception with another one nested in it, as std::throw_with_nested does, if there is one.
template <class Exception>
[[nodiscard]] std::exception_ptr nested_in(Exception outer, const std::exception_ptr& inner) {
  return detail::nest(std::move(outer), inner);
}

// ---- implementation --------------------------------------------------------------------------

namespace detail {

// --- Reading an exception -----------------------------------------------------------------------

/// The facts about a system_error, the most derived class first.
template <class Any = void>
void describe_system_error(const std::system_error& one, exception_record& to) {
  to.code = one.code();
  to.kind = exception_kind::system;
  if (dynamic_cast<const error*>(&one) == nullptr) return;
  to.kind = exception_kind::own;
  if (const auto* const from = dynamic_cast<const remote_error*>(&one)) {
    to.kind = exception_kind::remote;
    to.rank = from->rank();
    to.host = cut(from->host(), exception_text_limit);
    to.type = cut(from->type(), exception_text_limit);
    to.text = cut(from->text(), exception_text_limit);
  } else if (const auto* const late = dynamic_cast<const deadline_error*>(&one)) {
    to.kind = exception_kind::deadline;
    to.stall = late->stall();
  } else if (const auto* const about = dynamic_cast<const rank_error*>(&one)) {
    to.kind = dynamic_cast<const peer_lost_error*>(&one) != nullptr ? exception_kind::peer_lost
              : dynamic_cast<const joined_error*>(&one) != nullptr  ? exception_kind::joined
              : dynamic_cast<const data_error*>(&one) != nullptr    ? exception_kind::data
                                                                    : exception_kind::ranks;
    to.ranks = about->ranks();
  }
}

/// Fills the record and returns what is nested in the exception, null if nothing is.
template <class Any = void>
[[nodiscard]] std::exception_ptr describe(const std::exception_ptr& thrown, exception_record& to) {
  std::exception_ptr inner;
  const auto name = [&to](const std::type_info* type) {
    to.type = cut(type == nullptr ? "?" : thrown_type(*type), exception_text_limit);
  };
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& one) {
    name(&typeid(one));
    const char* const what = one.what();
    to.text = cut(what == nullptr ? "" : what, exception_text_limit);
    if (const auto* const system = dynamic_cast<const std::system_error*>(&one)) {
      describe_system_error(*system, to);
    }
    const auto* const nested = dynamic_cast<const std::nested_exception*>(&one);
    if (nested != nullptr) inner = nested->nested_ptr();
  } catch (const std::nested_exception& one) {
    name(abi::__cxa_current_exception_type());
    inner = one.nested_ptr();
  } catch (...) {
    name(abi::__cxa_current_exception_type());
  }
  if (to.kind == exception_kind::remote) return inner;  // its type is not this object's
  if (const auto known = exception_types::instance().find(to.type)) {
    to.kind = known->standard ? exception_kind::standard : exception_kind::registered;
    try {
      if (known->fields != nullptr) to.fields = known->fields(thrown);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (...) {  // its own wire_fields has thrown
      to.kind = exception_kind::other;
    }
  }
  return inner;
}

// --- Making an exception ------------------------------------------------------------------------

/// A system_error appends the text of its code to what it is given, so that is taken off first.
[[nodiscard]] inline std::string_view without_code(std::string_view what,
                                                   const std::error_code& code) {
  const std::string message = code.message();
  if (what == message) return {};
  if (what.size() >= message.size() + 2 && what.ends_with(message) &&
      what.substr(what.size() - message.size() - 2, 2) == ": ") {
    what.remove_suffix(message.size() + 2);
  }
  return what;
}

template <class Any = void>
[[nodiscard]] std::exception_ptr make_exception(const exception_record& from, int rank,
                                                const std::string& host,
                                                const std::exception_ptr& inner) {
  const std::string text = located_text(
      rank, host, from.type,
      has_code(from.kind) ? without_code(from.text, from.code) : std::string_view(from.text));
  switch (from.kind) {
    case exception_kind::standard:
    case exception_kind::registered:
      if (const auto known = exception_types::instance().find(from.type)) {
        try {
          return known->make(from, text, inner);
        } catch (const std::bad_alloc&) {
          throw;
        } catch (...) {  // its fields are not there, or are no value of the type
        }
      }
      break;
    case exception_kind::system:
      return nest(std::system_error(from.code, text), inner);
    case exception_kind::own:
      return nest(error(from.code, text), inner);
    case exception_kind::deadline:
      return nest(deadline_error(from.stall, text), inner);
    case exception_kind::peer_lost:
      return nest(peer_lost_error(from.ranks, text), inner);
    case exception_kind::joined:
      return nest(joined_error(from.ranks, text), inner);
    case exception_kind::data:
      return nest(data_error(from.ranks, text), inner);
    case exception_kind::ranks:
      if (from.code.category() != cohort_category()) break;
      return nest(rank_error(static_cast<errc>(from.code.value()), from.ranks, text), inner);
    case exception_kind::remote:
      return nest(remote_error(from.rank, from.host, from.type, from.text), inner);
    case exception_kind::other:
      break;
  }
  return nest(remote_error(rank, host, from.type, from.text), inner);
}

}  // namespace detail

template <class Any>
void encode_exception(wire::writer& out, const std::exception_ptr& thrown, int rank,
                      std::string_view host) {
  std::vector<detail::exception_record> levels;
  for (std::exception_ptr next = thrown;
       next != nullptr && levels.size() < exception_depth_limit;) {
    detail::exception_record one;
    next = detail::describe(next, one);
    if (next != nullptr && levels.size() + 1 == exception_depth_limit) {
      one.text.append(" (and more exceptions within)");
    }
    levels.push_back(std::move(one));
  }
  out.signed_varint(rank);
  out.text(host);
  out.put(levels);
}

template <class Any>
std::exception_ptr decode_exception(wire::reader& in) {
  const std::int64_t rank = in.signed_varint();
  if (rank < std::numeric_limits<int>::min() || rank > std::numeric_limits<int>::max()) {
    in.fail(wire_errc::bad_value);
  }
  const std::string host(in.text());
  std::vector<detail::exception_record> levels;
  const std::size_t count = in.count();
  if (count == 0 || count > exception_depth_limit) in.fail(wire_errc::bad_value);
  for (std::size_t i = 0; i < count && in.ok(); ++i) in.get(levels.emplace_back());
  if (!in.ok()) {
    return std::make_exception_ptr(error(in.error(), "an exception of another process"));
  }
  std::exception_ptr made;
  for (; !levels.empty(); levels.pop_back()) {
    made = detail::make_exception(levels.back(), static_cast<int>(rank), host, made);
  }
  return made;
}

template <class Any>
std::string describe_exception(const std::exception_ptr& thrown) {
  detail::exception_record one;
  static_cast<void>(detail::describe(thrown, one));
  if (one.kind == detail::exception_kind::remote) {
    return detail::located_text(one.rank, one.host, one.type, one.text);
  }
  return one.text.empty() ? one.type : one.type + ": " + one.text;
}

template <class T>
bool register_exception() {
  detail::exception_type one;
  one.name = detail::thrown_type(typeid(T));
  if constexpr (wire::detail::has_fields<T> || wire::detail::is_plain_aggregate<T>()) {
    one.fields = &detail::fields_of<T>;
    one.make = &detail::make_from_fields<T>;
  } else {
    static_assert(std::is_constructible_v<T, const std::string&>,
                  "an exception that travels needs wire_fields or a constructor from std::string");
    one.make = &detail::make_from_text<T>;
  }
  detail::exception_types::instance().add(std::move(one));
  return true;
}

}  // namespace cohort
