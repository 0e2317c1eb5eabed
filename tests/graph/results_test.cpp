// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The directory of results: what is kept, what goes, and what becomes of damage, crashes and
// others.

#include <cohort/core/error.hpp>
#include <cohort/core/log.hpp>
#include <cohort/graph/result_store.hpp>

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace fs = std::filesystem;
namespace logging = cohort::log;
using cohort::graph::result_store;
using cohort::graph::result_store_options;
using cohort::graph::source_hash;
using cohort::graph::task_hash;
using namespace std::chrono_literals;

namespace {

using byte_list = std::vector<std::byte>;

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t header = 88;  // of a file, in bytes

class scratch {
 public:
  scratch() {
    std::string name = (fs::temp_directory_path() / "cohort_results_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;

  [[nodiscard]] std::string text() const { return path_.string(); }
  [[nodiscard]] fs::path of(const task_hash& what) const { return path_ / what.text(); }
  [[nodiscard]] fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

task_hash number(int which) { return source_hash<int>(which); }

/// What belongs to a number: its length and its bytes.
byte_list result_of(int which, std::size_t size) {
  byte_list all(size);
  for (std::size_t i = 0; i < size; ++i) {
    all[i] = static_cast<std::byte>(static_cast<std::size_t>(which) * 31 + i * 7 + i / 256);
  }
  return all;
}

byte_list content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  byte_list all(text.size());
  std::transform(text.begin(), text.end(), all.begin(),
                 [](char one) { return static_cast<std::byte>(one); });
  return all;
}

void write_to(const fs::path& path, const byte_list& all) {
  std::ofstream file(path, std::ios::binary);
  for (const std::byte one : all) file.put(static_cast<char>(one));
}

/// The file was used so long ago.
void age(const fs::path& path, std::chrono::seconds by) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - by);
}
std::chrono::seconds age_of(const fs::path& path) {
  return std::chrono::duration_cast<std::chrono::seconds>(fs::file_time_type::clock::now() -
                                                          fs::last_write_time(path));
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& one : fs::directory_iterator(directory)) {
    names.push_back(one.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// What the files take, in blocks of 4 KiB.
std::uint64_t taken(const std::string& directory) {
  std::uint64_t all = 0;
  for (const auto& one : fs::directory_iterator(directory)) {
    std::error_code gone;
    const auto size = one.file_size(gone);
    if (!gone) all += (size + 4 * kib - 1) / (4 * kib) * (4 * kib);
  }
  return all;
}

int lines_in(const logging::capture& log) {
  const std::string text = log.text();
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

/// A process that ends with what the function returns: 0 is well.
template <class Function>
::pid_t in_a_process(Function function) {
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child != 0) return child;
  int status = 99;
  try {
    status = function();
  } catch (...) {
  }
  ::_exit(status);
}

int status_of(::pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

TEST_CASE("what was kept is found, by every store of the directory") {
  const scratch directory;
  const logging::capture log;
  result_store one(directory.text());
  result_store other(directory.text() + "/");
  for (const int which : {0, 1, 4008, 4009, 100'000}) {
    const auto size = static_cast<std::size_t>(which);
    CHECK_FALSE(one.find(number(which)).has_value());
    CHECK(one.keep(number(which), result_of(which, size)));
    CHECK(one.find(number(which)) == result_of(which, size));
    CHECK(other.find(number(which)) == result_of(which, size));
    CHECK(other.keep(number(which), result_of(which, size)));
  }
  CHECK(names_in(directory.text()).size() == 5);
  CHECK(fs::file_size(directory.of(number(1))) == header + 1);
  CHECK(result_store(directory.text()).find(number(4009)) == result_of(4009, 4009));
  CHECK(log.text().empty());
}

TEST_CASE("a directory is made with those above it, and one that moves is still the one") {
  const scratch directory;
  const std::string below = (directory / "a/b/c").string();
  result_store results(below);
  CHECK(results.directory() == below);
  CHECK(results.keep(number(1), result_of(1, 10)));
  fs::rename(directory / "a", directory / "z");
  CHECK(results.find(number(1)) == result_of(1, 10));
  CHECK(results.keep(number(2), result_of(2, 10)));
  CHECK(names_in((directory / "z/b/c").string()).size() == 2);
}

TEST_CASE("a directory that cannot be made or written is an error that names it and the cause") {
  const scratch directory;
  write_to(directory / "file", {});
  const auto failure_of = [](const std::string& path) -> std::pair<std::string, std::error_code> {
    try {
      const result_store results(path);
    } catch (const cohort::error& problem) {
      return {problem.what(), problem.code()};
    }
    return {};
  };
  const auto in_a_file = failure_of((directory / "file/results").string());
  CHECK(in_a_file.first == "the directory of results '" + (directory / "file/results").string() +
                               "' cannot be made: Not a directory");
  CHECK(in_a_file.second == std::errc::not_a_directory);
  CHECK(failure_of((directory / "file").string()).first ==
        "the directory of results '" + (directory / "file").string() +
            "' cannot be opened: Not a directory");
  CHECK(failure_of("").second == cohort::errc::invalid_argument);

  // To forbid something to root, it must be somebody else.
  fs::permissions(directory.text(), fs::perms::owner_read | fs::perms::owner_exec |
                                        fs::perms::others_read | fs::perms::others_exec);
  const ::pid_t child = in_a_process([&] {
    if (::geteuid() == 0 &&
        (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0)) {
      return 0;  // not even that is allowed here
    }
    const auto [text, code] = failure_of(directory.text());
    if (code != std::errc::permission_denied) return 1;
    return text == "the directory of results '" + directory.text() +
                       "' cannot be written: Permission denied"
               ? 0
               : 2;
  });
  CHECK(status_of(child) == 0);
  fs::permissions(directory.text(), fs::perms::owner_all);
}

TEST_CASE("a file with any byte of its header changed is a miss, is removed, and is told of") {
  const scratch directory;
  result_store results(directory.text());
  const task_hash what = number(1);
  REQUIRE(results.keep(what, result_of(1, 50)));
  const byte_list good = content_of(directory.of(what));
  REQUIRE(good.size() == header + 50);
  for (std::size_t at = 0; at < good.size(); ++at) {  // and of what follows it
    for (const unsigned bit : {0U, 7U}) {
      byte_list bad = good;
      bad[at] ^= static_cast<std::byte>(1U << bit);
      write_to(directory.of(what), bad);
      const logging::capture log;
      CHECK_FALSE(results.find(what).has_value());
      CHECK(lines_in(log) == 1);
      CHECK(log.contains("results in '" + directory.text() + "': " + what.text() +
                         " is removed: it is damaged"));
      CHECK_FALSE(fs::exists(directory.of(what)));
    }
  }
  CHECK(results.keep(what, result_of(1, 50)));
  CHECK(results.find(what) == result_of(1, 50));
}

TEST_CASE("a file that is cut off, too long, another's, or no file at all is a miss") {
  const scratch directory;
  result_store results(directory.text());
  const task_hash what = number(1);
  REQUIRE(results.keep(what, result_of(1, 5)));
  REQUIRE(results.keep(number(2), result_of(2, 5)));
  const byte_list good = content_of(directory.of(what));
  const auto is_removed = [&] {
    const logging::capture log;
    const bool missed = !results.find(what).has_value();
    return missed && lines_in(log) == 1 && !fs::exists(fs::symlink_status(directory.of(what)));
  };
  for (std::size_t size = 0; size < good.size(); ++size) {
    write_to(directory.of(what), byte_list(good.begin(), good.begin() + static_cast<long>(size)));
    CHECK(is_removed());
  }
  byte_list longer = good;
  longer.push_back({});
  write_to(directory.of(what), longer);
  CHECK(is_removed());
  fs::copy_file(directory.of(number(2)), directory.of(what));
  CHECK(is_removed());
  write_to(directory.of(what), byte_list(1000));  // what a machine that has failed may leave
  CHECK(is_removed());
  fs::create_symlink(directory.of(number(2)), directory.of(what));
  CHECK(is_removed());
  REQUIRE(::mkfifo(directory.of(what).c_str(), 0600) == 0);
  CHECK(is_removed());
  fs::create_directory(directory.of(what));
  {
    const logging::capture log;
    CHECK_FALSE(results.find(what).has_value());
    CHECK(log.contains("cannot be removed"));
  }
  CHECK(fs::exists(directory.of(number(2))));
}

TEST_CASE("a result that does not decode is discarded, with the reason") {
  const scratch directory;
  result_store results(directory.text());
  REQUIRE(results.keep(number(1), result_of(1, 5)));
  const logging::capture log;
  results.discard(number(1), "a particle has another format");
  CHECK(log.contains(number(1).text() + " is removed: a particle has another format"));
  CHECK_FALSE(results.find(number(1)).has_value());
  results.discard(number(1), "a particle has another format");
  CHECK(lines_in(log) == 1);
}

TEST_CASE("the files never take more than the bound") {
  const scratch directory;
  const logging::capture log;
  const std::uint64_t bound = 512 * kib;
  std::mt19937 random(7);  // NOLINT: the same every time
  result_store results(directory.text(), {.bound = bound});
  std::uint64_t most = 0;
  for (int i = 0; i < 150; ++i) {
    const std::size_t size = random() % 16 == 0 ? random() % (200 * kib) : random() % (12 * kib);
    CHECK(results.keep(number(i), result_of(i, size)));
    CHECK(results.find(number(i)) == result_of(i, size));
    const std::uint64_t now = taken(directory.text());
    CHECK(now <= bound);
    most = std::max(most, now);
  }
  CHECK(most > bound / 4 * 3);
  CHECK(log.text().empty());
}

TEST_CASE("a result that is larger than half of the bound is not kept, which is told once") {
  const scratch directory;
  const logging::capture log;
  result_store results(directory.text(), {.bound = 64 * kib});
  CHECK(results.keep(number(1), result_of(1, 32 * kib - header)));
  CHECK_FALSE(results.keep(number(2), result_of(2, 32 * kib - header + 1)));
  CHECK_FALSE(results.keep(number(3), result_of(3, 40 * kib)));
  CHECK(lines_in(log) == 1);
  CHECK(log.contains(number(2).text() +
                     " is not kept: its 32681 bytes are more than half of the bound of 65536"));
  CHECK(names_in(directory.text()).size() == 1);
}

TEST_CASE("the least recently used results go, and being found is use") {
  const scratch directory;
  result_store results(directory.text(), {.bound = 160 * kib});
  for (int i = 0; i < 30; ++i) {
    REQUIRE(results.keep(number(i), result_of(i, 100)));
    age(directory.of(number(i)), std::chrono::hours(100 - i));  // 0 is the oldest
  }
  CHECK(results.find(number(3)).has_value());
  CHECK(age_of(directory.of(number(3))) < 60s);
  CHECK(results.find(number(5)).has_value());
  // Somewhat more than 10 results of 4 KiB must go: 0, 1, 2, 4, 6, ...
  result_store smaller(directory.text(), {.bound = 96 * kib});
  smaller.trim();
  const std::uint64_t left = names_in(directory.text()).size();
  CHECK(left == 21);  // a sixteenth and another below the bound
  for (int i = 0; i < 30; ++i) {
    const bool stays = i == 3 || i == 5 || i > 10;
    CHECK(fs::exists(directory.of(number(i))) == stays);
  }
}

TEST_CASE("a use is recorded once a minute, and a time that is yet to come is mended") {
  const scratch directory;
  result_store results(directory.text());
  REQUIRE(results.keep(number(1), result_of(1, 100)));
  age(directory.of(number(1)), 30s);
  CHECK(results.find(number(1)).has_value());
  CHECK(age_of(directory.of(number(1))) >= 30s);
  age(directory.of(number(1)), -500h);
  CHECK(results.find(number(1)).has_value());
  CHECK(age_of(directory.of(number(1))) >= -1s);
}

TEST_CASE("only files of the store's own names are touched") {
  const scratch directory;
  const std::string almost = number(1).text();
  std::string upper = almost;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char one) {
    return 'a' <= one && one <= 'f' ? static_cast<char>(one - 32) : one;
  });
  std::vector<std::string> names{"thesis.tex", almost.substr(1), almost + "0",    upper,
                                 ".part",      "0123.part",      almost + ".part"};
  for (const std::string& name : names) {
    write_to(directory / name, byte_list(100));
    age(directory / name, 10'000h);
  }
  result_store results(directory.text(), {.bound = 0});
  results.trim();
  std::sort(names.begin(), names.end());
  CHECK(names_in(directory.text()) == names);
}

TEST_CASE("what a writer has left unfinished is removed when it is old") {
  const scratch directory;
  const auto unfinished = [&](int which) {
    return directory / (number(which).text().substr(0, 32) + ".part");
  };
  write_to(unfinished(1), byte_list(50));
  write_to(unfinished(2), byte_list(50));
  age(unfinished(1), 59min);
  age(unfinished(2), 61min);
  result_store results(directory.text());
  results.trim();
  CHECK(fs::exists(unfinished(1)));
  CHECK_FALSE(fs::exists(unfinished(2)));
  result_store(directory.text(), {.abandoned_after = 10min}).trim();
  CHECK_FALSE(fs::exists(unfinished(1)));
}

TEST_CASE("a full disk is a miss and one line, and keeps nothing unfinished") {
  const scratch directory;
  const ::pid_t child = in_a_process([&] {
    result_store results(directory.text());
    const logging::capture log;
    if (!results.keep(number(1), result_of(1, 1000))) return 1;
    // What stands for a full disk: no file may be longer than this.
    ::signal(SIGXFSZ, SIG_IGN);
    const ::rlimit little{2000, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_FSIZE, &little) != 0) return 2;
    for (int i = 2; i < 6; ++i) {
      if (results.keep(number(i), result_of(i, 3000))) return 3;
      if (results.find(number(i)).has_value()) return 4;
    }
    if (lines_in(log) != 1) return 5;
    if (!log.contains("cannot write " + number(2).text() + ": File too large; until")) return 6;
    if (names_in(directory.text()).size() != 1) return 7;
    if (results.find(number(1)) != result_of(1, 1000)) return 8;
    const ::rlimit enough{RLIM_INFINITY, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_FSIZE, &enough) != 0) return 9;
    if (!results.keep(number(2), result_of(2, 3000))) return 10;
    return results.find(number(2)) == result_of(2, 3000) ? 0 : 11;
  });
  CHECK(status_of(child) == 0);
}

TEST_CASE("a directory that goes away is told of once when something is kept") {
  const scratch directory;
  result_store results((directory / "results").string());
  REQUIRE(results.keep(number(1), result_of(1, 10)));
  fs::remove_all(directory / "results");
  const logging::capture log;
  CHECK_FALSE(results.find(number(1)).has_value());
  CHECK(log.text().empty());
  CHECK_FALSE(results.keep(number(1), result_of(1, 10)));
  CHECK_FALSE(results.keep(number(2), result_of(2, 10)));
  CHECK(lines_in(log) == 1);
  CHECK(log.contains("cannot create " + number(1).text() + ": No such file or directory"));
}

TEST_CASE("no memory for a result is a miss, not an exception") {
  const scratch directory;
  result_store results(directory.text());
  REQUIRE(results.keep(number(1), result_of(1, 0)));
  // A file of 2^62 bytes, whose header agrees.
  byte_list head = content_of(directory.of(number(1)));
  head[8 + 8 + 32 + 7] = std::byte{0x3f};
  write_to(directory.of(number(1)), head);
  if (::truncate(directory.of(number(1)).c_str(),
                 static_cast<::off_t>((0x3fULL << 56U) + header)) != 0) {
    return;  // no file system here that has such files
  }
  const logging::capture log;
  CHECK_FALSE(results.find(number(1)).has_value());
  CHECK(lines_in(log) == 1);
}

TEST_CASE("processes that write and read one directory at once see whole results or none") {
  const scratch directory;
  constexpr int processes = 4;
  constexpr int keys = 40;
  const auto size_of = [](int which) { return static_cast<std::size_t>(which) * 700; };
  const std::uint64_t bound = 256 * kib;  // of about 550 KiB: results leave all the time
  std::vector<::pid_t> children;
  for (int process = 0; process < processes; ++process) {
    children.push_back(in_a_process([&, process] {
      const logging::capture log;
      result_store results(directory.text(), {.bound = bound});
      std::mt19937 random(static_cast<unsigned>(process));  // NOLINT: the same every time
      int found = 0;
      for (int i = 0; i < 120; ++i) {
        const int which = static_cast<int>(random() % keys);
        if (const auto result = results.find(number(which))) {
          if (*result != result_of(which, size_of(which))) return 1;
          ++found;
        } else if (!results.keep(number(which), result_of(which, size_of(which)))) {
          return 2;
        }
      }
      if (!log.text().empty()) return 3;
      return found > 0 ? 0 : 4;
    }));
  }
  for (const ::pid_t child : children) CHECK(status_of(child) == 0);
  // Each has written at most a sixteenth since it has looked, and one result while others did.
  CHECK(taken(directory.text()) <= bound + processes * (bound / 16 + 24 * kib));
  result_store results(directory.text(), {.bound = bound});
  results.trim();
  CHECK(taken(directory.text()) <= bound);
  for (const std::string& name : names_in(directory.text())) CHECK(name.size() == 64);
  for (int i = 0; i < keys; ++i) {
    const auto result = results.find(number(i));
    CHECK((!result || *result == result_of(i, size_of(i))));
  }
}

TEST_CASE("a process that is killed while it writes leaves whole results, and scraps that go") {
  const scratch directory;
  const ::pid_t child = in_a_process([&] {
    result_store results(directory.text());
    for (int i = 0;; ++i) results.keep(number(i), result_of(i, 200 * kib));
    return 0;
  });
  while (names_in(directory.text()).size() < 5) std::this_thread::yield();
  REQUIRE(::kill(child, SIGKILL) == 0);
  CHECK(status_of(child) == -SIGKILL);

  const logging::capture log;
  result_store results(directory.text());
  int found = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto result = results.find(number(i));
    if (!result) continue;
    ++found;
    CHECK(*result == result_of(i, 200 * kib));
  }
  CHECK(found >= 3);
  CHECK(log.text().empty());
  for (const std::string& name : names_in(directory.text())) age(directory / name, 2h);
  results.trim();
  CHECK(names_in(directory.text()).size() == static_cast<std::size_t>(found));
}

TEST_CASE("threads share a store") {
  const scratch directory;
  const std::uint64_t bound = 512 * kib;
  const logging::capture log;
  result_store results(directory.text(), {.bound = bound});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 100; ++i) {
        const int which = (i * 7 + thread * 13) % 90;
        const auto size = static_cast<std::size_t>(which) * 400;
        const auto result = results.find(number(which));
        if (result ? *result != result_of(which, size)
                   : !results.keep(number(which), result_of(which, size))) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& one : threads) one.join();
  CHECK(wrong == 0);
  CHECK(taken(directory.text()) <= bound);
  CHECK(log.text().empty());
}
