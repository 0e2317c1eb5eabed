// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Pictures of a task graph: what is recorded, how it travels, and the texts that are made of it.

#include <cohort/core/trace_file.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/graph/dot.hpp>
#include <cohort/graph/recording.hpp>
#include <cohort/graph/schedule.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "coordinator/json.hpp"
#include "support/catch.hpp"

namespace graph = cohort::graph;
using graph::recorded_kind;
using graph::recorded_task;
using graph::recorded_use;
using graph::recording;
using graph::machine::key;
using graph::machine::use_kind;
using namespace std::chrono_literals;

namespace {

cohort::steady_clock::time_point at(std::chrono::nanoseconds when) {
  return cohort::steady_clock::time_point(1s + when);
}

key key_of(std::uint64_t number, int home) { return {number, 0xABCD, home}; }

/// Of the graph below.
const key source = key_of(1, 0);
const key factor = key_of(2, 0);
const key left = key_of(3, 1);
const key right = key_of(4, 0);
const key sum = key_of(0xFEDCBA9876543210, 1);

/// A diamond on two ranks: a source is taken by the task at its top, and the task at its bottom
/// fails. Each rank has its recording.
std::vector<recording> diamond() {
  std::vector<recording> ranks{recording(0), recording(1)};
  const std::array take{recorded_use{source, use_kind::take}};
  const std::array read{recorded_use{factor}};
  const std::array both{recorded_use{left, use_kind::take}, recorded_use{right},
                        recorded_use{factor, use_kind::after}};
  ranks[0].add({"A(0)", source, recorded_kind::source, 0, 0, at(1us), at(1us), {}});
  ranks[0].add({"factor(0)", factor, recorded_kind::task, 0, 0, at(2us), at(5us), take});
  ranks[0].add({"solve(1)", right, recorded_kind::task, 0, 2, at(5us), at(9500ns), read});
  ranks[1].add({"solve(0)", left, recorded_kind::task, 0, 0, at(7us), at(9us), read});
  ranks[1].add({"sum()", sum, recorded_kind::failed, 0, 0, at(10us), at(11us), both});
  return ranks;
}

/// A task of the scope, where only its number matters.
void add(recording& to, std::uint64_t number, const std::vector<recorded_use>& uses = {},
         std::uint32_t window = 0, recorded_kind kind = recorded_kind::task) {
  to.add({"t(" + std::to_string(number) + ")", key_of(number, to.rank()), kind, window, 0, at(1us),
          at(2us), uses});
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool equal(const recorded_task& a, const recorded_task& b) {
  return a.name == b.name && a.key == b.key && a.kind == b.kind && a.window == b.window &&
         a.thread == b.thread && a.begin == b.begin && a.end == b.end &&
         std::ranges::equal(a.uses, b.uses);
}

const cohort::trace::origin origin{"node", "boot", 1'000'000'000, 5'000'000'000};

}  // namespace

TEST_CASE("a recording has what was added to it", "[graph]") {
  const std::vector<recording> ranks = diamond();
  REQUIRE(ranks[0].size() == 3);
  const recorded_task one = ranks[0][2];
  CHECK(one.name == "solve(1)");
  CHECK(one.key == right);
  CHECK(one.thread == 2);
  CHECK(one.begin == at(5us));
  CHECK(one.end == at(9500ns));
  REQUIRE(one.uses.size() == 1);
  CHECK(one.uses[0].task == factor);
  CHECK(ranks[1][1].kind == recorded_kind::failed);
  CHECK(ranks[0].left_out() == 0);
}

TEST_CASE("a recording that is off takes nothing and counts nothing", "[graph]") {
  recording off;
  add(off, 1);
  recording without_memory(0, {.bytes = 0});
  add(without_memory, 1);
  CHECK_FALSE(off.active());
  CHECK_FALSE(without_memory.active());
  CHECK((off.empty() && without_memory.empty()));
  CHECK((off.left_out() == 0 && off.bytes() == 0));
}

TEST_CASE("a recording keeps within its bound and counts what it leaves out", "[graph]") {
  recording one(3, {.bytes = 1000});
  for (std::uint64_t i = 0; i < 50; ++i) add(one, 10 + i, {{key_of(i, 1)}, {key_of(i + 1, 1)}});
  // 56 + 5 + 2 * 24 bytes each.
  CHECK(one.size() == 9);
  CHECK(one.bytes() == 9 * 109);
  CHECK(one.left_out() == 41);
  // What would have room is left out as well, so that there are no gaps.
  one.add({"", key_of(99, 3), recorded_kind::task, 0, 0, at(1us), at(1us), {}});
  CHECK(one.left_out() == 42);
  CHECK(one[8].name == "t(18)");
}

TEST_CASE("names and lists of dependencies that are very long are cut", "[graph]") {
  recording one(0);
  const std::string name = std::string(511, 'x') + "\xC3\xA4";  // would be cut in two
  const std::vector<recorded_use> uses(recording::uses_limit + 7);
  one.add({name, key_of(1, 0), recorded_kind::task, 0, 0, at(1us), at(2us), uses});
  CHECK(one[0].name == std::string(511, 'x'));
  CHECK(one[0].uses.size() == recording::uses_limit);
  CHECK(one.uses_left_out() == 7);
  CHECK(one.left_out() == 0);
  CHECK(contains(graph::dot_text({&one, 1}), "Dependencies that were not recorded: 7."));
}

TEST_CASE("an end before the beginning becomes the beginning", "[graph]") {
  recording one(0);
  one.add({"t()", key_of(1, 0), recorded_kind::task, 0, 0, at(5us), at(3us), {}});
  CHECK(one[0].end == at(5us));
}

TEST_CASE("a recording travels whole", "[graph]") {
  std::vector<recording> ranks = diamond();
  ranks.emplace_back(2, graph::recording_options{.bytes = 200});
  for (std::uint64_t i = 0; i < 5; ++i) add(ranks[2], i);
  ranks.emplace_back();
  for (const recording& one : ranks) {
    const auto back = cohort::wire::decode<recording>(cohort::wire::encode(one));
    REQUIRE(back.size() == one.size());
    CHECK(back.rank() == one.rank());
    CHECK(back.active() == one.active());
    CHECK(back.left_out() == one.left_out());
    CHECK(back.bytes() == one.bytes());
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(equal(back[i], one[i]));
  }
}

TEST_CASE("bytes that are no recording are refused, wherever they are wrong", "[graph]") {
  const std::vector<recording> ranks = diamond();
  const std::vector<std::byte> good = cohort::wire::encode(ranks[1]);
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK_THROWS_AS(cohort::wire::decode<recording>(std::span(good).first(size)),
                    std::system_error);
  }
  std::mt19937 random(7);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes = good;
    for (int n = 0; n < 3; ++n) bytes[random() % bytes.size()] = std::byte(random() % 256);
    try {
      const auto one = cohort::wire::decode<recording>(bytes);
      // What is read can be drawn.
      CHECK(graph::dot_text({&one, 1}).ends_with("}\n"));
      cohort_test::parse_json(graph::schedule_text(one, {2, "s", origin}));
      ++read;
    } catch (const std::system_error&) {
    }
  }
  CHECK(read > 100);
}

TEST_CASE("the text for Graphviz is exact", "[graph]") {
  const std::vector<recording> ranks = diamond();
  CHECK(graph::dot_text(ranks, {.title = "dia\"mond"}) == R"text(digraph "dia\"mond" {
  graph [fontname="sans-serif", labelloc=b, label="dia\"mond: 4 tasks and 1 source of 2 ranks. 1 failed.\nBox: task. Ellipse: source. Bold: the value is taken. Dashed: order only."];
  node [fontname="sans-serif", shape=box, style=filled];
  edge [color="gray40"];
  subgraph "cluster_ranks" {
    label="ranks";
    r0 [label="rank 0", fillcolor="0.550 0.35 0.95"];
    r1 [label="rank 1", fillcolor="0.168 0.35 0.95"];
  }
  n0 [label="A(0)", fillcolor="0.550 0.35 0.95", shape=ellipse];
  n1 [label="factor(0)", fillcolor="0.550 0.35 0.95"];
  n2 [label="solve(0)", fillcolor="0.168 0.35 0.95"];
  n3 [label="solve(1)", fillcolor="0.550 0.35 0.95"];
  n4 [label="sum()\nfailed", fillcolor="0.168 0.35 0.95", color="red", penwidth=3];
  n0 -> n1 [style=bold, color="black"];
  n1 -> n2;
  n1 -> n3;
  n2 -> n4 [style=bold, color="black"];
  n3 -> n4;
  n1 -> n4 [style=dashed];
}
)text");
}

TEST_CASE("the text for Graphviz does not depend on the order of recordings and times", "[graph]") {
  std::vector<recording> ranks = diamond();
  const std::string text = graph::dot_text(ranks);
  std::swap(ranks[0], ranks[1]);
  CHECK(graph::dot_text(ranks) == text);
  recording backwards(0);
  for (std::size_t i = ranks[1].size(); i-- > 0;) {
    recorded_task one = ranks[1][i];
    one.begin += 1ms * i;
    one.end += 2ms * i;
    backwards.add(one);
  }
  ranks[1] = backwards;
  CHECK(graph::dot_text(ranks) == text);
}

TEST_CASE("names cannot break the text for Graphviz", "[graph]") {
  recording one(0);
  const std::string name("a\"b\\c\n\t&lt;\xC3\xA4\xFF\0 z", 17);
  one.add({name, key_of(1, 0), recorded_kind::task, 0, 0, at(1us), at(2us), {}});
  CHECK(contains(graph::dot_text({&one, 1}),
                 "n0 [label=\"a\\\"b\\\\c\\n?&amp;lt;\xC3\xA4\xEF\xBF\xBD? z\", fill"));
}

TEST_CASE("windows are drawn apart, and their keys do not mix", "[graph]") {
  std::vector<recording> ranks{recording(0)};
  for (std::uint32_t window : {4, 5}) {
    add(ranks[0], 1, {}, window);
    add(ranks[0], 2, {{key_of(1, 0)}}, window);
  }
  const std::string text = graph::dot_text(ranks);
  CHECK(contains(text, "4 tasks of 1 rank in 2 windows."));
  CHECK(contains(text, R"text(  subgraph "cluster_window_4" {
    label="window 4";
    n0 [label="t(1)", fillcolor="0.550 0.35 0.95"];
    n1 [label="t(2)", fillcolor="0.550 0.35 0.95"];
  }
  subgraph "cluster_window_5" {
    label="window 5";
    n2 [label="t(1)", fillcolor="0.550 0.35 0.95"];
    n3 [label="t(2)", fillcolor="0.550 0.35 0.95"];
  }
  n0 -> n1;
  n2 -> n3;
}
)text"));
}

TEST_CASE("of a large graph the beginning is drawn, and the picture says so", "[graph]") {
  std::vector<recording> ranks{recording(0), recording(1, {.bytes = 61})};
  // Two chains of 100; the third of them has the smallest key.
  for (std::uint64_t i = 0; i < 100; ++i) {
    std::vector<recorded_use> uses;
    if (i > 0) uses.push_back({key_of(1000 - i + 1, 0)});
    add(ranks[0], 1000 - i, uses);
    add(ranks[0], 5000 + i,
        i > 0 ? std::vector{recorded_use{key_of(5000 + i - 1, 0)}} : std::vector<recorded_use>{});
  }
  add(ranks[1], 1, {{key_of(77, 5)}});
  add(ranks[1], 2);
  const std::string text = graph::dot_text(ranks, {.most = 5});
  CHECK(contains(text,
                 "200 tasks of 2 ranks.\\nOnly 5 are drawn, with the shortest ways from the "
                 "beginning; 195 are left out.\\n2 more were not recorded, because the "
                 "memory for it was full.\\nBox"));
  CHECK(contains(text, R"text(  n0 [label="t(1000)", fillcolor="0.550 0.35 0.95"];
  n1 [label="t(5000)", fillcolor="0.550 0.35 0.95"];
  n2 [label="t(5001)", fillcolor="0.550 0.35 0.95"];
  n3 [label="t(999)", fillcolor="0.550 0.35 0.95"];
  n4 [label="t(5002)", fillcolor="0.550 0.35 0.95"];
  n1 -> n2;
  n0 -> n3;
  n2 -> n4;
}
)text"));
}

TEST_CASE("what is missing, double or a cycle is drawn as far as it goes", "[graph]") {
  std::vector<recording> ranks{recording(0), recording(1)};
  add(ranks[0], 1, {{key_of(2, 0)}});
  add(ranks[0], 2, {{key_of(1, 0)}, {key_of(17, 9)}});
  add(ranks[0], 2);
  const std::string text = graph::dot_text(ranks);
  CHECK(contains(text,
                 "2 tasks of 2 ranks.\\nDependencies on what is not recorded: 1.\\n"
                 "Recorded more than once: 1.\\n"));
  CHECK(contains(text, "n0 -> n1"));
  CHECK(contains(text, "n1 -> n0"));
  CHECK(contains(graph::dot_text({}), "0 tasks of 0 ranks."));
}

TEST_CASE("a chain that is deeper than a stack can be drawn in part", "[graph]") {
  recording one(0, {.bytes = 20'000'000});
  std::vector<recorded_use> uses;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    one.add({"c", key_of(i, 0), recorded_kind::task, 0, 0, at(1us), at(2us), uses});
    uses = {{key_of(i, 0)}};
  }
  CHECK(one.left_out() == 0);
  CHECK(contains(graph::dot_text({&one, 1}, {.most = 3}), "  n1 -> n2;\n}\n"));
}

TEST_CASE("the schedule is exact", "[graph]") {
  const std::vector<recording> ranks = diamond();
  const std::string head =
      R"text({"otherData":{"cohort_timeline":1,"rank":0,"size":2,"host":"node","boot":"boot",)text"
      R"text("graph":"dia\"mond","steady_ns":"1000000000","system_ns":"5000000000"},"traceEvents":[)text";
  CHECK(graph::schedule_text(ranks[0], {2, "dia\"mond", origin}) == head + R"text(
{"name":"process_name","ph":"M","pid":0,"tid":1001,"args":{"name":"rank 0"}},
{"name":"process_sort_index","ph":"M","pid":0,"tid":1001,"args":{"sort_index":0}},
{"name":"thread_name","ph":"M","pid":0,"tid":1002,"args":{"name":"sources"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":1002,"args":{"sort_index":1002}},
{"name":"thread_name","ph":"M","pid":0,"tid":1900,"args":{"name":"tasks"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":1900,"args":{"sort_index":1900}},
{"name":"thread_name","ph":"M","pid":0,"tid":1901,"args":{"name":"thread 2"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":1901,"args":{"sort_index":1901}},
{"name":"A(0)","cat":"source","ph":"i","s":"t","ts":1,"pid":0,"tid":1002,"args":{"window":0,"key":"0000abcd0000000000000001@0"}},
{"name":"factor(0)","cat":"task","ph":"X","ts":2,"dur":3,"pid":0,"tid":1900,"args":{"window":0,"key":"0000abcd0000000000000002@0","takes":"0000abcd0000000000000001@0"}},
{"name":"solve(1)","cat":"task","ph":"X","ts":5,"dur":4.5002,"pid":0,"tid":1901,"args":{"window":0,"key":"0000abcd0000000000000004@0","reads":"0000abcd0000000000000002@0"}}
]}
)text");
  const std::string one = graph::schedule_text(ranks[1], {2, "dia\"mond", origin});
  CHECK(contains(
      one, R"text({"name":"sum()","cat":"task","ph":"X","ts":10,"dur":1,"pid":1,"tid":2900,)text"
           R"text("args":{"window":0,"key":"0000abcdfedcba9876543210@1","failed":1,)text"
           R"text("reads":"0000abcd0000000000000004@0",)text"
           R"text("takes":"0000abcd0000000000000003@1",)text"
           R"text("after":"0000abcd0000000000000002@0"}})text"));
}

TEST_CASE("tasks that overlap on the loop get rows, and times before the origin are its own",
          "[graph]") {
  recording one(0);
  one.add({"waits", key_of(1, 0), recorded_kind::task, 0, 0, at(4us), at(9us), {}});
  one.add({"inside", key_of(2, 0), recorded_kind::task, 0, 0, at(5us), at(6us), {}});
  one.add({"after", key_of(3, 0), recorded_kind::task, 0, 0, at(7us), at(12us), {}});
  one.add({"early", key_of(4, 0), recorded_kind::task, 0, 0, at(-3us), at(2us), {}});
  const auto whole = cohort_test::parse_json(graph::schedule_text(one, {1, "", origin}));
  std::vector<std::string> seen;
  for (const auto& event : whole["traceEvents"].items) {
    if (event["ph"].text != "X") continue;
    seen.push_back(event["name"].text + " " +
                   std::to_string(static_cast<int>(event["tid"].number())) + " " +
                   std::to_string(static_cast<int>(event["ts"].number())));
  }
  CHECK(seen ==
        std::vector<std::string>{"early 1900 0", "waits 1900 4", "inside 1901 5", "after 1901 7"});
}

TEST_CASE("the schedule tells what was not recorded", "[graph]") {
  recording one(0, {.bytes = 60});
  add(one, 1);
  add(one, 2);
  const std::string text = graph::schedule_text(one, {1, "s", origin});
  CHECK(contains(
      text, R"text({"name":"tasks left out","cat":"event","ph":"i","s":"t","ts":2,"pid":0,)text"
            R"text("tid":1001,"args":{"lost":1,"dependencies":0}})text"));
}

TEST_CASE("pictures are written to files", "[graph]") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("cohort-pictures-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto content = [](const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  std::vector<recording> ranks{recording(0), recording(1)};
  for (std::uint64_t i = 0; i < 2000; ++i) add(ranks[1], i);  // more than is written at once
  const std::string dot = (folder / "graph.dot").string();
  CHECK_FALSE(graph::write_dot(dot, ranks));
  CHECK(content(dot) == graph::dot_text(ranks));
  CHECK_FALSE(graph::write_schedule((folder / "trace.json").string(), ranks[1], {2, "s", origin}));
  CHECK(content(folder / "trace.1.json") == graph::schedule_text(ranks[1], {2, "s", origin}));
  std::filesystem::remove_all(folder);
  CHECK(graph::write_dot(dot, ranks) == std::errc::no_such_file_or_directory);
  CHECK(graph::write_dot("/dev/full", ranks) == std::errc::no_space_on_device);
}

// Run by tests/coordinator/timeline_merge_test.py, and by nothing else.
TEST_CASE("writes a schedule for the script", "[.][writes]") {
  const char* const path = std::getenv("COHORT_TEST_SCHEDULE");
  REQUIRE(path != nullptr);
  for (const recording& one : diamond()) {
    REQUIRE_FALSE(graph::write_schedule(path, one, {2, "diamond", origin}));
  }
}
