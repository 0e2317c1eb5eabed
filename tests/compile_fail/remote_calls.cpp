// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#include <cohort/cluster/function.hpp>

#include <string>
#include <string_view>
#include <vector>

// expect: a remote function cannot take T&, it would change a copy: return the new value
void double_it(std::vector<double>& values);
cohort::cluster::payload call_changing(std::vector<double>& values) {
  return cohort::cluster::encode_arguments<&double_it>(values);
}

// expect: a remote function cannot change the caller's elements: take std::span<const T>
void double_all(std::span<double> values);
cohort::cluster::payload call_of_mutable_span(std::vector<double>& values) {
  return cohort::cluster::encode_arguments<&double_all>(values);
}

// expect: this type cannot travel
struct opaque {
  explicit opaque(int);
  int value;
};
int take(const opaque& one);
cohort::cluster::payload call_of_opaque(const opaque& one) {
  return cohort::cluster::encode_arguments<&take>(one);
}

// expect: a remote function cannot take a pointer, it would point into another process
double first(const double* values);
cohort::cluster::payload call_of_pointer(const std::vector<double>& values) {
  return cohort::cluster::encode_arguments<&first>(values.data());
}

// expect: a remote function takes spans of trivially copyable elements: take std::vector
int count(std::span<const std::string> names);
cohort::cluster::payload call_of_span_of_strings(const std::vector<std::string>& names) {
  return cohort::cluster::encode_arguments<&count>(names);
}

// expect: a remote function is a function or a captureless lambda, and no template
cohort::cluster::payload call_of_template() {
  return cohort::cluster::encode_arguments<[](auto value) { return value; }>(1);
}

// expect: a remote function cannot return a view, a reference or a pointer
asio::awaitable<const double*> values();
std::size_t call_returning_pointer() { return cohort::cluster::remote<&values>::index(); }

// expect: a remote function cannot return a view, a reference or a pointer
std::string_view name_of(int number);
std::size_t call_returning_view() { return cohort::cluster::remote<&name_of>::index(); }

// expect: an argument of the call does not convert to the function's parameter
double half(double value);
cohort::cluster::payload call_with_other_type() {
  return cohort::cluster::encode_arguments<&half>("two");
}

// expect: the call has not as many arguments as the remote function has parameters
double power(double base, int exponent);
cohort::cluster::payload call_with_too_few() {
  return cohort::cluster::encode_arguments<&power>(2.0);
}
