// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Types of a user: one that is a number, and one that is only bytes.

#include <cohort/core/element.hpp>

namespace test {

class metres {
 public:
  explicit metres(double value) : value_(value) {}
  friend bool operator==(const metres&, const metres&) = default;
  [[nodiscard]] double value() const { return value_; }

 private:
  double value_;
};
class stamp {
 public:
  stamp(int a, int b) : a_(a), b_(b) {}
  friend bool operator==(const stamp&, const stamp&) = default;

 private:
  int a_;
  int b_;
};

}  // namespace test

template <>
struct cohort::element_traits<test::metres> {
  using as = double;
};
template <>
struct cohort::element_traits<test::stamp> {
  using as = cohort::opaque;
};
