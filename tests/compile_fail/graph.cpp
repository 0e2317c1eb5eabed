// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#include <cohort/graph.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace graph = cohort::graph;

double add(double a, double b);
double total(std::span<const double> all);

// expect: a task cannot take T& or std::span<T>, it would change what others read
void change(std::vector<double>& values);
void name_changing(graph::scope& s) { static_cast<void>(s.tasks<&change>("f")); }

// expect: a task cannot take T& or std::span<T>
void change_all(std::span<double> values);
void name_changing_span(graph::scope& s) { static_cast<void>(s.tasks<&change_all>("f")); }

// expect: a task cannot return a view, a reference or a pointer
std::string_view name_of(int number);
void name_of_view(graph::scope& s) { static_cast<void>(s.tasks<&name_of>("f")); }

// expect: the function of a task is a function or a captureless lambda, and no template
void name_of_template(graph::scope& s) {
  static_cast<void>(s.tasks<[](auto value) { return value; }>("f"));
}

// expect: spawn: there are not as many arguments as the function has parameters
void spawn_with_one(graph::scope& s) { s.tasks<&add>("f")(1).spawn(1.0); }

// expect: spawn: an argument does not convert to the parameter that it fills
void spawn_with_text(graph::scope& s) { s.tasks<&add>("f")(1).spawn(1.0, "two"); }

// expect: spawn: a task has a value of another type than the parameter it fills
void spawn_with_other(graph::scope& s) {
  s.tasks<&add>("f")(1).spawn(1.0, s.tasks<int>("source")(1));
}

// expect: spawn: a task has a value of another type than the parameter it fills
void spawn_taking_other(graph::scope& s) {
  s.tasks<&add>("f")(1).spawn(1.0, graph::take(s.tasks<float>("source")(1)));
}

// expect: spawn: a range of tasks with values of type T fills a std::span<const T>
void spawn_with_range_of_other(graph::scope& s) {
  const std::vector<graph::task<int>> all;
  s.tasks<&total>("f")(1).spawn(all);
}

// expect: spawn: a range of tasks with values of type T fills a std::span<const T>
void spawn_taking_range_for_span(graph::scope& s) {
  const std::vector<graph::task<double>> all;
  s.tasks<&total>("f")(1).spawn(graph::take(all));
}

// expect: spawn: the type of an argument has no wire format: give it wire_fields
class opaque {
 public:
  explicit opaque(std::string text) : text_(std::move(text)) {}

 private:
  std::string text_;
};
void own(opaque one);
void spawn_with_opaque(graph::scope& s) { s.tasks<&own>("f")(1).spawn(opaque("text")); }

// expect: put: this is no value of the type that the task has
void put_text(graph::scope& s) { s.tasks<int>("source")(1).put("two"); }

// expect: six indices name a task at most
void name_with_seven(graph::scope& s) {
  static_cast<void>(s.tasks<int>("source")(1, 2, 3, 4, 5, 6, 7));
}

// expect: the indices of a task are integers
void name_with_fraction(graph::scope& s) { static_cast<void>(s.tasks<int>("source")(1.5)); }

// expect: a value that is awaited has a default constructor
struct no_default {
  explicit no_default(int);
};
void await_without_default(graph::scope& s) {
  static_cast<void>(s.tasks<no_default>("source")(1).get());
}

// expect: run: the program of a scope is a function or a captureless lambda
void run_capturing(const graph::tasks& all, int n) {
  all.run("name", [n](graph::scope& s) -> asio::awaitable<void> {
    static_cast<void>(s.tasks<int>("source")(n));
    co_return;
  });
}

// expect: run: the program of a scope is a coroutine: it returns asio::awaitable<T>
void no_coroutine(graph::scope& s);
void run_no_coroutine(const graph::tasks& all) {
  static_cast<void>(all.run("name", &no_coroutine));
}

// expect: run: the program of a scope gets copies of its arguments
asio::awaitable<void> fill(graph::scope& s, std::vector<int>& all);
void run_with_reference(const graph::tasks& all, std::vector<int>& into) {
  static_cast<void>(all.run("name", &fill, into));
}

// expect: the parameters of a placement are trivially copyable
int near(graph::indices all, int ranks, const std::string& text);
graph::placement place_by_text() { return graph::placement::by<&near>(std::string("here")); }

// expect: cached: these are sources, and nothing is run for them
void cache_sources(graph::scope& s) { static_cast<void>(s.tasks<int>("source").cached()); }

// expect: cached: the result has no wire format, or no default constructor
class handle {
 public:
  explicit handle(int* to) : to_(to) {}

 private:
  int* to_;
};
handle open_handle(int number);
void cache_handle(graph::scope& s) { static_cast<void>(s.tasks<&open_handle>("f").cached(1)); }
