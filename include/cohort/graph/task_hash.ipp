// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of `graph/task_hash.hpp`.

#include <cohort/core/error.hpp>
#include <cohort/graph/task_hash.hpp>

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

namespace cohort::graph {

namespace detail {

// What is hashed begins with what it is, and the number of this way to write it down, which is
// changed together with it, or with the encoding of core/wire.hpp.
inline constexpr std::string_view function_domain = "cohort function 1";
inline constexpr std::string_view task_domain = "cohort task 1";
inline constexpr std::string_view source_domain = "cohort source 1";

// Everything is written with its length, or has a length that is known: no two sequences of calls
// write the same bytes.
COHORT_INLINE void add_number(sha256& hash, std::uint64_t value) noexcept {
  hash.update(wire::detail::to_wire(value));
}
COHORT_INLINE void add_bytes(sha256& hash, std::span<const std::byte> bytes) noexcept {
  add_number(hash, bytes.size());
  hash.update(bytes);
}
COHORT_INLINE void add_text(sha256& hash, std::string_view text) noexcept {
  add_bytes(hash, std::as_bytes(std::span(text.data(), text.size())));
}
COHORT_INLINE void add_tag(sha256& hash, char tag) noexcept {
  hash.update(std::array{static_cast<std::byte>(tag)});
}

/// Whether the name is one that the compiler has made up, by counting: lambdas and unnamed types.
COHORT_INLINE bool is_made_up(const function_facts& facts) {
  const auto has = [](std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
  };
  if (has(facts.mangled, "$_") || has(facts.name, "<lambda") || has(facts.name, "(lambda at")) {
    return true;
  }
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(std::string(facts.mangled).c_str(), nullptr, nullptr, &status),
      &std::free);
  if (readable == nullptr) return false;
  const std::string_view text(readable.get());
  return has(text, "{lambda(") || has(text, "'lambda") || has(text, "{unnamed") ||
         has(text, "'unnamed");
}

/// The functions of this process that have versions.
struct versioned_functions {
  std::mutex mutex;
  std::vector<std::pair<sha256_digest, code_place>> all;
};

COHORT_INLINE versioned_functions& versioned() {
  static versioned_functions& one = *new versioned_functions;  // never destroyed
  return one;
}

}  // namespace detail

COHORT_INLINE std::string task_hash::text() const {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes_.size());
  for (const std::byte one : bytes_) {
    text.push_back(digits[std::to_integer<std::size_t>(one) >> 4U]);
    text.push_back(digits[std::to_integer<std::size_t>(one) & 15U]);
  }
  return text;
}

COHORT_INLINE function_version::function_version(std::string text) : text_(std::move(text)) {
  if (text_.empty())
    throw cohort::error(errc::invalid_argument, "the version of a function is empty");
}

COHORT_INLINE function_identity function_identity::of_build(const detail::function_facts& facts) {
  const code_place place = place_of(facts.code);
  if (program_id() == "unknown" || place.module == "unknown") {
    throw cohort::error(
        errc::not_supported,
        "function " + std::string(facts.name) +
            " can only be hashed with a version: the program has no build id, and its file "
            "cannot be read");
  }
  sha256 hash;
  detail::add_text(hash, detail::function_domain);
  detail::add_text(hash, facts.mangled);
  detail::add_text(hash, facts.type);
  detail::add_tag(hash, 'b');
  detail::add_text(hash, program_id());
  detail::add_text(hash, place.module);
  detail::add_number(hash, place.offset);
  return function_identity(hash.finish());
}

COHORT_INLINE function_identity function_identity::of_version(const detail::function_facts& facts,
                                                              const function_version& version) {
  if (detail::is_made_up(facts)) {
    throw cohort::error(errc::invalid_argument,
                        "function " + std::string(facts.name) + " cannot have version '" +
                            version.text() +
                            "': a lambda has no name that lasts from one build to "
                            "the next");
  }
  sha256 hash;
  detail::add_text(hash, detail::function_domain);
  detail::add_text(hash, facts.mangled);
  detail::add_text(hash, facts.type);
  detail::add_tag(hash, 'v');
  detail::add_text(hash, version.text());
  const function_identity made(hash.finish());

  // In two libraries it may be one function that each of them has.
  code_place place = place_of(facts.code);
  detail::versioned_functions& versioned = detail::versioned();
  const std::lock_guard guard(versioned.mutex);
  for (const auto& [bytes, other] : versioned.all) {
    if (bytes != made.bytes_ || other.module != place.module) continue;
    if (other.offset == place.offset) return made;
    throw cohort::error(errc::invalid_argument, "two functions of this program are called " +
                                                    std::string(facts.name) +
                                                    " and have version '" + version.text() +
                                                    "': give them other names or versions");
  }
  versioned.all.emplace_back(made.bytes_, std::move(place));
  return made;
}

COHORT_INLINE task_hasher::task_hasher(const function_identity& function) noexcept {
  detail::add_text(hash_, detail::task_domain);
  hash_.update(function.bytes());
}

COHORT_INLINE void task_hasher::encoded_value(std::span<const std::byte> bytes) noexcept {
  detail::add_tag(hash_, 'v');
  detail::add_bytes(hash_, bytes);
}

COHORT_INLINE void task_hasher::task(const task_hash& what, machine::use_kind use) noexcept {
  switch (use) {
    case machine::use_kind::plain:
      detail::add_tag(hash_, 'p');
      break;
    case machine::use_kind::take:
      detail::add_tag(hash_, 't');
      break;
    case machine::use_kind::after:
      detail::add_tag(hash_, 'a');
      break;
  }
  hash_.update(what.bytes());
}

COHORT_INLINE void task_hasher::range(std::size_t count) noexcept {
  detail::add_tag(hash_, 'r');
  detail::add_number(hash_, count);
}

COHORT_INLINE task_hash encoded_source_hash(std::string_view type,
                                            std::span<const std::byte> value) noexcept {
  sha256 hash;
  detail::add_text(hash, detail::source_domain);
  detail::add_text(hash, type);
  detail::add_bytes(hash, value);
  return task_hash(hash.finish());
}

}  // namespace cohort::graph
