// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The table of functions: every function has its own number, and every process the same table.

#include "core/function_table_support.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using cohort::errc;
using cohort::function_table;
using cohort::registered;
using table_test::run;
using table_test::through;
using table_test::twice;

static int same_name(int value) { return value + 1; }

namespace {

int same_anonymous(int value) { return value + 10; }
int never_called(int value) { return value + 1000; }
int unregistered(int value) { return value - 1; }
int late(int value) { return value - 2; }
double other_type(double value) { return value / 2; }

template <class T>
std::size_t in_a_template() {
  return registered<
      &through<[](int value) { return value + static_cast<int>(sizeof(T)); }>>::index();
}

/// Instantiated, but never run.
[[maybe_unused]] void nobody_calls_this() { static_cast<void>(registered<&never_called>::index()); }

errc error_of(auto&& function) {
  try {
    static_cast<void>(function());
  } catch (const cohort::error& problem) {
    CHECK(problem.code().category() == cohort::cohort_category());
    return static_cast<errc>(problem.code().value());
  }
  return {};
}

std::string text_of(auto&& function) {
  try {
    static_cast<void>(function());
  } catch (const cohort::error& problem) {
    return problem.what();
  }
  return {};
}

std::string own_path() {
  std::array<char, 4096> path{};
  const auto size = ::readlink("/proc/self/exe", path.data(), path.size());
  return size > 0 ? std::string(path.data(), static_cast<std::size_t>(size)) : std::string();
}

/// The digest and the program's id, as text, and where the code lies in this process.
std::string facts() {
  std::ostringstream text;
  for (const std::byte one : function_table::instance().digest()) {
    text << std::to_integer<int>(one) << ' ';
  }
  text << cohort::program_id();
  return text.str();
}

}  // namespace

TEST_CASE("functions are called by their numbers, and every function has its own") {
  const std::size_t first = registered<&same_name>::index();
  const std::size_t second = registered<&same_anonymous>::index();
  CHECK(run(first, 1) == 2);
  CHECK(run(second, 1) == 11);
  CHECK(run(registered<&twice<int>>::index(), 4) == 8);
  CHECK(registered<&same_name>::index() == first);
  const auto& table = function_table::instance();
  CHECK(table.index_of(&same_name) == first);
  CHECK(table.at<double(double)>(registered<&other_type>::index())(3) == 1.5);
  CHECK(table.size() == table.entries().size());
}

TEST_CASE("static functions of one name in two files have two numbers, a template has one") {
  CHECK(run(registered<&same_name>::index(), 0) == 1);
  CHECK(run(table_test::other_static(), 0) == 2);
  CHECK(run(registered<&same_anonymous>::index(), 0) == 10);
  CHECK(run(table_test::other_anonymous(), 0) == 20);
  CHECK(table_test::other_twice() == registered<&twice<int>>::index());
}

TEST_CASE("lambdas are template arguments too, each with its own number") {
  const std::size_t one = registered<&through<[](int value) { return value + 100; }>>::index();
  const std::size_t two = registered<&through<[](int value) { return value + 300; }>>::index();
  CHECK(run(one, 0) == 100);
  CHECK(run(two, 0) == 300);
  CHECK(run(table_test::other_lambda(), 0) == 200);
  CHECK(run(in_a_template<char>(), 0) == 1);
  CHECK(run(in_a_template<double>(), 0) == 8);
}

TEST_CASE("a function is in the table though its call never ran") {
  const auto& table = function_table::instance();
  CHECK(run(table.index_of(&never_called), 0) == 1000);
}

TEST_CASE("a function that was never registered has no number") {
  const auto& table = function_table::instance();
  const auto ask = [&] { return table.index_of(&unregistered, "unregistered"); };
  CHECK(error_of(ask) == errc::invalid_argument);
  CHECK(text_of(ask).find("function unregistered is not in the table") != std::string::npos);
}

TEST_CASE("what registers itself after the table was made is refused, not misnumbered") {
  const auto& table = function_table::instance();
  const std::size_t before = table.size();
  const cohort::detail::registration entry(reinterpret_cast<cohort::any_function>(&late),
                                           typeid(int(int)), "late");
  CHECK(table.size() == before);
  CHECK(error_of([&] { return table.index_of(&late); }) == errc::invalid_argument);
}

TEST_CASE("a function of a library that is loaded later has no number in the table") {
  const auto& table = function_table::instance();
  void* const library = ::dlopen(COHORT_TEST_LATE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const auto ask =
      reinterpret_cast<int (*)(const function_table&)>(::dlsym(library, "cohort_test_late_number"));
  REQUIRE(ask != nullptr);
  CHECK(ask(table) == 0);  // it stays loaded, because its error category must
  CHECK(run(table.index_of(&never_called), 0) == 1000);
}

TEST_CASE("a number from outside is checked, also for the type of the function") {
  const auto& table = function_table::instance();
  CHECK(error_of([&] { return table.at<int(int)>(table.size()); }) == errc::unknown_function);
  CHECK(error_of([&] { return table.at<int(int)>(static_cast<std::size_t>(-1)); }) ==
        errc::unknown_function);
  const std::size_t index = registered<&other_type>::index();
  CHECK(error_of([&] { return table.at<int(int)>(index); }) == errc::unknown_function);
  CHECK(table.find<int(int)>(index) == nullptr);
  CHECK(table.find<int(int)>(table.size()) == nullptr);
  CHECK(table.find<double(double)>(registered<&other_type>::index()) == &other_type);
}

TEST_CASE("entries have the function's name") {
  const auto entries = function_table::instance().entries();
  CHECK(entries[registered<&other_type>::index()].signature.find("other_type") !=
        std::string::npos);
  // With a second argument it is that function's name, whatever the code around it is called.
  const std::size_t named = registered<&through<&same_anonymous>, &same_anonymous>::index();
  CHECK(entries[named].signature.find("same_anonymous") != std::string::npos);
  CHECK(entries[named].signature.find("through") == std::string::npos);
  CHECK(run(named, 0) == 10);
  CHECK(cohort::function_name<&same_name>() == "same_name");
  CHECK(cohort::function_name<&twice<int>>().find("twice") != std::string_view::npos);
}

TEST_CASE("entries are in ascending order within a module, without repetition") {
  const auto entries = function_table::instance().entries();
  std::set<std::pair<std::string, std::uint64_t>> seen;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    CHECK_FALSE(entries[i].signature.empty());
    seen.emplace(entries[i].module, entries[i].offset);
    if (i > 0 && entries[i].module == entries[i - 1].module) {
      CHECK(entries[i].offset > entries[i - 1].offset);
    }
  }
  CHECK(seen.size() == entries.size());
}

TEST_CASE("the first difference of two tables is named") {
  using entry = function_table::entry;
  const std::vector<entry> mine{{"m", 16, "f"}, {"m", 32, "g"}, {"m", 64, "h"}};
  CHECK(cohort::first_difference(mine, mine).empty());
  std::vector<entry> others = mine;
  others[1].signature = "k";
  CHECK(cohort::first_difference(mine, others) ==
        "function 1 is 'g' at 0x20 of m here and 'k' at 0x20 of m there");
  others = mine;
  others[2].offset = 65;
  CHECK(cohort::first_difference(mine, others, "on rank 0", "on rank 1") ==
        "function 2 is 'h' at 0x40 of m on rank 0 and 'h' at 0x41 of m on rank 1");
  others = mine;
  others.pop_back();
  CHECK(cohort::first_difference(mine, others) == "function 2, 'h' at 0x40 of m, exists only here");
  CHECK(cohort::first_difference(others, mine) ==
        "function 2, 'h' at 0x40 of m, exists only there");
  CHECK(cohort::first_difference({}, {}).empty());
}

TEST_CASE("threads may ask at the same time") {
  std::vector<const function_table*> tables(4);
  std::vector<std::size_t> numbers(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        tables[i] = &function_table::instance();
        numbers[i] = registered<&through<&twice<int>>>::index();
      });
    }
  }
  CHECK(std::set(tables.begin(), tables.end()).size() == 1);
  CHECK(std::set(numbers.begin(), numbers.end()).size() == 1);
}

// Run by the next test case in processes of their own.
TEST_CASE("the table is written to a file", "[.table]") {
  const char* const path = std::getenv("COHORT_TEST_TABLE_FILE");
  REQUIRE(path != nullptr);
  std::ofstream file(path);
  file << facts();
  REQUIRE(file.good());
}

TEST_CASE("every process of a program has the same table") {
  const std::string program = own_path();
  REQUIRE_FALSE(program.empty());
  const auto folder = std::filesystem::temp_directory_path();
  const std::string path = (folder / ("cohort_table_test." + std::to_string(::getpid()))).string();
  ::setenv("COHORT_TEST_TABLE_FILE", path.c_str(), 1);
  for (int round = 0; round < 3; ++round) {
    REQUIRE(std::system(("'" + program + "' '[.table]' > /dev/null").c_str()) == 0);
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    CHECK(text.str() == facts());
  }
  ::unsetenv("COHORT_TEST_TABLE_FILE");
  ::unlink(path.c_str());
}

TEST_CASE("a program has an id") {
  const std::string& id = cohort::program_id();
  CHECK((id.starts_with("build-id:") || id.starts_with("sha256:")));
  CHECK(id.size() > 16);
  CHECK(&cohort::program_id() == &id);
}

TEST_CASE("a function has a place in its file, and libraries are other files") {
  const auto at = [](auto* code) {
    return cohort::place_of(reinterpret_cast<cohort::any_function>(code));
  };
  CHECK(at(&unregistered).module == cohort::program_id());
  CHECK(at(&unregistered) == at(&unregistered));
  CHECK_FALSE(at(&unregistered) == at(&never_called));
  void* const library = ::dlopen(COHORT_TEST_LATE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const std::string module =
      at(reinterpret_cast<int (*)()>(::dlsym(library, "cohort_test_late_number"))).module;
  CHECK(module != cohort::program_id());
  CHECK((module.starts_with("build-id:") || module.starts_with("sha256:")));
  ::dlclose(library);
}

TEST_CASE("a build id is found among notes and not beyond them") {
  using bytes = std::vector<std::byte>;
  const auto note = [](std::uint32_t type, std::string name, std::size_t size) {
    name.push_back('\0');
    bytes all;
    for (const std::uint32_t word :
         {static_cast<std::uint32_t>(name.size()), static_cast<std::uint32_t>(size), type}) {
      for (unsigned shift = 0; shift < 32; shift += 8) {
        all.push_back(static_cast<std::byte>(word >> shift));
      }
    }
    name.resize((name.size() + 3) / 4 * 4);
    for (const char one : name) all.push_back(static_cast<std::byte>(one));
    all.resize(all.size() + (size + 3) / 4 * 4, std::byte{7});
    return all;
  };
  bytes all = note(1, "GNU", 5);
  const bytes wanted = note(3, "GNU", 20);
  all.insert(all.end(), wanted.begin(), wanted.end());
  CHECK(cohort::detail::build_id_in(all, 4).size() == 20);
  all.resize(all.size() - 1);
  CHECK(cohort::detail::build_id_in(all, 4).empty());
  CHECK(cohort::detail::build_id_in(note(3, "Go", 20), 4).empty());
  CHECK(cohort::detail::build_id_in({}, 4).empty());
}
