// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What a scope keeps beside its values: pictures of what has run on real ranks.
#include <cohort/graph.hpp>

#include <asio/experimental/awaitable_operators.hpp>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "coordinator/json.hpp"
#include "graph/ranks_support.hpp"

namespace {

using namespace graph_test;
namespace fs = std::filesystem;
using graph::scope_options;

// ---- a directory that all ranks know ----

asio::awaitable<std::string> made_by_the_first(graph::scope& s) {
  const auto path = s.tasks<std::string>("path", graph::on(0));
  if (s.rank() == 0) {
    std::string name = (fs::temp_directory_path() / "cohort_kept_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) name.clear();
    path().put(name);
  }
  std::string name = co_await path().get();
  co_return name;
}

asio::awaitable<void> nothing_at_all(graph::scope& s) { co_await s.fence(); }

/// All ranks of a test, and a directory of theirs, which goes with it.
using body_with_directory = task (*)(graph::tasks& all, std::string directory, int rank);

void with_directory(const graph::tasks_options& options, body_with_directory body) {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world, options);
    auto making = all.run("directory", &made_by_the_first);
    const std::string directory = co_await std::move(making);
    REQUIRE_FALSE(directory.empty());
    auto working = body(all, directory, world.rank());
    co_await std::move(working);
    auto waiting = all.run("end", &nothing_at_all);
    co_await std::move(waiting);
    if (world.rank() == 0) fs::remove_all(directory);
  });
}

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int count(const std::string& text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

// ---- pictures ----

int plus_one(int x) { return x + 1; }
int no_luck(int) { throw std::runtime_error("no luck"); }
int sum_of(std::span<const int> all) {
  int sum = 0;
  for (const int one : all) sum += one;
  return sum;
}
asio::awaitable<int> slowly(int x) {
  auto posted = asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
  co_await std::move(posted);
  co_return x;
}

constexpr int width = 5;

/// Five sources, of which five tasks take one each; a coroutine after the first of these; the sum
/// on the last rank; and one that fails.
void spawn_picture(graph::scope& s) {
  const auto x = s.tasks<int>("x");
  const auto f = s.tasks<&plus_one>("f");
  std::vector<graph::task<int>> all;
  for (int i = 0; i < width; ++i) {
    if (x(i).here()) x(i).put(i);
    all.push_back(f(i).spawn(take(x(i))));
  }
  s.tasks<&slowly>("slow")().spawn(7, after(f(0)));
  s.tasks<&sum_of>("sum", graph::on(s.size() - 1))().spawn(all);
  s.tasks<&no_luck>("bad", graph::on(0))().spawn(f(1));
}

void check_dot(const std::string& text, int ranks) {
  CHECK(has(text, "digraph \"pictures\""));
  CHECK(has(text, "8 tasks and 5 sources of " + std::to_string(ranks)));
  CHECK(has(text, "1 failed."));
  for (int i = 0; i < width; ++i) {
    CHECK(count(text, "label=\"x(" + std::to_string(i) + ")\"") == 1);
    CHECK(count(text, "label=\"f(" + std::to_string(i) + ")\"") == 1);
  }
  CHECK(count(text, "label=\"sum()\"") == 1);
  CHECK(count(text, "label=\"slow()\"") == 1);
  CHECK(count(text, "label=\"bad()\\nfailed\"") == 1);
  CHECK(count(text, " -> ") == width + width + 2);
  CHECK(count(text, "style=bold") == width);
  CHECK(count(text, "style=dashed") == 1);
  CHECK_FALSE(has(text, "not recorded"));
  CHECK_FALSE(has(text, "Recorded more than once"));
  CHECK_FALSE(has(text, "cohort::recording"));
}

/// Those that are at home here.
std::multiset<std::string> names_here(const graph::scope& s) {
  std::multiset<std::string> names;
  const auto note = [&](const auto& one) {
    if (one.here()) names.insert(one.name());
  };
  for (int i = 0; i < width; ++i) {
    note(s.tasks<int>("x")(i));
    note(s.tasks<&plus_one>("f")(i));
  }
  note(s.tasks<&slowly>("slow")());
  note(s.tasks<&sum_of>("sum", graph::on(s.size() - 1))());
  note(s.tasks<&no_luck>("bad", graph::on(0))());
  return names;
}

std::string of_rank(const std::string& path, int rank, int ranks) {
  return cohort::trace::path_of_rank(path, rank, ranks);
}

void check_schedule(const std::string& text, const std::multiset<std::string>& expected) {
  const cohort_test::json all = cohort_test::parse_json(text);
  CHECK(all["otherData"]["graph"].text == "pictures");
  std::multiset<std::string> found;
  for (const cohort_test::json& one : all["traceEvents"].items) {
    const cohort_test::json* const what = one.find("cat");
    if (what == nullptr) continue;
    if (what->text == "task" || what->text == "source") found.insert(one["name"].text);
    if (one["name"].text == "sum()") {
      CHECK(count(one["args"]["reads"].text, "@") == width);
    }
    CHECK((one["name"].text == "bad()") == (one["args"].find("failed") != nullptr));
  }
  CHECK(found == expected);
}

task draw_pictures(graph::scope& s, std::string directory) {
  spawn_picture(s);
  const auto report = co_await s.fence();
  CHECK(report.failed == 1);
  const auto expected = names_here(s);
  co_await s.write_dot(directory + "/graph.dot");
  s.write_schedule(directory + "/schedule.json");
  if (s.rank() == 0) check_dot(content_of(directory + "/graph.dot"), s.size());
  check_schedule(content_of(of_rank(directory + "/schedule.json", s.rank(), s.size())), expected);
  // A second one of the same window has nothing of the first.
  auto again = s.write_dot(directory + "/again.dot");
  co_await std::move(again);
  if (s.rank() == 0) {
    CHECK(content_of(directory + "/again.dot") == content_of(directory + "/graph.dot"));
  }
}

/// Whether scripts/timeline_merge reads the files of all ranks; true without Python.
bool merges(const std::string& directory, int ranks) {
  const fs::path script = fs::path(__FILE__).parent_path() / "../../scripts/timeline_merge";
  if (!fs::exists(script) || std::system("python3 -c '' > /dev/null 2>&1") != 0) return true;
  std::string command = "python3 '" + script.string() + "' '" + directory + "/merged.json'";
  for (int rank = 0; rank < ranks; ++rank) {
    command += " '" + of_rank(directory + "/schedule.json", rank, ranks) + "'";
  }
  command += " > '" + directory + "/report.txt' 2>&1";
  const bool good = std::system(command.c_str()) == 0;
  const std::string report = content_of(directory + "/report.txt");
  INFO(report);
  CHECK(has(report, "task graph pictures: 8 tasks and 5 sources of " + std::to_string(ranks)));
  CHECK(has(report, "critical path: "));
  CHECK(has(report, "1 failed"));
  return good;
}

asio::awaitable<int> number_of_ranks(graph::scope& s) { co_return s.size(); }

task draw_and_merge(graph::tasks& all, std::string directory, int rank) {
  auto drawing = all.run(scope_options("pictures").record(), &draw_pictures, directory);
  const auto why = co_await error_of(std::move(drawing));
  REQUIRE(why);  // "bad"
  CHECK(why->code() == errc::task_failed);
  auto closing = all.run("ranks", &number_of_ranks);
  const int ranks = co_await std::move(closing);  // all files are there
  if (rank == 0) CHECK(merges(directory, ranks));
}

TEST_CASE("what has run on all ranks is drawn, and each rank writes its schedule", "[graph]") {
  with_directory({}, &draw_and_merge);
}

TEST_CASE("with threads the pictures have the same in them", "[graph]") {
  with_directory(graph::tasks_options().on_threads(2), &draw_and_merge);
}

task no_picture(graph::scope& s) {
  auto drawing = s.write_dot("nowhere.dot");
  std::optional<cohort::error> found;
  try {
    co_await std::move(drawing);
  } catch (const cohort::error& why) {
    found = why;
  }
  REQUIRE(found);
  CHECK(found->code() == errc::invalid_argument);
  CHECK(has(found->what(), "scope_options::record"));
  CHECK_THROWS_AS(s.write_schedule("nowhere.json"), cohort::error);
}

TEST_CASE("a scope that records nothing draws nothing", "[graph]") { in_scope(&no_picture); }

task repeat_picture(graph::scope& s, std::string directory) {
  const auto x = s.tasks<int>("x", graph::on(0));
  const auto f = s.tasks<&plus_one>("f", graph::on(s.size() - 1));
  f().spawn(take(x()));
  for (int window = 0; window < 3; ++window) {
    if (x().here()) x().put(window);
    if (window < 2) {
      co_await s.again();
    } else {
      co_await s.fence();
    }
  }
  const graph::dot_options with{.title = "three", .most = 100};
  co_await s.write_dot(directory + "/windows.dot", with);
  if (s.rank() != 0) co_return;
  const std::string text = content_of(directory + "/windows.dot");
  CHECK(has(text, "three: 3 tasks and 3 sources"));
  CHECK(count(text, "label=\"f()\"") == 3);
  CHECK(count(text, "style=bold") == 3);
}
task repeat_and_draw(graph::tasks& all, std::string directory, int) {
  auto drawing = all.run(scope_options("windows").record(), &repeat_picture, directory);
  co_await std::move(drawing);
}

TEST_CASE("tasks that run in several windows are drawn once in each", "[graph]") {
  with_directory({}, &repeat_and_draw);
}

// ---- hashes ----

using graph::task_context;
using graph::task_hash;

int twice(int x) { return 2 * x; }
int two_of(int a, int b) { return 10 * a + b; }
std::string own_hash(task_context& context, int) { return context.hash().text(); }
asio::awaitable<std::string> own_hash_later(task_context& context, int) {
  const std::string before = context.hash().text();
  auto posted = asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
  co_await std::move(posted);
  CHECK(context.hash().text() == before);
  co_return before;
}

template <class... Parameters>
void in_hashed_scope(task (*program)(graph::scope&, Parameters...),
                     std::remove_cvref_t<Parameters>... arguments) {
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world);
    auto running = all.run(scope_options("hashes").hash_tasks(), program, arguments...);
    co_await std::move(running);
  });
}

/// Why a task has no hash here.
template <class Task>
std::optional<cohort::error> no_hash(const Task& one) {
  try {
    static_cast<void>(one.hash());
  } catch (const cohort::error& why) {
    return why;
  }
  return std::nullopt;
}

// All spawn all, so that all know all definitions, also before anything has run.
task hash_by_definitions(graph::scope& s) {
  const auto f = s.tasks<&plus_one>("f");
  const auto g = s.tasks<&two_of>("g");
  const auto tell = s.tasks<&own_hash>("tell");
  const auto later = s.tasks<&own_hash_later>("later");
  f(0).spawn(3);
  for (int i = 1; i < 100; ++i) f(i).spawn(f(i - 1));
  g(0).spawn(f(99), f(50));
  tell(0).spawn(g(0));
  later(0).spawn(g(0));
  const task_hash before = tell(0).hash();
  const task_hash before_later = task_hash(later(0));
  CHECK(before != before_later);  // another function
  const std::string in_task = co_await tell(0).get();
  const std::string in_coroutine = co_await later(0).get();
  CHECK(in_task == before.text());
  CHECK(in_coroutine == before_later.text());
  CHECK(tell(0).hash() == before);
}

TEST_CASE("the hash of a task is the same on all ranks and while it runs", "[graph]") {
  in_hashed_scope(&hash_by_definitions);
}

std::vector<double> large(std::vector<double> x) {
  x.resize(4000);
  return x;
}
std::string own_hash_of(task_context& context, const std::vector<double>&, int) {
  return context.hash().text();
}

// The first rank spawns all, and the others do not know of it; one value is too large for a
// message.
task hash_that_travels(graph::scope& s) {
  const int last = s.size() - 1;
  const auto x = s.tasks<std::vector<double>>("x", graph::on(0));
  const auto y = s.tasks<int>("y", graph::on(last));
  const auto f = s.tasks<&large>("f", graph::on(0));
  const auto tell = s.tasks<&own_hash_of>("tell", graph::on(last));
  if (x().here()) x().put(std::vector<double>{1, 2, 3});
  if (y().here()) y().put(4);
  if (s.rank() == 0) {
    f().spawn(take(x()));
    tell().spawn(f(), y());
  }
  if (s.size() > 1 && s.rank() == 0) {
    const auto why = no_hash(tell());
    REQUIRE(why);
    CHECK(why->code() == errc::not_local);
    CHECK(has(why->what(), "cannot tell the hash of tell()"));
    CHECK(has(why->what(), "y() has not been spawned or put here"));
  }
  const std::string told = co_await tell().get();
  CHECK(told == tell().hash().text());  // it has come with the value
  // By hand, as any rank can compute it that knows everything.
  const auto same_x = s.tasks<std::vector<double>>("same_x", graph::block_cyclic(s.size(), 1));
  const auto same_y = s.tasks<int>("same_y", graph::block_cyclic(s.size(), 1));
  const auto same_f = s.tasks<&large>("same_f", graph::block_cyclic(s.size(), 1));
  const auto same_tell = s.tasks<&own_hash_of>("same_tell", graph::block_cyclic(s.size(), 1));
  const int own = s.rank();
  same_x(own).put(std::vector<double>{1, 2, 3});
  same_y(own).put(4);
  same_f(own).spawn(take(same_x(own)));
  same_tell(own).spawn(same_f(own), same_y(own));
  CHECK(same_tell(own).hash().text() == told);
  co_await s.fence();
}

TEST_CASE("a hash comes with the value where nobody has spawned the task", "[graph]") {
  in_hashed_scope(&hash_that_travels);
}

task different_hashes(graph::scope& s) {
  const auto f = s.tasks<&plus_one>("f");
  const auto t = s.tasks<&twice>("t");
  const auto g = s.tasks<&two_of>("g");
  f(0).spawn(1);
  f(1).spawn(2);
  t(0).spawn(1);
  g(0).spawn(f(0), f(1));
  g(1).spawn(f(1), f(0));
  g(2).spawn(f(0), 3);
  g(3).spawn(f(0), f(1), after(t(0)));
  g(4).spawn(1, 2);
  g(5).spawn(f(0), 2);
  g(6).spawn(2, f(0));
  g(7).spawn(t(0), f(1));
  std::set<task_hash> all{f(0).hash(), f(1).hash(), t(0).hash()};
  for (int i = 0; i < 8; ++i) all.insert(g(i).hash());
  CHECK(all.size() == 11);
  // Other names, placements and orders.
  const auto same = s.tasks<&two_of>("same", graph::on(0));
  const auto same_f = s.tasks<&plus_one>("same_f", graph::on(s.size() - 1));
  same(7, 8).spawn(same_f(4), same_f(2));
  same_f(2).spawn(2);
  same_f(4).spawn(1);
  CHECK(same(7, 8).hash() == g(0).hash());
  co_await s.fence();
}

TEST_CASE("tasks that compute something else have other hashes, names do not count", "[graph]") {
  in_hashed_scope(&different_hashes);
}

task hash_of_windows(graph::scope& s) {
  const auto x = s.tasks<int>("x", graph::on(0));
  const auto tell = s.tasks<&own_hash>("tell", graph::on(s.size() - 1));
  tell().spawn(take(x()));
  std::vector<std::string> all;
  for (int window = 0; window < 3; ++window) {
    if (x().here()) x().put(window % 2);
    std::string one = co_await tell().get();
    CHECK(one == tell().hash().text());
    all.push_back(std::move(one));
    co_await s.again();
  }
  if (x().here()) {
    const auto why = no_hash(tell());
    REQUIRE(why);
    CHECK(has(why->what(), "x() is a source that was not put in this window"));
    x().put(7);
  }
  co_await s.fence();
  CHECK(all[0] != all[1]);
  CHECK(all[0] == all[2]);
  CHECK(no_hash(tell())->code() == errc::not_local);
}

TEST_CASE("what is put anew gives another hash", "[graph]") { in_hashed_scope(&hash_of_windows); }

// The first definition counts, and so does its hash.
task put_too_late(graph::scope& s) {
  const auto f = s.tasks<&plus_one>("f", graph::on(0));
  if (s.rank() == 0) {
    f(0).put(5);
    const task_hash of_first = f(0).hash();
    f(0).put(6);
    CHECK(f(0).hash() == of_first);
    f(1).spawn(1);
    const task_hash of_task = f(1).hash();
    f(1).put(2);
    CHECK(f(1).hash() == of_task);
  }
  const int first = co_await f(0).get();
  CHECK(first == 5);
  co_await s.fence();
}

TEST_CASE("a put that has no effect has none on the hash", "[graph]") {
  graph::tasks_options options;
  options.warn_on_divergence = true;
  cohort_test::on_world([&](cohort::communicator world) -> task {
    graph::tasks all(world, options);
    auto running = all.run(scope_options("hashes").hash_tasks(), &put_too_late);
    co_await std::move(running);
  });
}

class address {  // no aggregate, so it has no wire format
 public:
  explicit address(const void* at) noexcept : at_(at) {}
  [[nodiscard]] bool is_null() const noexcept { return at_ == nullptr; }

 private:
  const void* at_;
};
int of_address(address one) { return one.is_null() ? 0 : 1; }

task hashes_that_are_not_there(graph::scope& s) {
  const auto f = s.tasks<&plus_one>("f", graph::on(0));
  f(0).spawn(f(1));
  f(1).spawn(f(0));
  const auto cyclic = no_hash(f(0));
  REQUIRE(cyclic);
  CHECK(cyclic->code() == errc::cycle);
  const auto a = s.tasks<&of_address>("a", graph::block_cyclic(s.size(), 1));
  a(s.rank()).spawn(address{&s});
  const auto no_format = no_hash(a(s.rank()));
  REQUIRE(no_format);
  CHECK(no_format->code() == errc::not_supported);
  CHECK(has(no_format->what(), "has an argument without a wire format"));
  CHECK(no_hash(f(9))->code() == errc::not_local);
  const auto report = co_await s.fence();
  CHECK(report.failed == 2);
  co_await s.fence();
}

TEST_CASE("why a task has no hash is told", "[graph]") {
  cohort_test::on_world([](cohort::communicator world) -> task {
    graph::tasks all(world);
    auto running = all.run(scope_options("hashes").hash_tasks(), &hashes_that_are_not_there);
    const auto why = co_await error_of(std::move(running));
    REQUIRE(why);
    CHECK(why->code() == errc::cycle);
  });
}

task no_hashes(graph::scope& s) {
  const auto f = s.tasks<&plus_one>("f");
  f(0).spawn(1);
  const auto why = no_hash(f(0));
  REQUIRE(why);
  CHECK(why->code() == errc::not_supported);
  CHECK(has(why->what(), "scope_options::hash_tasks"));
  co_await s.fence();
}

TEST_CASE("a scope that does not hash says so", "[graph]") { in_scope(&no_hashes); }

// ---- results ----

std::atomic<int> runs = 0;  // of the functions below, on this rank

int tripled(int x) {
  ++runs;
  return 3 * x;
}
asio::awaitable<int> counted_slowly(int x) {
  auto posted = asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
  co_await std::move(posted);
  ++runs;
  co_return x + 100;
}
std::vector<double> counted_large(int x, const std::vector<double>& first) {
  ++runs;
  std::vector<double> all(5000, x);
  all[0] = first.empty() ? 0 : first[0];
  return all;
}
void counted_nothing(int) { ++runs; }
std::string counted_sum(task_context& context, std::span<const int> all, std::vector<double> last) {
  ++runs;
  int sum = 0;
  for (const int one : all) sum += one;
  CHECK(context.size() > 0);
  return std::to_string(sum) + "," + std::to_string(last.size()) + "," + std::to_string(last[4]);
}

struct kept_program {
  graph::function_version version = "1";
  int first = 1;             ///< an argument
  double put = 2;            ///< a source
  bool other_order = false;  ///< of two dependencies
  bool one_spawns = false;
};

struct kept_outcome {
  std::string sum;
  std::vector<std::string> hashes;

  friend bool operator==(const kept_outcome&, const kept_outcome&) = default;
};

constexpr int kept_tasks = 4 + 1 + 1 + 1 + 1;

asio::awaitable<kept_outcome> run_kept(graph::scope& s, kept_program with) {
  const auto x = s.tasks<std::vector<double>>("x", graph::on(s.size() - 1));
  if (x().here()) x().put(std::vector<double>{with.put});
  const auto large = s.tasks<&counted_large>("large", graph::on(0));
  const auto sum = s.tasks<&counted_sum>("sum", graph::on(s.size() - 1));
  if (!with.one_spawns || s.rank() == 0) {  // others do not know what is cached
    const auto f = s.tasks<&tripled>("f").cached(with.version);
    const auto slow = s.tasks<&counted_slowly>("slow").cached(with.version);
    const auto none = s.tasks<&counted_nothing>("none").cached(with.version);
    const auto large_cached = large.cached(with.version);
    const auto sum_cached = sum.cached(with.version);
    std::vector<graph::task<int>> all;
    for (int i = 0; i < 4; ++i) all.push_back(f(i).spawn(with.first + i));
    slow().spawn(f(0));
    if (with.other_order) std::swap(all[1], all[2]);
    all.push_back(slow());
    none().spawn(5, after(f(1)));
    large_cached().spawn(f(3), x());
    sum_cached().spawn(all, take(large_cached()), after(none()));
  }
  kept_outcome outcome;
  outcome.sum = co_await sum().get();
  outcome.hashes.push_back(sum().hash().text());
  co_await s.fence();
  co_return outcome;
}

/// Runs it, and tells how many tasks have run on all ranks together.
asio::awaitable<int> runs_everywhere(graph::scope& s, int here) {
  const auto each = s.tasks<int>("runs", graph::block_cyclic(s.size(), 1));
  each(s.rank()).put(here);
  int sum = 0;
  for (int rank = 0; rank < s.size(); ++rank) sum += co_await each(rank).get();
  co_return sum;
}

asio::awaitable<kept_outcome> run_and_count(graph::tasks& all, std::string directory,
                                            kept_program with, int expected) {
  runs = 0;
  auto running = all.run(scope_options("kept").results(directory), &run_kept, with);
  kept_outcome outcome = co_await std::move(running);
  auto counting = all.run("count", &runs_everywhere, runs.load());
  const int counted_runs = co_await std::move(counting);
  CHECK(counted_runs == expected);
  co_return outcome;
}

/// Results; other ranks may be writing.
int files_in(const std::string& directory) {
  int found = 0;
  for (const fs::directory_entry& each : fs::directory_iterator(directory)) {
    const std::string name = each.path().filename().string();
    if (name.size() == 64 && !has(name, ".")) ++found;
  }
  return found;
}

task run_twice(graph::tasks& all, std::string directory, int) {
  auto first = run_and_count(all, directory, {}, kept_tasks);
  const kept_outcome one = co_await std::move(first);
  CHECK(one.sum == "133,5000,12.000000");
  CHECK(files_in(directory) == kept_tasks);
  auto second = run_and_count(all, directory, {}, 0);
  const kept_outcome two = co_await std::move(second);
  CHECK(two == one);
  // Who spawns is no part of it.
  auto third = run_and_count(all, directory, {.one_spawns = true}, 0);
  const kept_outcome three = co_await std::move(third);
  CHECK(three == one);
}

TEST_CASE("what was kept does not run again, whoever spawns it", "[graph]") {
  with_directory({}, &run_twice);
}

TEST_CASE("what was kept does not run again on threads", "[graph]") {
  with_directory(graph::tasks_options().on_threads(1), &run_twice);
}

task run_one_spawner_twice(graph::tasks& all, std::string directory, int) {
  auto first = run_and_count(all, directory, {.one_spawns = true}, kept_tasks);
  const kept_outcome one = co_await std::move(first);
  auto second = run_and_count(all, directory, {.one_spawns = true}, 0);
  const kept_outcome two = co_await std::move(second);
  CHECK(two == one);
}

TEST_CASE("a rank that has not named a family keeps and finds its results", "[graph]") {
  with_directory({}, &run_one_spawner_twice);
}

task run_others(graph::tasks& all, std::string directory, int) {
  auto first = run_and_count(all, directory, {}, kept_tasks);
  const kept_outcome one = co_await std::move(first);
  auto other_version = run_and_count(all, directory, {.version = 2}, kept_tasks);
  const kept_outcome two = co_await std::move(other_version);
  CHECK(two.sum == one.sum);
  CHECK(two.hashes != one.hashes);
  // f(0) to f(2) of the second are f(1) to f(3) of the first.
  auto other_argument = run_and_count(all, directory, {.first = 2}, kept_tasks - 3);
  const kept_outcome three = co_await std::move(other_argument);
  CHECK(three.sum == "148,5000,15.000000");
  auto other_source = run_and_count(all, directory, {.put = 3}, 2);  // large and sum
  const kept_outcome four = co_await std::move(other_source);
  CHECK(four.hashes != one.hashes);
  auto other_order = run_and_count(all, directory, {.other_order = true}, 1);  // sum
  const kept_outcome five = co_await std::move(other_order);
  CHECK(five.hashes != one.hashes);
  auto as_before = run_and_count(all, directory, {}, 0);
  const kept_outcome six = co_await std::move(as_before);
  CHECK(six == one);
}

TEST_CASE("another version, argument, source or dependency is another task", "[graph]") {
  with_directory({}, &run_others);
}

task damage_one(graph::tasks& all, std::string directory, int rank) {
  auto first = run_and_count(all, directory, {}, kept_tasks);
  const kept_outcome one = co_await std::move(first);
  if (rank == 0) {
    const std::string path = directory + "/" + one.hashes[0];
    std::string bytes = content_of(path);
    REQUIRE(bytes.size() > 90);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    std::ofstream(path, std::ios::binary) << bytes;
  }
  auto waiting = all.run("damaged", &nothing_at_all);
  co_await std::move(waiting);
  auto second = run_and_count(all, directory, {}, 1);
  const kept_outcome two = co_await std::move(second);
  CHECK(two == one);
  auto third = run_and_count(all, directory, {}, 0);
  const kept_outcome three = co_await std::move(third);
  CHECK(three == one);
}

TEST_CASE("a result that was damaged is computed anew", "[graph]") {
  with_directory({}, &damage_one);
}

double counted_double(int x) {
  ++runs;
  return x / 2.0;
}
asio::awaitable<std::string> one_double(graph::scope& s) {
  const auto f = s.tasks<&counted_double>("f", graph::on(0)).cached("1");
  f().spawn(3);
  const double value = co_await f().get();
  CHECK(value == 1.5);
  co_return f().hash().text();
}
task spoil_one(graph::tasks& all, std::string directory, int rank) {
  runs = 0;
  auto first = all.run(scope_options("one").results(directory), &one_double);
  const std::string hash = co_await std::move(first);
  if (rank == 0) {
    CHECK(runs == 1);
    fs::remove(directory + "/" + hash);
    cohort::sha256_digest bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(std::stoi(hash.substr(2 * i, 2), nullptr, 16));
    }
    graph::result_store results(directory);
    REQUIRE(results.keep(task_hash(bytes), std::vector<std::byte>(3)));  // no double
  }
  auto second = all.run(scope_options("one").results(directory), &one_double);
  const std::string same = co_await std::move(second);
  CHECK(same == hash);
  auto third = all.run(scope_options("one").results(directory), &one_double);
  static_cast<void>(co_await std::move(third));
  if (rank == 0) CHECK(runs == 2);
}

TEST_CASE("a result that does not decode is discarded and computed anew", "[graph]") {
  with_directory({}, &spoil_one);
}

int counted_failure(int) {
  ++runs;
  throw std::runtime_error("not today");
}
task fail_cached(graph::scope& s) {
  const auto f = s.tasks<&counted_failure>("f", graph::on(0)).cached("1");
  f().spawn(1);
  const auto why = co_await error_of(f().get());
  CHECK(why->code() == errc::task_failed);
  co_await s.fence();
}
task fail_twice(graph::tasks& all, std::string directory, int rank) {
  runs = 0;
  for (int i = 0; i < 2; ++i) {
    auto running = all.run(scope_options("fails").results(directory), &fail_cached);
    const auto why = co_await error_of(std::move(running));
    REQUIRE(why);
    CHECK(why->code() == errc::task_failed);
  }
  if (rank == 0) CHECK(runs == 2);
  if (rank == 0) CHECK(files_in(directory) == 0);
}

TEST_CASE("a task that fails is not kept", "[graph]") { with_directory({}, &fail_twice); }

task share(graph::tasks& all, std::string directory, int) {
  using asio::experimental::awaitable_operators::operator&&;
  runs = 0;
  auto one_scope = all.run(scope_options("left").results(directory), &run_kept, kept_program{});
  auto other_scope = all.run(scope_options("right").results(directory), &run_kept, kept_program{});
  auto both = std::move(one_scope) && std::move(other_scope);
  const auto [one, other] = co_await std::move(both);
  CHECK(one == other);
  const bool some = runs <= 2 * kept_tasks;
  CHECK(some);
  auto again = run_and_count(all, directory, {}, 0);
  const kept_outcome later = co_await std::move(again);
  CHECK(later == one);
}

TEST_CASE("two scopes share a directory", "[graph]") { with_directory({}, &share); }

asio::awaitable<kept_outcome> keep_without_directory(graph::scope& s) {
  auto running = run_kept(s, {});
  kept_outcome outcome = co_await std::move(running);
  co_return outcome;
}
task only_hash(graph::tasks& all, std::string directory, int) {
  auto kept = run_and_count(all, directory, {}, kept_tasks);
  const kept_outcome one = co_await std::move(kept);
  runs = 0;
  auto hashed = all.run(scope_options("hashed").hash_tasks(), &keep_without_directory);
  const kept_outcome two = co_await std::move(hashed);
  CHECK(two == one);
  auto counting = all.run("count", &runs_everywhere, runs.load());
  const int counted_runs = co_await std::move(counting);
  CHECK(counted_runs == kept_tasks);
}

TEST_CASE("without a directory cached tasks run, and have the same hash", "[graph]") {
  with_directory({}, &only_hash);
}

task no_directory(graph::tasks& all, std::string directory, int rank) {
  if (rank == 0) std::ofstream(directory + "/file") << "in the way";
  auto waiting = all.run("ready", &nothing_at_all);
  co_await std::move(waiting);
  const std::string given = rank == 0 ? directory + "/file/below" : directory;
  std::optional<std::string> found;
  try {
    auto running = all.run(scope_options("kept").results(given), &run_kept, kept_program{});
    static_cast<void>(co_await std::move(running));
  } catch (const cohort::error& why) {
    found = why.what();
  }
  REQUIRE(found);
  INFO(*found);
  CHECK(has(*found, "/file/below"));
}

TEST_CASE("a directory that cannot be made ends the scope on all ranks", "[graph]") {
  with_directory({}, &no_directory);
}

task wrong_versions(graph::scope& s) {
  const auto f = s.tasks<[](int x) { return x; }>("f");
  std::optional<cohort::error> found;
  try {
    static_cast<void>(f.cached("1"));
  } catch (const cohort::error& why) {
    found = why;
  }
  REQUIRE(found);
  CHECK(found->code() == errc::invalid_argument);
  CHECK(has(found->what(), "a lambda has no name that lasts"));
  CHECK_NOTHROW(f.cached());
  const auto g = s.tasks<&tripled>("g").cached("1");
  CHECK_NOTHROW(g.cached("1"));
  CHECK_THROWS_AS(g.cached("2"), cohort::error);
  co_await s.fence();
}

TEST_CASE("what is wrong with a version is told where it is given", "[graph]") {
  in_hashed_scope(&wrong_versions);
}

}  // namespace
