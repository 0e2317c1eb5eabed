// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Workers that stand still, are ended one by one, and jobs that are started again.

#include <cohort/cluster/call_context.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/future.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/actors.hpp"
#include "cluster/printed.hpp"
#include "cluster/support.hpp"
#include "support/patience.hpp"

using namespace cohort_test;
using cohort::cluster::call_context;
using cohort::cluster::loss_policy;
using cohort::cluster::worker_event;

namespace {

int own_pid() { return ::getpid(); }
int pid_of_parent() { return ::getppid(); }
int same(int item) { return item; }
asio::awaitable<void> waits_long(call_context& call) {
  asio::steady_timer timer(call.context(), std::chrono::minutes(5));
  co_await timer.async_wait(asio::use_awaitable);
}
/// How many of this process's connections end when what it has sent is unconfirmed for so long.
int connections_bounded_by(int milliseconds) {
  int found = 0;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    int value = 0;
    socklen_t size = sizeof value;
    const int said = ::getsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size);
    if (said == 0 && value == milliseconds) ++found;
  }
  return found;
}
void computes_for(std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }
/// Dies of item 7, but only the first time that anybody has it.
int dies_once(int item, std::string flag, bool by_signal) {
  if (item == 7 && !std::filesystem::exists(flag)) {
    std::ofstream(flag) << "dead";
    if (by_signal) ::raise(SIGKILL);
    ::_exit(3);
  }
  return item;
}

[[nodiscard]] launch_options immortal(int ranks) {
  return quiet(ranks).on_loss(loss_policy::respawn).grace(300ms);
}

/// The next event of that kind.
asio::awaitable<worker_event> next_of(workers all, worker_event::kind what) {
  for (;;) {
    worker_event each = co_await all.next_event();
    if (each.what == what) co_return each;
  }
}

/// Kills the only rank of a job and waits until the job is being started again.
asio::awaitable<void> lose_rank(workers all, int rank) {
  auto pending = all.call<&waits_long>(rank, cohort::as_future);
  REQUIRE(::kill(static_cast<pid_t>(all.pid(rank)), SIGKILL) == 0);
  auto failing = caught<cohort::peer_lost_error>(std::move(pending));
  const auto lost = co_await std::move(failing);
  REQUIRE(lost);
  CHECK(lost->ranks() == std::vector<int>{rank});
}

/// The only rank of a job is lost, and comes back.
asio::awaitable<void> check_restarts(workers all) {
  auto losing = lose_rank(all, 0);
  co_await std::move(losing);
  co_await all.ready();
  const int pid = co_await all.call<&own_pid>(0);
  CHECK(pid == all.pid(0));
}

/// The only rank of a job is lost, and the next launch has begun, which makes this file.
asio::awaitable<void> begin_restart(workers all, std::string begun) {
  auto losing = lose_rank(all, 0);
  co_await std::move(losing);
  while (!std::filesystem::exists(begun)) {
    auto pause = sleep(all.context(), 5ms);
    co_await std::move(pause);
  }
}

/// An actor's second connection, which shows that it lives.
class pulse {
 public:
  pulse(asio::io_context& io, const told& facts, const actor& whose)
      : io_(io), facts_(facts), hello_(whose.hello) {
    hello_.purpose = cluster::purpose::heartbeat;
  }
  asio::awaitable<void> connect() {
    auto connecting = cluster::connect(io_, {facts_.where}, facts_.token, hello_);
    socket_.emplace(co_await std::move(connecting));
  }
  void send(std::string_view signs) { asio::write(*socket_, asio::buffer(signs)); }
  void close() { socket_.reset(); }
  /// Whether the other side has, and has said that it would; waits for it.
  bool closed() {
    std::array<cluster::life_sign, 2> said{};
    std::error_code end;
    const std::size_t got = asio::read(*socket_, asio::buffer(said), end);
    return got == 1 && said[0] == cluster::life_sign::leaves &&
           (end == asio::error::eof || end == asio::error::connection_reset);
  }

 private:
  asio::io_context& io_;
  told facts_;
  cluster::greeting hello_;
  std::optional<cluster::tcp_socket> socket_;
};

/// A launch of one actor that shows its life.
asio::awaitable<std::pair<workers, std::shared_ptr<pulse>>> launched_with_pulse(
    asio::io_context& io, const stage& here, actors& cast, std::chrono::milliseconds period,
    bool beats) {
  const auto options = here.options().heartbeat(period).on_loss(loss_policy::proceed);
  auto launching = asio::co_spawn(io, cluster::launch(io, options), cohort::as_future);
  auto looking = here.facts(io);
  const told facts = co_await std::move(looking);
  cast.emplace_back(io, facts);
  auto joining = cast[0].join(0);
  const message welcome = co_await std::move(joining);
  cohort::wire::reader in(welcome.bytes);
  const auto said = in.get<cluster::welcome>();
  CHECK(in.ok());
  CHECK(std::chrono::nanoseconds(said.heartbeat) == options.heartbeat());
  CHECK(said.heartbeat_patience == 0);
  auto made = std::make_shared<pulse>(io, facts, cast[0]);
  auto first = made->connect();
  co_await std::move(first);
  if (beats) made->send(std::string(1, '\0'));
  actor twin(io, facts);
  twin.hello = cast[0].hello;
  twin.hello.purpose = cluster::purpose::heartbeat;
  auto trying = twin.attempt();
  const std::string refused = co_await std::move(trying);
  CHECK(has(refused, "expects no such connection"));
  cast[0].start(0, 1);
  const workers all = co_await std::move(launching);
  co_return std::pair(all, std::move(made));
}

/// What a manager makes of what an actor does with its pulse.
void with_pulse(std::chrono::milliseconds period,
                const std::function<asio::awaitable<void>(workers, actor&, pulse&)>& body,
                bool beats = true) {
  asio::io_context io;
  actors cast;
  const stage here(1);
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = launched_with_pulse(io, here, cast, period, beats);
    const auto [all, life] = co_await std::move(launching);
    auto testing = body(all, cast[0], *life);
    co_await std::move(testing);
    all.terminate();
  };
  run(io, work());
}

}  // namespace

// ---- heartbeat -------------------------------------------------------------------------------

TEST_CASE("a worker that is stopped is lost when its heartbeat stays away", "[cluster][loss]") {
  const auto options = quiet(2).heartbeat(300ms).on_loss(loss_policy::proceed).grace(300ms);
  with_mortal_workers(options, [](workers all) -> asio::awaitable<void> {
    // One that computes for longer than that shows its life all the same.
    co_await all.call<&computes_for>(0, 3s);
    auto pending = all.call<&waits_long>(1, cohort::as_future);
    const auto pid = static_cast<pid_t>(all.pid(1));
    REQUIRE(::kill(pid, SIGSTOP) == 0);
    auto failing = caught<cohort::peer_lost_error>(std::move(pending));
    const auto lost = co_await std::move(failing);
    REQUIRE(lost);
    CHECK(has(lost->what(), "6 heartbeats"));
    CHECK(all.state(1) == worker_state::lost);
    CHECK(all.state(0) == worker_state::ready);
    const int other = co_await all.call<&own_pid>(0);  // no process has died
    CHECK(other == all.pid(0));
    // When it goes on it finds that it has been given up.
    ::kill(pid, SIGCONT);
    CHECK(ends(pid));
    all.terminate();
  });
}

TEST_CASE("workers on other machines show that they live without being asked to, those here do not",
          "[cluster][loss]") {
  const own_launcher own;
  const folder files;
  const bool by_hand = GENERATE(false, true);
  const bool here = GENERATE(false, true);
  CAPTURE(by_hand, here);
  std::string facts;
  auto options = quiet(1).interface("127.0.0.1").grace(100ms).timeout(20s);
  if (by_hand) {
    options.by_hand([&](const std::string& where, const std::string& token) {
      facts = token + " " + where + "\n";
    });
  } else {
    options.command(
        {files.script("mpiexec",
                      "case \"$*\" in *--version*) echo 'mpiexec (OpenRTE) 4.1.4'; exit 0;; esac\n"
                      "echo \"$COHORT_CLUSTER_TOKEN $COHORT_CLUSTER_MANAGER\" > " +
                          files.path("facts") + "\nuntil [ -e " + files.path("over") +
                          " ]; do sleep 0.02; done")});
  }
  asio::io_context io;
  run(io, [&]() -> asio::awaitable<void> {
    auto launching = asio::co_spawn(io, cluster::launch(io, options), cohort::as_future);
    for (; !facts.ends_with('\n'); facts += contents(files.path("facts"))) {
      auto pause = sleep(io, 5ms);
      co_await std::move(pause);
    }
    std::istringstream text(facts);
    std::string token;
    std::string where;
    text >> token >> where;
    told known;
    REQUIRE(cluster::parse_token(token, known.token));
    known.where = cluster::parse_endpoint(where).value();
    actor one(io, known);
    if (here) one.machine = cohort::process::host_id();
    auto joining = one.join(0);
    const message answer = co_await std::move(joining);
    const auto said = cohort::wire::decode<cluster::welcome>(answer.bytes);
    CHECK(std::chrono::nanoseconds(said.heartbeat) == (here ? 0s : 5s));
    one.start(0, 1);
    auto launched_late = std::move(launching);
    const workers all = co_await std::move(launched_late);
    auto finishing = asio::co_spawn(io, one.finish(), cohort::as_future);
    std::ofstream(files.path("over")).put('\n');
    co_await all.shutdown();
    co_await std::move(finishing);
  }());
}

TEST_CASE("workers with a heartbeat shut down like others", "[cluster][loss]") {
  with_workers(quiet(2).heartbeat(300ms), [](workers all) -> asio::awaitable<void> {
    for (const int rank : all.ids()) {
      co_await all.call<&computes_for>(rank, 2s);
      const int pid = co_await all.call<&own_pid>(rank);
      CHECK(pid == all.pid(rank));
    }
  });
}

TEST_CASE("the kernel of a worker gives its heartbeat no longer than the manager does",
          "[cluster][loss]") {
  with_workers(quiet(1).heartbeat(300ms), [](workers all) -> asio::awaitable<void> {
    // Of all its connections only one, on which the manager never computes before it reads.
    const int bounded = co_await all.call<&connections_bounded_by>(0, 1800);
    CHECK(bounded == 1);
  });
}

TEST_CASE("only six periods of silence in succession are a loss", "[cluster][loss]") {
  with_pulse(100ms, [](workers all, actor& one, pulse& life) -> asio::awaitable<void> {
    for (int i = 0; i < 6; ++i) {  // more than three times six periods
      life.send(std::string(1, '\0'));
      auto pause = sleep(all.context(), 450ms);
      co_await std::move(pause);
      REQUIRE(all.state(0) == worker_state::ready);
    }
    life.send(std::string(100'000, '\x7f'));  // nonsense is a sign of life, too
    auto waiting = next_of(all, worker_event::kind::lost);
    const worker_event lost = co_await std::move(waiting);
    CHECK(lost.rank == 0);
    CHECK(has(lost.cause, "stands still"));
    auto closing = one.until_closed();
    co_await std::move(closing);
  });
}

TEST_CASE("a manager that stands still itself blames nobody", "[cluster][loss]") {
  with_workers(quiet(1).heartbeat(100ms), [](workers all) -> asio::awaitable<void> {
    for (int i = 0; i < 8; ++i) {
      std::this_thread::sleep_for(300ms);  // the loop: in all four times as long as six periods
      const int pid = co_await all.call<&own_pid>(0);
      CHECK(pid == all.pid(0));
    }
  });
}

TEST_CASE("who stops before the first heartbeat is lost too", "[cluster][loss]") {
  const auto body = [](workers all, actor&, pulse&) -> asio::awaitable<void> {
    auto waiting =
        cohort::with_deadline(next_of(all, worker_event::kind::lost), cohort_test::patient(20s));
    const worker_event lost = co_await std::move(waiting);
    CHECK(has(lost.cause, "6 heartbeats"));
  };
  with_pulse(20ms, body, false);
}

// Over MPI that is a loss at once: see "the last lines of an adopted worker".
TEST_CASE("the end of the connection for heartbeats is silence, unless it is announced",
          "[cluster][loss]") {
  const bool announced = GENERATE(true, false);
  with_pulse(20ms, [&](workers all, actor&, pulse& life) -> asio::awaitable<void> {
    if (announced) life.send(std::string(1, static_cast<char>(cluster::life_sign::leaves)));
    life.close();
    if (announced) {
      auto pause = sleep(all.context(), 400ms);  // silence does not count any more
      co_await std::move(pause);
      CHECK(all.state(0) == worker_state::ready);
    } else {
      auto waiting = next_of(all, worker_event::kind::lost);
      const worker_event lost = co_await std::move(waiting);
      CHECK(has(lost.cause, "6 heartbeats"));
    }
  });
}

// ---- the others ------------------------------------------------------------------------------

TEST_CASE("with the policy to go on, the others work for a lost one", "[cluster][loss]") {
  const bool by_signal = GENERATE(true, false);
  CAPTURE(by_signal);
  const folder files;
  const auto options = quiet(3).on_loss(loss_policy::proceed).grace(500ms);
  with_mortal_workers(options, [&](workers all) -> asio::awaitable<void> {
    std::vector<int> items(40);
    std::iota(items.begin(), items.end(), 0);
    const auto again = all.with(call_options{}.idempotent(true));
    const auto done = co_await again.map<&dies_once>(items, files.path("flag"), by_signal);
    REQUIRE(done.size() == 40);
    int lost = 0;
    for (const int rank : all.ids()) lost += all.state(rank) == worker_state::lost ? 1 : 0;
    if (others_live || !by_signal) {
      for (int i = 0; i < 40; ++i) CHECK(done[static_cast<std::size_t>(i)].value() == i);
      CHECK(lost == 1);
      for (const int rank : all.ids()) {
        if (all.state(rank) == worker_state::lost) continue;
        const int pid = co_await all.call<&own_pid>(rank);
        CHECK(pid == all.pid(rank));
      }
    } else {
      CHECK(lost >= 1);
    }
    all.terminate();
  });
}

// ---- one of them -----------------------------------------------------------------------------

TEST_CASE("one worker is ended, and the others are not", "[cluster][loss]") {
  const bool beats = GENERATE(false, true);
  const bool idle = GENERATE(false, true);
  CAPTURE(beats, idle);
  printed output;
  auto options = launch_options{}.ranks(2).on_loss(loss_policy::proceed).grace(300ms);
  options.sink(output.sink()).heartbeat(beats ? 300ms : 0ms);
  with_mortal_workers(options, [idle](workers all) -> asio::awaitable<void> {
    auto pending = idle ? all.call<&waits_long>(1, cohort::as_future)
                        : all.call<&computes_for>(1, std::chrono::minutes(5), cohort::as_future);
    const int pid = static_cast<int>(all.pid(1));
    all.terminate(1);
    auto failing = caught<cohort::peer_lost_error>(std::move(pending));
    const auto lost = co_await std::move(failing);
    REQUIRE(lost);
    CHECK(has(lost->what(), "ended by terminate"));
    CHECK(all.state(1) == worker_state::lost);
    for (int i = 0; i < 4000 && runs(pid); ++i) {  // the loop has to run
      auto pause = sleep(all.context(), 5ms);
      co_await std::move(pause);
    }
    CHECK_FALSE(runs(pid));  // also inside a function
    const int other = co_await all.call<&own_pid>(0);
    CHECK(other == all.pid(0));
    all.terminate(1);  // nothing any more
    CHECK_THROWS_AS(all.terminate(2), cohort::error);
    all.terminate();
  });
  const std::string said = output.of(1, cluster::output_stream::err);
  INFO(said);
  CHECK(has(said, "has let this worker go"));
  // One that computes sees only the end of its connection where it has no other.
  if (idle || beats) CHECK_FALSE(has(said, "is gone"));
  if (idle && !beats) CHECK(has(said, "it was ended by terminate"));
}

TEST_CASE("one worker cannot be ended where that ends the others", "[cluster][loss]") {
  with_workers(quiet(1), [](workers all) -> asio::awaitable<void> {
    std::error_code code;
    try {
      all.terminate(0);
    } catch (const cohort::error& refused) {
      code = refused.code();
    }
    CHECK(code == errc::not_supported);
    const int pid = co_await all.call<&own_pid>(0);
    CHECK(pid == all.pid(0));
  });
}

// ---- once more -------------------------------------------------------------------------------

TEST_CASE("a job that has lost a rank is started again", "[cluster][loss]") {
  const cohort::log::capture lines;
  with_workers(immortal(2).serve_calls(true), [](workers all) -> asio::awaitable<void> {
    const std::vector<std::int64_t> before{all.pid(0), all.pid(1)};
    auto other = all.call<&waits_long>(0, cohort::as_future);
    auto losing = lose_rank(all, 1);
    co_await std::move(losing);
    auto ended_too = caught<cohort::peer_lost_error>(std::move(other));
    const auto with_it = co_await std::move(ended_too);
    REQUIRE(with_it);
    CHECK(has(with_it->what(), "started again"));
    auto early = caught<cohort::peer_lost_error>(all.call<&own_pid>(0));
    const auto too_early = co_await std::move(early);
    REQUIRE(too_early);
    CHECK(has(too_early->what(), "is being started again"));
    CHECK(all.state(0) == worker_state::lost);
    co_await all.ready();
    for (const int rank : all.ids()) {
      CHECK(all.state(rank) == worker_state::ready);
      const int pid = co_await all.call<&own_pid>(rank);
      CHECK(pid == all.pid(rank));
      CHECK(pid != before[static_cast<std::size_t>(rank)]);
      CHECK_FALSE(runs(static_cast<int>(before[static_cast<std::size_t>(rank)])));
    }
    const auto each = co_await all.call_all<&own_pid>();  // their order begins anew
    for (const auto& one : each) CHECK(one);
    std::vector<worker_event::kind> kinds;
    for (int i = 0; i < 6; ++i) kinds.push_back((co_await all.next_event()).what);
    using enum worker_event::kind;
    CHECK(kinds == std::vector{registered, registered, lost, lost, registered, registered});
  });
  CHECK(lines.contains("the job is started again: rank 1"));
}

TEST_CASE("items that are idempotent outlive the job", "[cluster][loss]") {
  const folder files;
  with_workers(immortal(2), [&](workers all) -> asio::awaitable<void> {
    std::vector<int> items(40);
    std::iota(items.begin(), items.end(), 0);
    const auto again = all.with(call_options{}.idempotent(true));
    const auto done = co_await again.map<&dies_once>(items, files.path("flag"), true);
    REQUIRE(done.size() == items.size());
    for (int i = 0; i < 40; ++i) CHECK(done[static_cast<std::size_t>(i)].value() == i);
  });
}

TEST_CASE("a job is started again as often as asked for", "[cluster][loss]") {
  with_mortal_workers(immortal(1).respawns(1), [](workers all) -> asio::awaitable<void> {
    for (int round = 0; round < 2; ++round) {
      auto losing = lose_rank(all, 0);
      co_await std::move(losing);
      if (round == 0) co_await all.ready();
    }
    auto failing = caught<cohort::peer_lost_error>(all.ready());
    const auto lost = co_await std::move(failing);
    CHECK(lost);
    auto later = caught<cohort::peer_lost_error>(all.call<&own_pid>(0));
    const auto still = co_await std::move(later);
    CHECK(still);
  });
}

TEST_CASE("a job that cannot be started again says why", "[cluster][loss]") {
  const own_launcher own;
  const folder files;
  const auto flag = files.path("flag");
  const auto launcher = files.script(
      "mpiexec", "case \"$*\" in *--version*) exec " + own.name() + " --version;; esac\n" +
                     "if [ -e " + flag + " ]; then echo no nodes are left; exit 3; fi\ntouch " +
                     flag + "\nexec " + own.name() + " \"$@\"");
  const auto options = immortal(1).command({launcher}).timeout(10s);
  with_mortal_workers(options, [](workers all) -> asio::awaitable<void> {
    auto losing = lose_rank(all, 0);
    co_await std::move(losing);
    const auto again = all.with(call_options{}.idempotent(true));
    const std::vector<int> items{1, 2, 3};
    const auto done = co_await again.map<&same>(items);
    for (const auto& each : done) CHECK_FALSE(each);
    auto failing = caught<cohort::peer_lost_error>(all.ready());
    const auto failed = co_await std::move(failing);
    REQUIRE(failed);
    CHECK(has(failed->what(), "exited with status 3"));
    CHECK(has(all.cause(0), "exited with status 3"));
    co_await all.shutdown();
  });
}

TEST_CASE("a job that is being started again can be ended", "[cluster][loss]") {
  const int how = GENERATE(0, 1, 2);
  CAPTURE(how);
  int pid = 0;
  with_mortal_workers(immortal(1), [&](workers all) -> asio::awaitable<void> {
    pid = static_cast<int>(all.pid(0));
    auto losing = lose_rank(all, 0);
    co_await std::move(losing);
    if (how == 0) {
      co_await all.shutdown();
      auto refused = code_of(all.call<&own_pid>(0));
      const std::error_code code = co_await std::move(refused);
      CHECK(code == errc::closed);
    } else if (how == 1) {
      all.terminate();
      auto failing = caught<cohort::peer_lost_error>(all.ready());
      const auto lost = co_await std::move(failing);
      CHECK(lost);
    }  // else the last handle is dropped
  });
  CHECK_FALSE(runs(pid));
}

namespace {

/// Starts the ranks once; what it does the second time is up to the test.
std::string launcher_that_works_once(const folder& files, const own_launcher& own,
                                     const std::string& version, const std::string& then) {
  const auto flag = files.path("flag");
  return files.script("mpiexec", "if [ -e " + flag + " ]; then second=yes; fi\n" +
                                     "case \"$*\" in *--version*) " + version + " exec " +
                                     own.name() + " --version;; esac\n" +
                                     "if [ \"$second\" ]; then " + then + "; fi\ntouch " + flag +
                                     "\nexec " + own.name() + " \"$@\"");
}

}  // namespace

TEST_CASE("a job whose new launcher hangs can be ended", "[cluster][loss]") {
  const int how = GENERATE(0, 1, 2, 3);
  const bool at_version = how == 3;  // then what ends it is that the last handle is dropped
  CAPTURE(how);
  const own_launcher own;
  const folder files;
  const auto begun = files.path("begun");
  const std::string hang = "touch " + begun + "; exec sleep 100";
  const auto launcher = launcher_that_works_once(
      files, own, at_version ? "if [ \"$second\" ]; then " + hang + "; fi;" : "", hang);
  const auto options = immortal(1).command({launcher}).interrupt(true);
  with_mortal_workers(options, [&](workers all) -> asio::awaitable<void> {
    auto restarting = begin_restart(all, begun);
    co_await std::move(restarting);
    if (how == 0) co_await all.shutdown();
    if (how == 1) all.terminate();
  });
  // The loop has ended, and the launcher with it.
  SUCCEED();
}

TEST_CASE("a shutdown has its limit also while a job is started again", "[cluster][loss]") {
  const own_launcher own;
  const folder files;
  const auto begun = files.path("begun");
  const auto launcher = launcher_that_works_once(
      files, own, "", "trap '' TERM; touch " + begun + "; while :; do sleep 1; done");
  const auto options = immortal(1).command({launcher}).grace(2s);
  with_mortal_workers(options, [&](workers all) -> asio::awaitable<void> {
    auto restarting = begin_restart(all, begun);
    co_await std::move(restarting);
    auto ending = code_of(all.shutdown(100ms));
    const std::error_code code = co_await std::move(ending);
    CHECK(code == errc::stalled);
  });
}

TEST_CASE("a job that is ended as soon as it runs again does end", "[cluster][loss]") {
  const bool dropped = GENERATE(false, true);
  CAPTURE(dropped);
  int pid = 0;
  with_mortal_workers(immortal(1), [&](workers all) -> asio::awaitable<void> {
    auto first = next_of(all, worker_event::kind::registered);
    co_await std::move(first);
    auto losing = lose_rank(all, 0);
    co_await std::move(losing);
    auto second = next_of(all, worker_event::kind::registered);
    co_await std::move(second);
    pid = static_cast<int>(all.pid(0));
    if (!dropped) all.terminate();
  });
  CHECK(ends(pid));
}

TEST_CASE("a job whose machine needs time to come back is started again", "[cluster][loss]") {
  const own_launcher own;
  const folder files;
  const auto count = files.path("count");
  // As often as all starts that there were before, and once more.
  const auto launcher = launcher_that_works_once(
      files, own, "",
      "echo x >> " + count + "; if [ $(wc -l < " + count + ") -lt 5 ]; then exit 3; fi");
  with_workers(immortal(1).command({launcher}).respawns(1),
               [](workers all) -> asio::awaitable<void> {
                 auto restarting = check_restarts(all);
                 co_await std::move(restarting);
               });
}

TEST_CASE("a job that waits for its next start can be shut down", "[cluster][loss]") {
  const own_launcher own;
  const folder files;
  const auto launcher = launcher_that_works_once(files, own, "", "exit 3");
  const cohort::log::capture lines;
  with_mortal_workers(immortal(1).command({launcher}), [&](workers all) -> asio::awaitable<void> {
    auto losing = lose_rank(all, 0);
    co_await std::move(losing);
    while (!lines.contains("it could not be started again")) {
      auto pause = sleep(all.context(), 5ms);
      co_await std::move(pause);
    }
    co_await all.shutdown();
    auto refused = code_of(all.call<&own_pid>(0));
    const std::error_code code = co_await std::move(refused);
    CHECK(code == errc::closed);
  });
}

TEST_CASE("workers that are started again do not say that their manager is gone",
          "[cluster][loss]") {
  printed output;
  {
    auto options = launch_options{}.ranks(3).sink(output.sink()).grace(2s);
    options.on_loss(loss_policy::respawn);
    with_workers(options, [](workers all) -> asio::awaitable<void> {
      auto losing = lose_rank(all, 1);
      co_await std::move(losing);
      co_await all.ready();
    });
  }
  for (int rank = 0; rank < 3; ++rank) {
    CHECK_FALSE(has(output.of(rank, cluster::output_stream::err), "the manager is gone"));
  }
}

TEST_CASE("a job is started again though its launcher leaves its ranks and one stands still",
          "[cluster][loss]") {
  const own_launcher own;
  const folder files;
  const auto flag = files.path("flag");
  // The first time its ranks belong to init, so they do not end with it.
  const auto launcher = files.script(
      "mpiexec", "case \"$*\" in *--version*) exec " + own.name() + " --version;; esac\n" +
                     "if [ -e " + flag + " ]; then exec " + own.name() + " \"$@\"; fi\ntouch " +
                     flag + "\n(setsid " + own.name() + " \"$@\" &)\n" +
                     "trap 'exit 1' TERM\nwhile :; do sleep 0.02; done");
  printed output;
  int stopped = -1;
  {
    auto options = launch_options{}.ranks(2).sink(output.sink()).command({launcher});
    options.on_loss(loss_policy::respawn).heartbeat(100ms).timeout(cohort_test::patient(15s));
    with_workers(options, [&](workers all) -> asio::awaitable<void> {
      // What has started it stands still too, and does not end it with the other one.
      const int parent = co_await all.call<&pid_of_parent>(1);
      auto pending = all.call<&waits_long>(1, cohort::as_future);
      stopped = static_cast<int>(all.pid(1));
      for (const int each : {parent, stopped}) REQUIRE(::kill(each, SIGSTOP) == 0);
      auto failing = caught<cohort::peer_lost_error>(std::move(pending));
      co_await std::move(failing);
      auto restarting = code_of(all.ready());
      const std::error_code failed = co_await std::move(restarting);
      for (const int each : {stopped, parent}) ::kill(each, SIGCONT);
      CHECK_FALSE(failed);
    });
  }
  const std::string said = output.of(0, cluster::output_stream::err);
  INFO(said);
  CHECK(has(said, "has let this worker go"));
  CHECK_FALSE(has(said, "is gone"));
  CHECK(ends(stopped));
}

TEST_CASE("a rank that is lost while the job starts again is no further loss", "[cluster][loss]") {
  const own_launcher own;
  const folder files;
  const auto once = files.path("once");
  const auto launcher = launcher_that_works_once(
      files, own, "", "if [ ! -e " + once + " ]; then touch " + once + "; exit 3; fi");
  const cohort::log::capture lines;
  with_workers(immortal(1).command({launcher}), [](workers all) -> asio::awaitable<void> {
    auto restarting = check_restarts(all);
    co_await std::move(restarting);
  });
  CHECK(lines.contains("the job is started again: it could not be started again: the launcher"));
}

TEST_CASE("ranks that somebody else has started leave when they are ended", "[cluster][loss]") {
  const bool beats = GENERATE(false, true);
  CAPTURE(beats);
  asio::io_context io;
  actors cast;
  told facts;
  bool known = false;
  auto work = [&]() -> asio::awaitable<void> {
    auto options = quiet(1).by_hand([&](const std::string& where, const std::string& token) {
      facts.where = cluster::parse_endpoints(where).back();
      known = cluster::parse_token(token, facts.token);
    });
    if (beats) options.heartbeat(50ms);
    auto launching = asio::co_spawn(io, cluster::launch(io, options), cohort::as_future);
    while (!known) {
      auto pause = sleep(io, 1ms);
      co_await std::move(pause);
    }
    cast.emplace_back(io, facts);
    auto joining = cast[0].join(0);
    co_await std::move(joining);
    pulse life(io, facts, cast[0]);
    if (beats) {
      auto showing = life.connect();
      co_await std::move(showing);
      life.send(std::string(1, '\0'));
    }
    cast[0].start(0, 1);
    const workers all = co_await std::move(launching);
    auto pending = all.call<&own_pid>(0, cohort::as_future);
    all.terminate();
    auto failing = caught<cohort::peer_lost_error>(std::move(pending));
    const auto lost = co_await std::move(failing);
    CHECK(lost);
    auto closing = cast[0].until_closed();
    co_await std::move(closing);
    if (beats) CHECK(life.closed());
  };
  run(io, work());
}

TEST_CASE("a loop may end while a job is being started again", "[cluster][loss]") {
  asio::io_context io;
  std::optional<workers> kept;
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = cluster::launch(io, immortal(1));
    kept = co_await std::move(launching);
    kept->with(call_options{}.idempotent(true))
        .map<&dies_once>(std::vector{7}, "/nonexistent/flag", true, [](auto&&...) {});
    co_await next_of(*kept, worker_event::kind::lost);
    io.stop();
  };
  asio::co_spawn(io, work(), asio::detached);
  io.run();
}

TEST_CASE("a job that this manager has not started cannot be started again", "[cluster][loss]") {
  asio::io_context io;
  auto work = [&]() -> asio::awaitable<void> {
    auto options = immortal(1).by_hand([](const std::string&, const std::string&) {});
    auto refused = code_of(cluster::launch(io, options));
    const std::error_code code = co_await std::move(refused);
    CHECK(code == errc::not_supported);
  };
  run(io, work());
}
