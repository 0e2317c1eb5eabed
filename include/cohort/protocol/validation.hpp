// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What differs between signatures, and failures in words.

#include <cohort/protocol/message.hpp>
#include <cohort/protocol/signature.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::protocol {

/// One field of a signature in which sides differ, with each side's value in words.
struct difference {
  std::string field;
  std::vector<std::string> values;  ///< one per side
};

/// All fields in which the sides differ, in the order of the signature.
[[nodiscard]] std::vector<difference> differences(const std::vector<side>& sides);

/// The line for a failed operation: what differs, who withdrew, which ranks are missing.
[[nodiscard]] std::string describe(std::string_view name, const verdict& why);

/// "float32".
[[nodiscard]] std::string element_name(const signature& sig);

/// "host".
[[nodiscard]] std::string_view name_of(memory_space space) noexcept;
/// "a deadline".
[[nodiscard]] std::string_view name_of(withdrawal_reason reason) noexcept;

// ---- implementation --------------------------------------------------------------------------

namespace detail {

/// A number as a person would write it.
[[nodiscard]] inline std::string plain(double value) {
  std::string text = std::to_string(value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

/// How a persistent group is started, by the `detail` of an all_reduce.
[[nodiscard]] inline std::string start_text(const signature& sig) {
  if (sig.detail < 2) return sig.detail == 0 ? "plain" : "capture";
  return "replay of what start " + std::to_string(sig.detail - 1) + " captured";
}

template <class Get>
void compare(std::vector<difference>& result, const std::vector<side>& sides,
             std::string_view field, Get get) {
  difference one{std::string(field), {}};
  for (const side& each : sides) one.values.push_back(get(each.sig));
  const bool same = std::all_of(one.values.begin(), one.values.end(),
                                [&](const std::string& value) { return value == one.values[0]; });
  if (!same) result.push_back(std::move(one));
}

}  // namespace detail

inline std::string element_name(const signature& sig) {
  static constexpr std::string_view names[] = {
      "int8",        "int16",     "int32",      "int64",
      "uint8",       "uint16",    "uint32",     "uint64",
      "float16",     "bfloat16",  "float32",    "float64",
      "long double", "complex64", "complex128", "complex long double",
      "bool",        "byte"};
  if (sig.element < std::size(names)) return std::string(names[sig.element]);
  return "a type of " + std::to_string(sig.element_size) + " bytes";
}

inline std::string_view name_of(memory_space space) noexcept {
  switch (space) {
    case memory_space::host:
      return "host";
    case memory_space::pinned:
      return "pinned";
    case memory_space::device:
      return "device";
    case memory_space::managed:
      return "managed";
  }
  return "?";
}

inline std::string_view name_of(withdrawal_reason reason) noexcept {
  switch (reason) {
    case withdrawal_reason::cancelled:
      return "cancelled";
    case withdrawal_reason::deadline:
      return "deadline";
    case withdrawal_reason::duplicate:
      return "the name is in use";
    case withdrawal_reason::invalid:
      return "invalid arguments";
    case withdrawal_reason::no_decision:
      return "no decision in time";
  }
  return "?";
}

inline std::vector<difference> differences(const std::vector<side>& sides) {
  std::vector<difference> result;
  if (sides.empty()) return result;
  const auto check = [&](std::string_view field, auto get) {
    detail::compare(result, sides, field, get);
  };
  check("kind", [](const signature& s) { return std::string(name_of(s.kind)); });
  check("type", element_name);
  check("element size", [](const signature& s) { return std::to_string(s.element_size); });
  check("shape", [](const signature& s) { return s.dimensions.str(); });
  check("reduction",
        [](const signature& s) { return name_of(static_cast<reduction_code>(s.reduction)); });
  check("prescale", [](const signature& s) { return detail::plain(s.prescale); });
  check("postscale", [](const signature& s) { return detail::plain(s.postscale); });
  const bool moves = sides[0].sig.kind == op_kind::message;
  check(moves ? "source" : "root", [](const signature& s) { return std::to_string(s.root); });
  check("memory", [](const signature& s) { return std::string(name_of(s.space)); });
  check("priority", [](const signature& s) { return std::to_string(s.priority); });
  check("group members", [](const signature& s) { return "{" + s.members + "}"; });
  check("place in a fusion arena",
        [](const signature& s) { return s.places.empty() ? std::string("none") : s.places; });
  check("divisor", [](const signature& s) {
    return std::string(s.has(signature_flag::divide_by_all) ? "all" : "active");
  });
  check("compression", [](const signature& s) {
    return std::string(s.has(signature_flag::half_on_wire) ? "16 bit" : "none");
  });
  check("options", [](const signature& s) {
    return std::to_string(s.flags & static_cast<unsigned>(~(signature_flag::divide_by_all |
                                                            signature_flag::half_on_wire)));
  });
  if (std::all_of(sides.begin(), sides.end(),
                  [](const side& each) { return each.sig.kind == op_kind::all_reduce; })) {
    check("start", detail::start_text);
    return result;
  }
  const std::string_view last = is_persistent(sides[0].sig.kind) ? "starts" : "detail";
  check(moves ? "destination" : last, [](const signature& s) { return std::to_string(s.detail); });
  return result;
}

inline std::string describe(std::string_view name, const verdict& why) {
  std::string text = "'" + std::string(name) + "': ";
  switch (why.kind) {
    case failure_kind::mismatch: {
      bool first = true;
      for (const difference& one : differences(why.sides)) {
        text += std::string(first ? "" : "; ") + one.field + " differs:";
        for (std::size_t i = 0; i < why.sides.size(); ++i) {
          text += std::string(i == 0 ? " " : ", ") + one.values[i] + " on " +
                  ranks_text(why.sides[i].ranks);
          if (first) text += " (" + why.sides[i].site.str() + ")";
        }
        first = false;
      }
      break;
    }
    case failure_kind::withdrawn:
      text += "withdrawn by rank " + std::to_string(why.rank) + " (" +
              std::string(name_of(why.reason)) + ")";
      if (why.asked) {
        text += ", ready: " + ranks_text(why.ready) + ", missing: " + ranks_text(why.missing);
        if (!why.silent.empty()) text += ", silent: " + ranks_text(why.silent);
        if (!why.unknown.empty()) text += ", unknown: " + ranks_text(why.unknown);
      }
      break;
    case failure_kind::joined:
      text += "needs data of " + ranks_text(why.ranks) + ", joined";
      break;
    case failure_kind::peer_lost:
      if (!why.text.empty()) {
        text += "needs rank " + std::to_string(why.rank) + ", which has left: " + why.text;
        if (why.ranks.size() > 1) text += " (left: " + ranks_text(why.ranks) + ")";
        break;
      }
      text += "needs a rank that has left: " + ranks_text(why.ranks);
      if (!why.unknown.empty()) text += " (abandoned: " + ranks_text(why.unknown) + ")";
      break;
    case failure_kind::data:
      text += "a data operation failed on rank " + std::to_string(why.rank) + ": " + why.text;
      break;
  }
  return text;
}

}  // namespace cohort::protocol
