// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Exceptions as bytes and back, and the errors of many ranks in one.

#include <cohort/cluster/error.hpp>
#include <cohort/core/asio.hpp>

#include <any>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

namespace cluster = cohort::cluster;
using bytes = std::vector<std::byte>;
using cohort::errc;
using cohort::outcome;

// Outside the unnamed namespace, so that their names are known.
namespace error_test {

/// Travels by its text.
struct by_text : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Travels by its fields.
class by_fields : public std::exception {
 public:
  int line = 0;
  std::string file;
  const char* what() const noexcept override { return "by fields"; }
};
template <class Archive>
void wire_fields(Archive& archive, by_fields& one) {
  archive(one.line, one.file);
}

/// No std::exception at all, an aggregate.
struct by_members {
  int number = 0;
};

struct unknown : std::logic_error {
  using std::logic_error::logic_error;
};
struct no_exception {
  explicit no_exception(int) {}
};

class category final : public std::error_category {
 public:
  explicit category(const char* name) : name_(name) {}
  const char* name() const noexcept override { return name_; }
  std::string message(int value) const override { return "mine " + std::to_string(value); }

 private:
  const char* name_;
};

}  // namespace error_test

namespace {

bytes encoded(const std::exception_ptr& thrown, int rank = 2, std::string_view host = "node7") {
  bytes out;
  cohort::wire::writer to(out);
  cluster::encode_exception(to, thrown, rank, host);
  return out;
}

std::exception_ptr decoded(const bytes& from) {
  cohort::wire::reader in(from);
  auto error = cluster::decode_exception(in);
  CHECK(in.ok());
  CHECK(in.left() == 0);
  return error;
}

template <class T>
std::exception_ptr sent(T&& exception) {
  return decoded(encoded(std::make_exception_ptr(std::forward<T>(exception))));
}

/// The exception as exactly this type; null if it has another one.
template <class T>
std::optional<T> as(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const T& one) {
    if (typeid(one) == typeid(T)) return one;
  } catch (...) {
  }
  return std::nullopt;
}

std::string text_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& one) {
    return one.what();
  } catch (...) {
    return "?";
  }
}

template <class T>
bool caught_as(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const T&) {
    return true;
  } catch (...) {
    return false;
  }
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEMPLATE_TEST_CASE("exceptions of <stdexcept> come back as their own types with their place", "",
                   std::runtime_error, std::logic_error, std::invalid_argument, std::domain_error,
                   std::length_error, std::out_of_range, std::range_error, std::overflow_error,
                   std::underflow_error) {
  const auto one = as<TestType>(sent(TestType("the text")));
  REQUIRE(one.has_value());
  const std::string what = one->what();
  CHECK(what.starts_with("rank 2 (node7): std::"));
  CHECK(what.ends_with("_error: the text") + what.ends_with("invalid_argument: the text") +
            what.ends_with("out_of_range: the text") ==
        1);
}

TEST_CASE("exceptions without a text of their own come back as their types, and say the place") {
  const std::exception_ptr memory = sent(std::bad_alloc());
  CHECK(caught_as<std::bad_alloc>(memory));
  CHECK(text_of(memory) == "rank 2 (node7): std::bad_alloc: std::bad_alloc");
  CHECK(caught_as<std::bad_array_new_length>(sent(std::bad_array_new_length())));
  CHECK(caught_as<std::bad_cast>(sent(std::bad_cast())));
  CHECK(caught_as<std::bad_optional_access>(sent(std::bad_optional_access())));
  CHECK(caught_as<std::bad_variant_access>(sent(std::bad_variant_access())));
  CHECK(caught_as<std::bad_function_call>(sent(std::bad_function_call())));
  CHECK(caught_as<std::bad_weak_ptr>(sent(std::bad_weak_ptr())));
  CHECK_FALSE(caught_as<std::bad_cast>(sent(std::exception())));
  // Sent on by another rank it is still the same.
  CHECK(caught_as<std::bad_alloc>(decoded(encoded(memory, 0, "front"))));
}

TEST_CASE("system errors come back with their codes") {
  const std::error_code missing(ENOENT, std::system_category());
  const auto system = as<std::system_error>(sent(std::system_error(missing, "open")));
  REQUIRE(system.has_value());
  CHECK(system->code() == missing);
  CHECK(system->code() == std::errc::no_such_file_or_directory);
  CHECK(std::string(system->what()) ==
        "rank 2 (node7): std::system_error: open: " + missing.message());
  CHECK(text_of(sent(std::system_error(missing))) ==
        "rank 2 (node7): std::system_error: " + missing.message());

  for (const std::error_code code :
       {std::make_error_code(std::errc::timed_out), make_error_code(cohort::wire_errc::too_long),
        std::error_code(asio::error::operation_aborted), std::error_code(asio::error::eof),
        std::error_code(asio::error::host_not_found), std::error_code(errc::stalled)}) {
    const auto back = as<std::system_error>(sent(std::system_error(code)));
    REQUIRE(back.has_value());
    CHECK(back->code() == code);
  }
}

TEST_CASE("codes of a category that is registered come back, others keep name and value") {
  static const error_test::category known("error_test.known");
  static const error_test::category unknown("error_test.unknown");
  cohort::register_category(known);
  CHECK(as<std::system_error>(sent(std::system_error(std::error_code(3, known))))->code() ==
        std::error_code(3, known));
  const auto code =
      as<std::system_error>(sent(std::system_error(std::error_code(3, unknown), "x")))->code();
  CHECK(code.value() == 3);
  CHECK(std::string(code.category().name()) == "error_test.unknown");
  CHECK(has(text_of(sent(std::system_error(std::error_code(3, unknown), "x"))), "x: mine 3"));
}

TEST_CASE("cohort's own errors come back with code and facts") {
  const auto plain = as<cohort::error>(sent(cohort::error(errc::stalled, "all_reduce")));
  REQUIRE(plain.has_value());
  CHECK(plain->code() == errc::stalled);
  CHECK(std::string(plain->what()) ==
        "rank 2 (node7): cohort::error: all_reduce: "
        "no progress within the stated bound");
  const auto late =
      as<cohort::deadline_error>(sent(cohort::deadline_error({{0}, {1, 2}, {3}, {}}, "recv")));
  REQUIRE(late.has_value());
  CHECK(late->code() == errc::deadline_exceeded);
  CHECK(late->stall().missing == std::vector{1, 2});
  const auto lost = as<cohort::peer_lost_error>(sent(cohort::peer_lost_error({4}, "recv")));
  REQUIRE(lost.has_value());
  CHECK(lost->ranks() == std::vector{4});
  CHECK(as<cohort::joined_error>(sent(cohort::joined_error({1}, "x"))).has_value());
  CHECK(as<cohort::data_error>(sent(cohort::data_error({1}, "x"))).has_value());
  const auto other = as<cohort::rank_error>(sent(cohort::mismatch_error("count", {1, 3}, "x")));
  REQUIRE(other.has_value());
  CHECK(other->code() == errc::cross_rank_mismatch);
  CHECK(other->ranks() == std::vector{1, 3});
  CHECK(has(other->what(), "cohort::mismatch_error"));
}

TEST_CASE("what has no counterpart comes back as remote_error") {
  const auto one = as<cluster::remote_error>(sent(error_test::unknown("why")));
  REQUIRE(one.has_value());
  CHECK(one->rank() == 2);
  CHECK(one->host() == "node7");
  CHECK(one->type() == "error_test::unknown");
  CHECK(one->text() == "why");
  CHECK(one->code() == errc::remote);
  CHECK(std::string(one->what()).starts_with("rank 2 (node7): error_test::unknown: why"));
  CHECK(as<cluster::remote_error>(sent(error_test::no_exception(1)))->type() ==
        "error_test::no_exception");
  CHECK(as<cluster::remote_error>(sent(5))->type() == "int");

  // By way of a third rank it keeps where it was thrown.
  const auto again =
      as<cluster::remote_error>(decoded(encoded(std::make_exception_ptr(*one), 9, "elsewhere")));
  REQUIRE(again.has_value());
  CHECK(again->rank() == 2);
  CHECK(again->host() == "node7");
  CHECK(again->type() == "error_test::unknown");
  CHECK(again->text() == "why");
}

TEST_CASE("types that are registered come back as such") {
  CHECK(as<cluster::remote_error>(sent(error_test::by_text("x"))).has_value());
  CHECK(cluster::register_exception<error_test::by_text>());
  CHECK(cluster::register_exception<error_test::by_text>());
  CHECK(cluster::register_exception<error_test::by_fields>());
  CHECK(cluster::register_exception<error_test::by_members>());
  const auto text = as<error_test::by_text>(sent(error_test::by_text("x")));
  REQUIRE(text.has_value());
  CHECK(std::string(text->what()) == "rank 2 (node7): error_test::by_text: x");
  error_test::by_fields fields;
  fields.line = 12;
  fields.file = "a.cpp";
  const auto back = as<error_test::by_fields>(sent(fields));
  REQUIRE(back.has_value());
  CHECK(back->line == 12);
  CHECK(back->file == "a.cpp");
  CHECK(as<error_test::by_members>(sent(error_test::by_members{4}))->number == 4);
}

TEST_CASE("the manager is called so, and a host need not be known") {
  const auto thrown = std::make_exception_ptr(std::runtime_error("x"));
  CHECK(text_of(decoded(encoded(thrown, -1, "front"))) ==
        "the manager (front): std::runtime_error: x");
  CHECK(text_of(decoded(encoded(thrown, 0, ""))) == "rank 0: std::runtime_error: x");
}

TEST_CASE("what is nested in an exception comes along") {
  std::exception_ptr thrown;
  try {
    try {
      throw error_test::unknown("inner");
    } catch (...) {
      std::throw_with_nested(cohort::error(errc::stalled, "outer"));
    }
  } catch (...) {
    thrown = std::current_exception();
  }
  const std::exception_ptr back = decoded(encoded(thrown));
  CHECK(has(text_of(back), "cohort::error: outer"));
  bool seen = false;
  try {
    std::rethrow_exception(back);
  } catch (const cohort::error& outer) {
    CHECK(outer.code() == errc::stalled);
    try {
      std::rethrow_if_nested(outer);
    } catch (const cluster::remote_error& inner) {
      seen = true;
      CHECK(inner.text() == "inner");
    }
  }
  CHECK(seen);
  // And once more, through another rank.
  CHECK(encoded(decoded(encoded(back))).size() > encoded(back).size());
}

TEST_CASE("nesting ends at a limit") {
  std::exception_ptr thrown = std::make_exception_ptr(std::runtime_error("0"));
  for (int i = 1; i < 40; ++i) {
    thrown = cluster::detail::nest(std::runtime_error(std::to_string(i)), thrown);
  }
  std::size_t depth = 0;
  std::string last;
  for (std::exception_ptr next = decoded(encoded(thrown)); next != nullptr; ++depth) {
    last = text_of(next);
    std::exception_ptr inner;
    try {
      std::rethrow_exception(next);
    } catch (const std::nested_exception& one) {
      inner = one.nested_ptr();
    } catch (...) {
    }
    next = inner;
  }
  CHECK(depth == cluster::exception_depth_limit);
  CHECK(has(last, "24 (and more exceptions within)"));
}

TEST_CASE("a long text is cut, and says so") {
  const std::size_t limit = cluster::exception_text_limit;
  CHECK(text_of(sent(std::runtime_error(std::string(limit, 'x')))).ends_with("xx"));
  const bytes longer =
      encoded(std::make_exception_ptr(std::runtime_error(std::string(limit + 9, 'x'))));
  CHECK(longer.size() < limit + 200);
  CHECK(text_of(decoded(longer)).ends_with("xx... (9 bytes more)"));
}

TEST_CASE("a text with a zero in it keeps all of it") {
  const std::string text("a\0b", 3);
  const cluster::remote_error one(1, "h", "t", text);
  const auto back = as<cluster::remote_error>(sent(one));
  REQUIRE(back.has_value());
  CHECK(back->text() == text);
}

TEST_CASE("bytes that are no exception are an error with the reader's code") {
  const bytes whole = encoded(cluster::detail::nest(
      cohort::peer_lost_error({1, 2}, "outer"), std::make_exception_ptr(error_test::unknown("x"))));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    cohort::wire::reader in(part);
    const auto error = as<cohort::error>(cluster::decode_exception(in));
    CHECK_FALSE(in.ok());
    REQUIRE(error.has_value());
    CHECK(error->code() == in.error());
  }
}

TEST_CASE("the errors of several ranks are one error that lists them") {
  std::vector<cluster::multi_error::member> errors;
  errors.push_back({1, std::make_exception_ptr(std::runtime_error("local"))});
  errors.push_back({2, sent(std::out_of_range("far"))});
  errors.push_back({3, sent(error_test::unknown("odd"))});
  errors.push_back({4, std::make_exception_ptr(7)});
  const cluster::multi_error all(errors, 8);
  CHECK(all.code() == errc::remote);
  CHECK(all.errors().size() == 4);
  CHECK(std::string(all.what())
            .starts_with(
                "4 of 8 ranks failed: rank 1: local; rank 2 (node7): std::out_of_range: far; "
                "rank 2 (node7): error_test::unknown: odd; rank 4: int"));
  errors.resize(100, errors.front());
  const std::string text = cluster::multi_error(errors).what();
  CHECK(text.starts_with("100 ranks failed: "));
  CHECK(has(text, "; and 84 more"));
}

TEST_CASE("values gives the values of all, or the errors of all that failed") {
  std::vector<outcome<int>> good{1, 2, 3};
  CHECK(cluster::values(good) == std::vector{1, 2, 3});
  std::vector<outcome<std::unique_ptr<int>>> pointers;
  pointers.emplace_back(std::make_unique<int>(4));
  CHECK(*cluster::values(std::move(pointers)).front() == 4);

  const std::vector<outcome<int>> mixed{1, std::make_exception_ptr(std::runtime_error("a")), 3,
                                        std::make_exception_ptr(std::runtime_error("b"))};
  const std::vector<int> ids{5, 6, 7, 8};
  bool thrown = false;
  try {
    static_cast<void>(cluster::values(mixed, ids));
  } catch (const cluster::multi_error& all) {
    thrown = true;
    REQUIRE(all.errors().size() == 2);
    CHECK(all.errors()[0].rank == 6);
    CHECK(all.errors()[1].rank == 8);
    CHECK(text_of(all.errors()[1].error) == "b");
    CHECK(has(all.what(), "2 of 4 ranks failed: rank 6: a; rank 8: b"));
  }
  CHECK(thrown);
  cluster::values(std::vector<outcome<void>>(3));
  CHECK_THROWS_AS(cluster::values(std::vector<outcome<void>>{
                      outcome<void>(), std::make_exception_ptr(std::runtime_error("c"))}),
                  cluster::multi_error);
}
