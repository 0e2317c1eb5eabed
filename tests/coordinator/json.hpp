// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A strict JSON reader for tests: it throws at whatever RFC 8259 does not allow.

#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort_test {

/// A value; which of the members counts depends on the kind.
struct json {
  enum class type { null, boolean, number, string, array, object };

  type kind = type::null;
  bool truth = false;
  std::string text;               ///< of a string, decoded; of a number, as it was written
  std::vector<json> items;        ///< of an array, or the values of an object
  std::vector<std::string> keys;  ///< of an object

  [[nodiscard]] const json* find(std::string_view key) const {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == key) return &items[i];
    }
    return nullptr;
  }
  [[nodiscard]] const json& operator[](std::string_view key) const {
    if (const json* found = find(key)) return *found;
    throw std::runtime_error("JSON: no member " + std::string(key));
  }
  [[nodiscard]] double number() const {
    if (kind != type::number) throw std::runtime_error("JSON: not a number: " + text);
    return std::strtod(text.c_str(), nullptr);
  }
};

class json_reader {
 public:
  explicit json_reader(std::string_view text) : rest_(text) {}

  json whole() {
    json result = value(0);
    space();
    if (!rest_.empty()) fail("something follows");
    return result;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw std::runtime_error(std::string("JSON: ") + what + " at '" +
                             std::string(rest_.substr(0, 40)) + "'");
  }
  void space() {  // a timeline has many in one place
    const char* at = rest_.data();
    const char* const end = at + rest_.size();
    while (at != end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n')) ++at;
    rest_.remove_prefix(static_cast<std::size_t>(at - rest_.data()));
  }
  char take() {
    if (rest_.empty()) fail("the end");
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  [[nodiscard]] char peek() const { return rest_.empty() ? '\0' : rest_.front(); }
  void expect(std::string_view what) {
    if (!rest_.starts_with(what)) fail("something else");
    rest_.remove_prefix(what.size());
  }

  json value(int depth) {
    if (depth > 50) fail("too deep");
    space();
    json result;
    switch (peek()) {
      case '{':
        result.kind = json::type::object;
        list('}', [&] {
          space();
          std::string key = string();
          space();
          expect(":");
          if (result.find(key) != nullptr) fail("a key twice");
          result.keys.push_back(std::move(key));
          result.items.push_back(value(depth + 1));
        });
        break;
      case '[':
        result.kind = json::type::array;
        list(']', [&] { result.items.push_back(value(depth + 1)); });
        break;
      case '"':
        result.kind = json::type::string;
        result.text = string();
        break;
      case 't':
      case 'f':
        result.kind = json::type::boolean;
        result.truth = peek() == 't';
        expect(result.truth ? "true" : "false");
        break;
      case 'n':
        expect("null");
        break;
      default:
        result.kind = json::type::number;
        result.text = number();
    }
    return result;
  }

  template <class Item>
  void list(char end, Item item) {
    take();
    space();
    if (peek() == end) {
      take();
      return;
    }
    for (;;) {
      item();
      space();
      const char c = take();
      if (c == end) return;
      if (c != ',') fail("no comma");
    }
  }

  std::string number() {
    const std::string_view before = rest_;
    const auto digits = [this] {
      if (std::isdigit(static_cast<unsigned char>(peek())) == 0) fail("no digit");
      while (std::isdigit(static_cast<unsigned char>(peek())) != 0) take();
    };
    if (peek() == '-') take();
    if (peek() == '0') {
      take();
    } else {
      digits();
    }
    if (peek() == '.') {
      take();
      digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      take();
      if (peek() == '-' || peek() == '+') take();
      digits();
    }
    return std::string(before.substr(0, before.size() - rest_.size()));
  }

  std::string string() {
    std::string result;
    expect("\"");
    for (;;) {
      const auto c = static_cast<unsigned char>(take());
      if (c == '"') return result;
      if (c < 0x20) fail("a control character");
      if (c == '\\') {
        result += escape();
      } else {
        result += static_cast<char>(c);
        if (c >= 0x80) tail(c, result);
      }
    }
  }

  std::string escape() {
    const char c = take();
    constexpr std::string_view letters = "\"\\/bfnrt";
    constexpr std::string_view meaning = "\"\\/\b\f\n\r\t";
    if (const std::size_t at = letters.find(c); at < letters.size()) return {meaning[at]};
    if (c != 'u') fail("an escape");
    unsigned code = 0;
    for (int i = 0; i < 4; ++i) {
      const char digit = take();
      if (std::isxdigit(static_cast<unsigned char>(digit)) == 0) fail("a hexadecimal digit");
      const char one[] = {digit, '\0'};
      code = 16 * code + static_cast<unsigned>(std::strtoul(one, nullptr, 16));
    }
    if (code >= 0x80) fail("an escape that this reader does not know");
    return {static_cast<char>(code)};
  }

  // The rest of a UTF-8 sequence, decoded, so that overlong and surrogate forms are seen.
  void tail(unsigned first, std::string& result) {
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC0 || first > 0xF7) fail("not UTF-8");
    unsigned code = first & (0x3FU >> static_cast<unsigned>(more));
    for (int i = 0; i < more; ++i) {
      const auto c = static_cast<unsigned char>(take());
      if ((c & 0xC0U) != 0x80) fail("not UTF-8");
      code = (code << 6U) | (c & 0x3FU);
      result += static_cast<char>(c);
    }
    const unsigned least[] = {0, 0x80, 0x800, 0x10000};
    if (code < least[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      fail("not UTF-8");
    }
  }

  std::string_view rest_;
};

inline json parse_json(std::string_view text) { return json_reader(text).whole(); }

}  // namespace cohort_test
