// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// The timeline: what is in its file, and that the file is valid whatever happens.

#include <cohort/coordinator/timeline.hpp>
#include <cohort/core/log.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "coordinator/json.hpp"
#include "coordinator/text_files.hpp"
#include "support/catch.hpp"

using cohort::coordination::phase;
using cohort::coordination::timeline;
using cohort::coordination::timeline_options;
using cohort::coordination::timeline_path;
using cohort_test::content;
using cohort_test::json;
using namespace std::chrono_literals;

namespace {

/// An empty folder of this process, which goes away with everything in it.
class folder {
 public:
  folder()
      : path_(std::filesystem::temp_directory_path() /
              ("cohort-timeline-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    REQUIRE(std::filesystem::create_directory(path_));
  }
  ~folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// A timeline of one rank, and the file for it.
struct recording {
  folder at;
  std::string path = at / "trace.json";
  timeline line{0, 1};
};

/// The events of a file, which must be valid, without those that give names to rows.
std::vector<json> events(const std::string& path) {
  const json whole = cohort_test::parse_json(content(path));
  std::vector<json> result;
  for (const json& one : whole["traceEvents"].items) {
    if (one["ph"].text != "M") result.push_back(one);
  }
  return result;
}

/// The names that the file gives to rows.
std::map<std::string, std::string> rows(const std::string& path) {
  const json whole = cohort_test::parse_json(content(path));
  std::map<std::string, std::string> result;
  for (const json& one : whole["traceEvents"].items) {
    if (one["name"].text == "thread_name") result[one["tid"].text] = one["args"]["name"].text;
  }
  return result;
}

/// As Perfetto reads a time: multiplied in floating point, and cut.
std::int64_t nanoseconds(const json& time) {
  return static_cast<std::int64_t>(time.number() * 1000.0);
}

/// The i-th of many different events.
void record_one(timeline& to, int i) {
  const auto now = timeline::time::clock::now();
  const auto number = static_cast<std::uint64_t>(i);
  switch (i % 7) {
    case 5:
      to.data("all_reduce", 0, number, 16, 4096, now - 7us, now, "mpi");
      break;
    case 6:
      to.instant("generation", now);
      break;
    default:
      to.span(static_cast<phase>(i % 5), "layer" + std::to_string(i), 1, 0, number, now - 10us, now,
              256);
  }
}

/// No file may become longer than this while it lives.
class file_size_limit {
 public:
  explicit file_size_limit(rlim_t bytes) : before_signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~file_size_limit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, before_signal_);
  }
  file_size_limit(const file_size_limit&) = delete;
  file_size_limit& operator=(const file_size_limit&) = delete;

 private:
  void (*before_signal_)(int);
  rlimit before_{};
};

}  // namespace

TEST_CASE("the rank comes before the extension unless it is the only one") {
  CHECK(timeline_path("trace.json", 3, 4) == "trace.3.json");
  CHECK(timeline_path("trace.json", 0, 1) == "trace.json");
  CHECK(timeline_path("trace", 3, 4) == "trace.3");
  CHECK(timeline_path("runs/run.d/trace", 12, 16) == "runs/run.d/trace.12");
  CHECK(timeline_path("run.d/a.b.json", 1, 2) == "run.d/a.b.1.json");
  CHECK(timeline_path("run.d/.hidden", 1, 2) == "run.d/.hidden.1");
  CHECK(timeline_path("", 1, 2) == ".1");
}

TEST_CASE("a timeline that was not started keeps nothing") {
  timeline line(0, 1);
  for (int i = 0; i < 20; ++i) record_one(line, i);
  line.flush();
  line.stop();
  CHECK_FALSE(line.active());
  CHECK(line.pending() == 0);
  CHECK(line.dropped() == 0);
}

TEST_CASE_METHOD(recording, "the file is valid after every event and holds what was recorded") {
  REQUIRE_FALSE(line.start(path));
  CHECK(line.active());
  CHECK(events(path).empty());
  for (int i = 0; i < 60; ++i) {
    record_one(line, i);
    CHECK(events(path).size() == static_cast<std::size_t>(i));
    CHECK(line.pending() == 1);
    line.flush();
    CHECK(events(path).size() == static_cast<std::size_t>(i + 1));
    CHECK(line.pending() == 0);
  }
  line.stop();
  CHECK(events(path).size() == 60);
}

TEST_CASE("an event has its name, phase, times, and what tells its operation apart") {
  folder at;
  at / "trace.2.json";
  timeline line(2, 4);
  REQUIRE_FALSE(line.start(at / "trace.json"));
  const auto begin = timeline::time::clock::now();
  line.span(phase::negotiate, "layer1/w", 7, 5, 19, begin, begin + 1234567ns);
  line.span(phase::pack, "layer1/w", 7, 5, 19, begin + 2ms, begin + 3ms, 4096);
  line.data("all_reduce", 5, 19, 16, 65536, begin + 3ms, begin + 4ms, "shm");
  line.instant("stall warning", begin + 5ms);
  line.stop();

  const std::string path = at / "trace.2.json";
  const json whole = cohort_test::parse_json(content(path));
  CHECK(whole["otherData"]["rank"].text == "2");
  CHECK(whole["otherData"]["size"].text == "4");
  const json& process = whole["traceEvents"].items.front();
  CHECK(process["name"].text == "process_name");
  CHECK(process["args"]["name"].text == "rank 2");

  const std::vector<json> seen = events(path);
  REQUIRE(seen.size() == 4);
  for (const json& one : seen) CHECK(one["pid"].text == "2");
  CHECK(seen[0]["name"].text == "layer1/w");
  CHECK(seen[0]["cat"].text == "negotiate");
  CHECK(seen[0]["ph"].text == "X");
  CHECK(nanoseconds(seen[0]["dur"]) == 1234567);
  CHECK(seen[0]["args"]["epoch"].text == "7");
  CHECK(seen[0]["args"]["set"].text == "5");
  CHECK(seen[0]["args"]["log_count"].text == "19");
  CHECK(seen[0]["args"].find("bytes") == nullptr);
  CHECK(nanoseconds(seen[1]["ts"]) - nanoseconds(seen[0]["ts"]) == 2000000);
  CHECK(seen[1]["args"]["bytes"].text == "4096");
  CHECK(seen[2]["name"].text == "all_reduce");
  CHECK(seen[2]["cat"].text == "data");
  CHECK(seen[2]["args"]["tensors"].text == "16");
  CHECK(seen[2]["args"]["bytes"].text == "65536");
  CHECK(seen[2]["args"]["backend"].text == "shm");
  CHECK(seen[3]["name"].text == "stall warning");
  CHECK(seen[3]["ph"].text == "i");
  CHECK(nanoseconds(seen[3]["ts"]) - nanoseconds(seen[0]["ts"]) == 5000000);

  const auto names = rows(path);
  CHECK(names.at(seen[0]["tid"].text) == "negotiate");
  CHECK(names.at(seen[1]["tid"].text) == "pack");
  CHECK(names.at(seen[2]["tid"].text) == "data");
  CHECK(names.at(seen[3]["tid"].text) == "events");
}

TEST_CASE_METHOD(recording, "what a device did is in rows of its own, which name the device") {
  timeline_options with;
  with.device = "device 0 \"x\"";
  REQUIRE_FALSE(line.start(path, with));
  const auto begin = timeline::time::clock::now();
  line.device(phase::device_reduce, "all_reduce", 2, 19, 16, 65536, begin, begin + 5us);
  line.device(phase::device_pack, "all_reduce", 2, 20, 3, 512, begin, begin + 1us);
  line.device(phase::device_pack, "all_reduce", 2, 21, 3, 512, begin + 500ns, begin + 2us);
  line.data("all_reduce", 2, 19, 16, 65536, begin, begin + 9us, "nccl");
  line.stop();
  const json whole = cohort_test::parse_json(content(path));
  CHECK(whole["otherData"]["device"].text == "device 0 \"x\"");
  const std::vector<json> seen = events(path);
  REQUIRE(seen.size() == 4);
  CHECK(seen[0]["cat"].text == "device reduce");
  CHECK(seen[0]["args"]["tensors"].text == "16");
  CHECK(seen[0]["args"]["bytes"].text == "65536");
  CHECK(seen[0]["args"]["set"].text == "2");
  CHECK(seen[0]["args"]["log_count"].text == "19");
  CHECK(seen[0]["args"].find("backend") == nullptr);
  CHECK(nanoseconds(seen[0]["dur"]) == 5000);
  CHECK(seen[3]["args"]["backend"].text == "nccl");
  const auto names = rows(path);
  CHECK(names.at(seen[0]["tid"].text) == "device reduce, device 0 \"x\"");
  CHECK(names.at(seen[1]["tid"].text) == "device pack, device 0 \"x\"");
  CHECK(names.at(seen[2]["tid"].text) == "device pack 2, device 0 \"x\"");
  CHECK(names.at(seen[3]["tid"].text) == "data");
}

TEST_CASE_METHOD(recording, "the anchor is when recording started, on both clocks") {
  const auto count = [](auto when) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
  };
  const auto steady = count(timeline::time::clock::now());
  const auto system = count(std::chrono::system_clock::now());
  REQUIRE_FALSE(line.start(path));
  const auto when = timeline::time::clock::now();
  line.instant("now", when);
  line.stop();
  const json whole = cohort_test::parse_json(content(path));
  const std::int64_t anchor = std::stoll(whole["otherData"]["steady_ns"].text);
  CHECK(anchor >= steady);
  CHECK(anchor <= count(when));
  CHECK(nanoseconds(events(path).at(0)["ts"]) == count(when) - anchor);
  // The system clock may be set meanwhile, but hardly by an hour.
  CHECK(std::llabs(std::stoll(whole["otherData"]["system_ns"].text) - system) < 3600000000000);
}

TEST_CASE_METHOD(recording, "times are exact for a viewer that multiplies and cuts") {
  REQUIRE_FALSE(line.start(path));
  const auto start = timeline::time::clock::now();
  std::mt19937_64 random(1);
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> durations;
  for (int i = 0; i < 5000; ++i) {
    // Up to a week.
    offsets.push_back(static_cast<std::int64_t>(random() % 604'800'000'000'000));
    durations.push_back(static_cast<std::int64_t>(random() % (std::uint64_t{1} << (i % 40))));
    const auto begin = start + std::chrono::nanoseconds(offsets.back());
    line.span(phase::data, "x", 0, 0, 0, begin, begin + std::chrono::nanoseconds(durations.back()));
  }
  line.stop();
  const std::vector<json> seen = events(path);
  REQUIRE(seen.size() == offsets.size());
  const std::int64_t shift = nanoseconds(seen[0]["ts"]) - offsets[0];
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    wrong += nanoseconds(seen[i]["ts"]) != offsets[i] + shift ? 1U : 0U;
    wrong += nanoseconds(seen[i]["dur"]) != durations[i] ? 1U : 0U;
    wrong += std::llround(seen[i]["ts"].number() * 1000) != offsets[i] + shift ? 1U : 0U;
  }
  CHECK(wrong == 0);
}

TEST_CASE_METHOD(recording, "what began before the recording is shown from its beginning") {
  const auto before = timeline::time::clock::now() - 1h;
  REQUIRE_FALSE(line.start(path));
  const auto end = timeline::time::clock::now() + 1s;
  line.span(phase::negotiate, "early", 0, 0, 1, before, end);
  line.span(phase::negotiate, "gone", 0, 0, 2, timeline::time::min(), before);
  line.span(phase::negotiate, "backwards", 0, 0, 3, end, end - 1ms);
  line.stop();
  const std::vector<json> seen = events(path);
  REQUIRE(seen.size() == 3);
  CHECK(seen[0]["ts"].text == "0");
  CHECK(nanoseconds(seen[0]["dur"]) >= 1'000'000'000);
  CHECK(nanoseconds(seen[0]["dur"]) < 3'000'000'000'000);
  CHECK(seen[1]["ts"].text == "0");
  CHECK(seen[1]["dur"].text == "0");
  CHECK(seen[2]["dur"].text == "0");
}

TEST_CASE("names arrive as they are, and bytes that are no text are replaced") {
  folder at;
  const std::string path = at / "trace.json";
  const std::string bad = "\xEF\xBF\xBD";
  const std::array<std::pair<std::string, std::string>, 14> names{{
      {"plain", "plain"},
      {"", ""},
      {R"(a "quoted" \ name)", R"(a "quoted" \ name)"},
      {"line\nbreak\ttab\r\b\f", "line\nbreak\ttab\r\b\f"},
      {std::string("nul\0in", 6), std::string("nul\0in", 6)},
      {"\x01\x1F\x7F", "\x01\x1F\x7F"},
      {"gr\xC3\xBC\xC3\x9F", "gr\xC3\xBC\xC3\x9F"},
      {"\xE2\x82\xAC \xF0\x9F\x98\x80", "\xE2\x82\xAC \xF0\x9F\x98\x80"},
      {"\xFF\xFE", bad + bad},
      {"cut \xE2\x82", "cut " + bad + bad},
      {"\xC0\xAF", bad + bad},                             // overlong
      {"\xE0\x80\xAF", bad + bad + bad},                   // overlong
      {"\xED\xA0\x80", bad + bad + bad},                   // a surrogate
      {"\xF4\x90\x80\x80z", bad + bad + bad + bad + "z"},  // above U+10FFFF
  }};
  timeline line(0, 1);
  REQUIRE_FALSE(line.start(path));
  const auto now = timeline::time::clock::now();
  for (const auto& [name, shown] : names) line.span(phase::queue, name, 0, 0, 0, now, now);
  line.data(names[2].first, 0, 0, 1, 1, now, now, names[3].first);
  line.instant(names[8].first, now);
  line.stop();
  CHECK(content(path).find('\x7F') == std::string::npos);  // older viewers refuse it
  const std::vector<json> seen = events(path);
  REQUIRE(seen.size() == names.size() + 2);
  for (std::size_t i = 0; i < names.size(); ++i) CHECK(seen[i]["name"].text == names[i].second);
  CHECK(seen[names.size()]["name"].text == names[2].second);
  CHECK(seen[names.size()]["args"]["backend"].text == names[3].second);
  CHECK(seen[names.size() + 1]["name"].text == names[8].second);
}

TEST_CASE("names of any bytes and any length leave the file valid") {
  folder at;
  const std::string path = at / "trace.json";
  std::mt19937 random(2);
  timeline line(0, 1);
  REQUIRE_FALSE(line.start(path, {.ring = 64}));
  const auto now = timeline::time::clock::now();
  std::size_t count = 0;
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 50; ++i) {
      std::string name(random() % (i % 5 == 0 ? 3000 : 30), ' ');
      for (char& c : name) c = static_cast<char>(random());
      line.data(name, 0, 0, 1, 1, now, now, name);
      ++count;
    }
    line.flush();
    if (round % 8 == 0) REQUIRE(events(path).size() == count);
  }
  line.stop();
  CHECK(events(path).size() == count);
}

TEST_CASE_METHOD(recording, "long names are cut between characters") {
  REQUIRE_FALSE(line.start(path));
  const auto now = timeline::time::clock::now();
  const std::string ellipsis = "\xE2\x80\xA6";
  line.instant(std::string(512, 'a'), now);
  line.instant(std::string(513, 'a'), now);
  line.instant(std::string(511, 'a') + "\xC3\xBC", now);
  line.instant(std::string(510, 'a') + "\xC3\xBC" + "b", now);
  line.instant(std::string(509, 'a') + "\xF0\x9F\x98\x80", now);
  line.stop();
  const std::vector<json> seen = events(path);
  REQUIRE(seen.size() == 5);
  CHECK(seen[0]["name"].text == std::string(512, 'a'));
  CHECK(seen[1]["name"].text == std::string(512, 'a') + ellipsis);
  CHECK(seen[2]["name"].text == std::string(511, 'a') + ellipsis);
  CHECK(seen[3]["name"].text == std::string(510, 'a') + "\xC3\xBC" + ellipsis);
  CHECK(seen[4]["name"].text == std::string(509, 'a') + ellipsis);
}

TEST_CASE_METHOD(recording, "a file grows in blanks, which are gone when it is closed") {
  REQUIRE_FALSE(line.start(path, {.growth = 10'000}));
  CHECK(content(path).size() == 12'288);
  std::size_t size = 0;
  for (int i = 0; i < 500; ++i) {
    record_one(line, i);
    line.flush();
    size = content(path).size();
    REQUIRE(size % 12'288 == 0);
    if (i % 20 == 0) CHECK(events(path).size() == static_cast<std::size_t>(i + 1));
  }
  CHECK(size > 4 * 12'288);
  line.stop();
  const std::string text = content(path);
  CHECK(text.size() < size);
  CHECK(text.ends_with("}}\n]}\n"));
  CHECK(events(path).size() == 500);
}

TEST_CASE("recording can stop and start again, in the same file and in another") {
  folder at;
  const std::string first = at / "first.json";
  const std::string second = at / "second.json";
  const auto now = timeline::time::clock::now();
  timeline line(0, 1);
  REQUIRE_FALSE(line.start(first));
  for (int i = 0; i < 100; ++i) line.instant("old", now);
  line.stop();
  line.instant("nobody listens", now);
  CHECK(events(first).size() == 100);

  REQUIRE_FALSE(line.start(first));
  CHECK(events(first).empty());
  line.instant("new", now);
  REQUIRE_FALSE(line.start(second));  // ends the first
  line.instant("other", now);
  line.stop();
  line.stop();
  REQUIRE(events(first).size() == 1);
  CHECK(events(first)[0]["name"].text == "new");
  REQUIRE(events(second).size() == 1);
  CHECK(events(second)[0]["name"].text == "other");
}

TEST_CASE("a destroyed timeline leaves everything in its file") {
  folder at;
  const std::string path = at / "trace.json";
  {
    timeline line(0, 1);
    REQUIRE_FALSE(line.start(path));
    line.instant("last", timeline::time::clock::now());
  }
  CHECK(events(path).size() == 1);
}

TEST_CASE("a file that cannot be made is the operating system's error") {
  folder at;
  timeline line(0, 1);
  CHECK(line.start("/nowhere/trace.json") == std::errc::no_such_file_or_directory);
  CHECK_FALSE(line.active());
  CHECK(line.start("/dev/full") == std::errc::no_space_on_device);
  CHECK_FALSE(line.active());
  line.instant("nobody listens", timeline::time::clock::now());
  CHECK(line.pending() == 0);
  CHECK_FALSE(line.start(at / "trace.json"));  // another try may succeed
  CHECK(line.active());
}

TEST_CASE("a full ring is written, and nothing is lost or out of order") {
  folder at;
  const std::string path = at / "trace.json";
  for (const std::size_t ring : {0U, 1U, 8U, 100U}) {
    timeline line(0, 1);
    REQUIRE_FALSE(line.start(path, {.ring = ring}));
    const auto now = timeline::time::clock::now();
    for (int i = 0; i < 1000; ++i) {
      line.span(phase::queue, std::string(static_cast<std::size_t>(i % 300), 'x'), 0, 0,
                static_cast<std::uint64_t>(i), now, now);
      REQUIRE(line.pending() <= std::max<std::size_t>(ring, 1));
    }
    CHECK(events(path).size() == 1000 - line.pending());
    line.stop();
    CHECK(line.dropped() == 0);
    const std::vector<json> seen = events(path);
    REQUIRE(seen.size() == 1000);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      CHECK(seen[i]["args"]["log_count"].text == std::to_string(i));
      CHECK(seen[i]["name"].text.size() == i % 300);
    }
  }
}

TEST_CASE_METHOD(recording, "many events at once are written in pieces, all of them") {
  REQUIRE_FALSE(line.start(path));
  for (int i = 0; i < 20000; ++i) record_one(line, i);
  line.flush();
  CHECK(events(path).size() == 20000);
}

#ifdef __GLIBC__
TEST_CASE_METHOD(recording, "memory does not grow with what is recorded") {
  REQUIRE_FALSE(line.start(path, {.ring = 1024}));
  const auto now = timeline::time::clock::now();
  std::size_t before = 0;
  for (int i = 0; i < 100'000; ++i) {
    if (i == 10'000) before = ::mallinfo2().uordblks;
    const std::array<char, 8> name{'n', static_cast<char>('a' + i % 26),
                                   static_cast<char>('a' + i / 26 % 26)};
    line.span(phase::queue, name.data(), 0, 0, 0, now, now + std::chrono::nanoseconds(i));
  }
  CHECK(::mallinfo2().uordblks <= before + 4096);
}
#endif

TEST_CASE("when the disk is full events are lost and counted, and the file stays valid") {
  folder at;
  const std::string path = at / "trace.json";
  cohort::log::capture log;
  timeline line(0, 1);
  REQUIRE_FALSE(line.start(path, {.growth = 4096}));
  record_one(line, 0);
  line.flush();
  {
    const file_size_limit limit(9000);                       // in the middle of the third page
    for (int i = 1; i < 100; ++i) record_one(line, 35 * i);  // of one phase
    line.flush();
    CHECK(line.dropped() > 0);
    CHECK(line.pending() == 0);
    const std::size_t fitting = events(path).size();
    CHECK(fitting > 20);
    CHECK(line.dropped() + fitting == 100);
    CHECK(content(path).size() == 8192);
    for (int i = 100; i < 120; ++i) {
      record_one(line, i);  // of all kinds, whose rows have no name yet
      line.flush();
    }
    CHECK(events(path).size() == fitting);
    CHECK(line.dropped() + fitting == 120);
  }
  const std::uint64_t lost = line.dropped();
  for (int i = 0; i < 30; ++i) record_one(line, i);
  line.flush();
  for (int i = 0; i < 30; ++i) record_one(line, i);
  line.stop();
  CHECK(line.dropped() == lost);
  std::size_t resumed = 0;
  const auto names = rows(path);
  const std::vector<json> seen = events(path);
  for (const json& one : seen) {
    CHECK(names.count(one["tid"].text) == 1);
    ++resumed;
    if (const json* number = one["args"].find("lost")) {
      CHECK(number->text == std::to_string(lost));
      resumed = 0;
    }
  }
  CHECK(resumed == 60);
  CHECK(seen.size() == 120 - lost + 1 + 60);
  const std::string text = log.text();
  CHECK(log.contains("timeline: cannot write to '" + path + "': File too large"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
}

TEST_CASE("a page that cannot be written whole leaves nothing behind") {
  folder at;
  const std::string path = at / "trace.json";
  const cohort::log::capture log;
  timeline line(0, 1);
  REQUIRE_FALSE(line.start(path, {.growth = 65'536}));
  int number = 0;
  {
    const file_size_limit limit(5000);  // in the second page
    while (content(path).find('{', 4000) == std::string::npos && line.dropped() == 0) {
      record_one(line, 35 * number++);  // of one phase
      line.flush();
    }
    const std::size_t fitting = events(path).size();
    for (int i = 1; i < 7; ++i) record_one(line, i);  // of others
    line.flush();
    number += 6;
    CHECK(events(path).size() == fitting);
    CHECK(line.dropped() + fitting == static_cast<std::size_t>(number));
    CHECK(content(path).size() == 65'536);
  }
  for (int i = 0; i < 30; ++i) record_one(line, i);
  line.stop();
  const auto names = rows(path);
  const std::vector<json> seen = events(path);
  for (const json& one : seen) CHECK(names.count(one["tid"].text) == 1);
  CHECK(seen.size() == static_cast<std::size_t>(number) - line.dropped() + 1 + 30);
}

TEST_CASE("a file stops growing at its limit and says so") {
  folder at;
  const std::string path = at / "trace.json";
  cohort::log::capture log;
  timeline line(0, 1);
  REQUIRE_FALSE(line.start(path, {.ring = 16, .limit = 20'000, .growth = 8192}));
  for (int i = 0; i < 2000; ++i) record_one(line, i);
  line.flush();
  CHECK(content(path).size() == 16'384 + 4096);  // whole pages, and one to say it
  line.stop();
  const std::vector<json> seen = events(path);
  CHECK(seen.back()["name"].text == "the file has its full size");
  CHECK(seen.size() - 1 + line.dropped() == 2000);
  CHECK(log.contains("events are lost"));
}

namespace {

/// Runs `body(say)` in another process, which is killed some time after it has said whether all is
/// well so far.
template <class Body>
void run_until_killed(Body body, int microseconds = 0) {
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    body([&](bool well) {
      if (::write(pipe_ends[1], well ? "y" : "n", 1) != 1) ::_exit(1);
    });
    ::_exit(1);
  }
  char answer = 'n';
  CHECK(::read(pipe_ends[0], &answer, 1) == 1);
  ::usleep(static_cast<useconds_t>(microseconds));
  ::kill(child, SIGKILL);
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  CHECK(answer == 'y');
}

}  // namespace

TEST_CASE("a process that is killed leaves a valid file with everything it has flushed") {
  folder at;
  const std::string path = at / "trace.json";
  for (const int flushed : {0, 1, 700}) {
    run_until_killed([&](auto say) {
      timeline line(0, 1);
      const bool good = !line.start(path);
      for (int i = 0; i < flushed; ++i) record_one(line, i);
      line.flush();
      for (int i = 0; i < 50; ++i) record_one(line, i);
      say(good);
      for (;;) ::pause();
    });
    CHECK(events(path).size() == static_cast<std::size_t>(flushed));
  }
}

// A write that the file grows by leaves a moment without an end: 1 µs in 300 µs of nothing but
// writing. If each write did, a third of these files would be cut.
TEST_CASE("a process that is killed while it writes leaves a valid file, as good as always") {
  folder at;
  const std::string path = at / "trace.json";
  std::mt19937 random(4);
  int cut = 0;
  for (int round = 0; round < 20; ++round) {
    run_until_killed(
        [&](auto say) {
          timeline line(0, 1);
          say(!line.start(path, {.ring = 1000}));
          for (int i = 0;; ++i) record_one(line, i);
        },
        static_cast<int>(random() % 8000));
    const std::string text = content(path);
    const std::size_t end = text.find("\n]}\n");
    if (end == std::string::npos) {
      ++cut;
    } else {
      CHECK(text.find_first_not_of(" \n", end + 4) == std::string::npos);
      if (round % 5 == 0) events(path);
    }
  }
  CHECK(cut <= 2);
}

TEST_CASE("slices of one row nest or are apart, as viewers want it") {
  folder at;
  const std::string path = at / "trace.json";
  std::mt19937 random(3);
  timeline line(0, 1);
  REQUIRE_FALSE(line.start(path));
  const auto start = timeline::time::clock::now();
  // As a coordinator does it: submissions one by one, elections of several at a time; and told of a
  // little out of order.
  const auto at_time = [&](std::int64_t when) { return start + std::chrono::nanoseconds(when); };
  std::vector<std::int64_t> waiting;
  std::vector<std::pair<std::int64_t, std::int64_t>> ended;
  std::int64_t now = 0;
  for (int round = 0; round < 2000; ++round) {
    now += 1 + static_cast<std::int64_t>(random() % 50);
    if (random() % 3 != 0 || waiting.empty()) {
      waiting.push_back(now);
      continue;
    }
    for (std::size_t left = 1 + random() % waiting.size(); left > 0; --left) {
      const std::size_t pick = random() % waiting.size();
      ended.emplace_back(waiting[pick], now);
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(pick));
    }
    if (round > 1000) {
      if (ended.size() < 20) continue;
      std::shuffle(ended.begin(), ended.end(), random);
    }
    for (const auto& [begin, end] : ended) {
      line.span(phase::negotiate, "n", 0, 0, 0, at_time(begin), at_time(end));
    }
    ended.clear();
  }
  line.stop();

  std::map<std::string, std::vector<std::pair<std::int64_t, std::int64_t>>> slices;
  for (const json& one : events(path)) {
    const std::int64_t begin = nanoseconds(one["ts"]);
    slices[one["tid"].text].emplace_back(begin, begin + nanoseconds(one["dur"]));
  }
  const auto names = rows(path);
  CHECK(slices.size() > 1);
  CHECK(slices.size() < 60);
  for (const auto& [row, of_row] : slices) {
    CHECK(names.at(row).starts_with("negotiate"));
    std::size_t overlaps = 0;
    for (const auto& a : of_row) {
      for (const auto& b : of_row) {
        overlaps += a.first < b.first && b.first < a.second && a.second < b.second ? 1U : 0U;
      }
    }
    CHECK(overlaps == 0);
  }
}

TEST_CASE_METHOD(recording,
                 "operations that are elected together share a row, others that overlap do not") {
  REQUIRE_FALSE(line.start(path));
  const auto start = timeline::time::clock::now();
  for (const int i : {3, 1, 2, 5, 4}) {
    line.span(phase::negotiate, "pack", 0, 0, 0, start + i * 1us, start + 10us);
  }
  line.span(phase::negotiate, "next", 0, 0, 0, start + 10us, start + 12us);
  line.span(phase::negotiate, "other", 0, 0, 0, start + 2us, start + 11us);
  line.span(phase::queue, "another", 0, 0, 0, start + 2us, start + 11us);
  line.stop();
  const auto names = rows(path);
  std::map<std::string, std::string> row_of;
  for (const json& one : events(path)) row_of[one["name"].text] = names.at(one["tid"].text);
  CHECK(row_of.at("pack") == "negotiate");
  CHECK(row_of.at("next") == "negotiate");
  CHECK(row_of.at("other") == "negotiate 2");
  CHECK(row_of.at("another") == "queue");
}

TEST_CASE_METHOD(recording, "more rows than a phase has leave every event in the file") {
  REQUIRE_FALSE(line.start(path));
  const auto start = timeline::time::clock::now();
  for (int i = 0; i < 300; ++i) {
    line.span(phase::negotiate, "n", 0, 0, 0, start + i * 1us, start + 1ms + i * 1us);
  }
  line.stop();
  CHECK(events(path).size() == 300);
  CHECK(rows(path).size() == 100);
}

// Two ranks' files for timeline_merge_test.py, which knows these figures.
TEST_CASE("writes the files of two ranks", "[.][writes]") {
  const char* path = std::getenv("COHORT_TEST_TIMELINE");
  REQUIRE(path != nullptr);
  timeline zero(0, 2);
  timeline one(1, 2);
  REQUIRE_FALSE(zero.start(path));
  REQUIRE_FALSE(one.start(path));
  const auto start = timeline::time::clock::now();
  // Rank 1 submits both 30 and 20 us later than rank 0; all end at 100 us.
  zero.span(phase::negotiate, "a", 0, 0, 1, start + 10us, start + 100us);
  zero.span(phase::negotiate, "b \"quoted\"", 0, 0, 2, start + 30us, start + 100us);
  one.span(phase::negotiate, "a", 0, 0, 1, start + 40us, start + 100us);
  one.span(phase::negotiate, "b \"quoted\"", 0, 0, 2, start + 50us, start + 100us);
  for (timeline* line : {&zero, &one}) {
    line->span(phase::queue, "a", 0, 0, 1, start + 100us, start + 101us);
    line->span(phase::queue, "b \"quoted\"", 0, 0, 2, start + 100us, start + 101us);
    line->span(phase::pack, "a", 0, 0, 1, start + 101us, start + 103us, 64);
    line->span(phase::pack, "b \"quoted\"", 0, 0, 2, start + 103us, start + 104us, 64);
    line->data("all_reduce", 0, 1, 2, 128, start + 104us, start + 114us, "mpi");
    line->span(phase::unpack, "a", 0, 0, 1, start + 114us, start + 115us, 64);
    line->span(phase::unpack, "b \"quoted\"", 0, 0, 2, start + 115us, start + 116us, 64);
    line->instant("generation", start + 120us);
  }
}
