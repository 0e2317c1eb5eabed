// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Values of the checker: they know what they are, and notice when somebody reads them after
/// they have been moved (graph M3).

#include "graph/job.hpp"

#include <cohort/graph/machine/content.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace graph_test {

/// What is known of a value for as long as anybody asks, also when it is not there any more.
struct value_state {
  bool moved = false;
  bool gone = false;  // nobody holds the content
};

class test_value final : public content {
 public:
  struct facts {
    key of;
    std::int32_t window = 0;
    std::uint32_t size = 1;
    std::uint64_t value = 0;
  };
  static_assert(sizeof(facts) == unit);
  /// What travels with it. [graph U4]
  [[nodiscard]] static value_hash hash_of(const facts& what) {
    return std::bit_cast<value_hash>(what);
  }

  test_value(const facts& what, bool travels) : what_(what), travels_(travels) {}
  test_value(const test_value&) = delete;
  test_value& operator=(const test_value&) = delete;
  ~test_value() override { state_->gone = true; }

  [[nodiscard]] bool travels() const noexcept override { return travels_; }
  [[nodiscard]] std::span<const std::byte> bytes() override {
    check(travels_, "S5 a value without a wire format is encoded");
    static_cast<void>(read());
    if (encoded_.empty()) {
      encoded_.resize(what_.size * unit);
      std::memcpy(encoded_.data(), &what_, sizeof(facts));
    }
    return encoded_;
  }
  [[nodiscard]] const facts& read() const {
    check(!state_->moved, "M3 a value that was moved is read");
    return what_;
  }
  [[nodiscard]] const facts& identity() const { return what_; }
  [[nodiscard]] bool moved() const { return state_->moved; }
  void move() { state_->moved = true; }
  [[nodiscard]] const std::shared_ptr<value_state>& state() const { return state_; }

 private:
  facts what_;
  bool travels_;
  std::shared_ptr<value_state> state_ = std::make_shared<value_state>();
  std::vector<std::byte> encoded_;
};

/// The value that a content is, made of its bytes if it has come from another rank.
inline test_value& value_of(content& one) {
  if (auto* here = dynamic_cast<test_value*>(&one)) return *here;
  auto& there = dynamic_cast<arrived_content&>(one);
  if (!there.decoded) {
    test_value::facts what;
    const std::span<const std::byte> bytes = there.bytes();
    check(bytes.size() >= sizeof(what), "a value has arrived as ", bytes.size(), " bytes");
    std::memcpy(&what, bytes.data(), sizeof(what));
    there.decoded = content_ptr(new test_value(what, true));
  }
  return static_cast<test_value&>(*there.decoded);
}

}  // namespace graph_test
