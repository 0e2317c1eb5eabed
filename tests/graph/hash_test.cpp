// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The semantic hash: what it covers, and what it does not.

#include <cohort/core/error.hpp>
#include <cohort/core/wire_std.hpp>
#include <cohort/graph/task_hash.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/hash_support.hpp"
#include "support/catch.hpp"

using namespace cohort::graph;
using hash_test::scaled;

static int same_name(int value) { return value + 1; }

namespace {

int overloaded(int value) { return value / 2; }
double overloaded(double value) { return value / 2; }

task_hash source_of(int value) { return source_hash<int>(value); }

function_identity fivefold() { return function_identity::of<&scaled<5>>(1); }

constexpr auto lambda = [](int value) { return value; };

/// The hash of a task whose parameters the argument tells.
task_hash hash_of(auto&& parameters, const function_identity& what = fivefold()) {
  task_hasher hasher(what);
  parameters(hasher);
  return hasher.finish();
}

std::string text_of(auto&& call) {
  try {
    static_cast<void>(call());
  } catch (const cohort::error& problem) {
    return problem.what();
  }
  return {};
}

/// Has a hash, as a task of a scope and the context of a running one have.
struct fake_task {
  [[nodiscard]] task_hash hash() const { return source_of(5); }
};

}  // namespace

TEST_CASE("hashes are the same in all programs, on all machines, with all compilers") {
  // These change with the encoding only: then the numbers of the domains must change.
  CHECK(source_of(7).text() == "a30fe114b998d721457c876dbf58149e862e92df7fbce38356c63413d937814d");
  task_hasher hasher(function_identity::of<&scaled<2>>("1"));
  hasher.value<int>(3);
  CHECK(hasher.finish().text() ==
        "3283484838c2148ed82105e0a2fab62f99ccfc264fab4d35f4faf8444219a52f");
}

TEST_CASE("a hash is a value: it compares, is a key, travels and is a text") {
  const task_hash one = source_of(1);
  CHECK(one == source_of(1));
  CHECK(one != source_of(2));
  CHECK(task_hash() < one);
  CHECK(task_hash().text() == std::string(64, '0'));
  CHECK(one.text().size() == 64);
  CHECK(one.text().find_first_not_of("0123456789abcdef") == std::string::npos);

  std::unordered_set<task_hash> all;
  for (int i = 0; i < 100; ++i) all.insert(source_of(i % 50));
  CHECK(all.size() == 50);
  CHECK(all.contains(one));

  std::vector<std::byte> bytes;
  cohort::wire::writer(bytes).put(one);
  CHECK(bytes.size() == 32);
  CHECK(cohort::wire::reader(bytes).get<task_hash>() == one);

  const fake_task task;
  CHECK(task_hash(task) == source_of(5));
}

TEST_CASE("the type and the value of a source are covered") {
  CHECK(source_hash<int>(1) != source_hash<unsigned>(1));
  CHECK(source_hash<float>(0) != source_hash<int>(0));
  CHECK(source_hash<std::string>("a") != source_hash<std::string>("b"));
  std::vector<std::byte> bytes;
  cohort::wire::writer(bytes).put(std::string("a"));
  CHECK(encoded_source_hash(typeid(std::string).name(), bytes) == source_hash<std::string>("a"));
}

TEST_CASE("how the parameters are filled is covered, in their order") {
  const task_hash x = source_of(1);
  const task_hash y = source_of(2);
  // Each of these computes something else, though many have the same values, or the same tasks.
  const std::vector<task_hash> all{
      hash_of([](task_hasher&) {}),
      hash_of([](task_hasher& h) { h.value<int>(1); }),
      hash_of([](task_hasher& h) { h.value<int>(2); }),
      hash_of([](task_hasher& h) { h.value<std::int64_t>(1); }),
      hash_of([](task_hasher& h) { h.value<int>(1), h.value<int>(2); }),
      hash_of([](task_hasher& h) { h.value<std::pair<int, int>>({1, 2}); }),
      hash_of([&](task_hasher& h) { h.task(x, use_kind::plain), h.value<int>(1); }),
      hash_of([&](task_hasher& h) { h.value<int>(1), h.task(x, use_kind::plain); }),
      hash_of([&](task_hasher& h) { h.task(x, use_kind::plain); }),
      hash_of([&](task_hasher& h) { h.task(x, use_kind::take); }),
      hash_of([&](task_hasher& h) { h.task(x, use_kind::after); }),
      hash_of([&](task_hasher& h) { h.value<task_hash>(x); }),
      hash_of([&](task_hasher& h) { h.task(x, use_kind::plain), h.task(y, use_kind::plain); }),
      hash_of([&](task_hasher& h) { h.task(y, use_kind::plain), h.task(x, use_kind::plain); }),
      hash_of([&](task_hasher& h) {
        h.range(2), h.task(x, use_kind::plain), h.task(y, use_kind::plain);
      }),
      hash_of([&](task_hasher& h) {
        h.range(1), h.task(x, use_kind::plain), h.task(y, use_kind::plain);
      }),
      hash_of([&](task_hasher& h) {
        h.range(1), h.task(x, use_kind::plain), h.range(1), h.task(y, use_kind::plain);
      }),
      hash_of([&](task_hasher& h) {
        h.range(2), h.task(x, use_kind::plain), h.task(y, use_kind::plain), h.range(0);
      }),
      hash_of([&](task_hasher& h) {
        h.range(0), h.range(2), h.task(x, use_kind::plain), h.task(y, use_kind::plain);
      }),
  };
  CHECK(std::set<task_hash>(all.begin(), all.end()).size() == all.size());
  CHECK(hash_of([](task_hasher& h) { h.value<int>(1); }) == all[1]);
}

TEST_CASE("the hash of a task is none of a source, and covers what is below it to the bottom") {
  const auto chain = [](int first) {
    task_hash last = source_of(first);
    for (int i = 0; i < 100; ++i) last = hash_of([&](task_hasher& h) { h.task(last, {}); });
    return last;
  };
  CHECK(chain(1) == chain(1));
  CHECK(chain(1) != chain(2));
  std::vector<std::byte> bytes(4);
  CHECK(hash_of([&](task_hasher& h) { h.encoded_value(bytes); }) != encoded_source_hash("", bytes));
}

TEST_CASE("a function is its name, its template arguments, its type and its version") {
  const std::vector<function_identity> all{
      function_identity::of<&scaled<2>>(1),
      function_identity::of<&scaled<3>>(1),
      function_identity::of<&scaled<2>>(2),
      function_identity::of<&scaled<2>>("one"),
      function_identity::of<&scaled<2>>(),
      function_identity::of<static_cast<int (*)(int)>(&overloaded)>(1),
      function_identity::of<static_cast<double (*)(double)>(&overloaded)>(1),
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(std::count(all.begin(), all.end(), all[i]) == 1);
  }
  CHECK(function_identity::of<&scaled<2>>("1") == all[0]);
  CHECK(hash_test::other_scaled(1) == all[0]);
  CHECK(function_identity::of<&scaled<2>>() == all[4]);
}

TEST_CASE("without a version, functions of one name are told apart by their place") {
  CHECK_FALSE(function_identity::of<&same_name>() == hash_test::other_same_name());
  constexpr auto first = [](int value) { return value; };
  constexpr auto second = [](int value) { return value + 1; };
  CHECK_FALSE(function_identity::of<first>() == function_identity::of<second>());
  CHECK(function_identity::of<first>() == function_identity::of<first>());
}

TEST_CASE("a second function of one name and version is refused") {
  static_cast<void>(function_identity::of<&same_name>("v1"));
  static_cast<void>(function_identity::of<&same_name>("v1"));
  const std::string text = text_of([] { return hash_test::other_same_name("v1"); });
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("two functions of this program are called "
                                                      "same_name and have version 'v1'"));
  CHECK(text_of([] { return hash_test::other_same_name("v2"); }).empty());
}

TEST_CASE("a lambda cannot have a version, nor what is made of one, and no version is empty") {
  using Catch::Matchers::ContainsSubstring;
  CHECK_THAT(text_of([] { return function_identity::of<lambda>(1); }),
             ContainsSubstring("a lambda has no name that lasts"));
  CHECK_THAT(text_of([] { return function_identity::of<&hash_test::through<lambda>>(1); }),
             ContainsSubstring("a lambda has no name that lasts"));
  CHECK_THAT(text_of([] { return function_identity::of<&scaled<2>>(""); }),
             ContainsSubstring("the version of a function is empty"));
}
