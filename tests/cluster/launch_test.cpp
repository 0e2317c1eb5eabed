// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#include <cohort/cluster/link/tcp_link.hpp>
#include <cohort/core/log.hpp>
#include <cohort/mpi/native.hpp>
#include <cohort/progress/context.hpp>

#include <asio/connect.hpp>

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "cluster/support.hpp"
#include "support/patience.hpp"

using namespace cohort_test;

namespace {

/// How a launch fails.
cohort::error failure_of(const launch_options& options) {
  asio::io_context io;
  std::optional<cohort::error> problem;
  auto work = [&]() -> asio::awaitable<void> {
    auto failing = caught<cohort::error>(cluster::launch(io, options));
    problem = co_await std::move(failing);
  };
  run(io, work());
  REQUIRE(problem);
  INFO(problem->what());
  return *problem;
}

}  // namespace

TEST_CASE("launches of no, one, two and four workers", "[cluster]") {
  for (const int ranks : {0, 1, 2, 4}) {
    INFO(ranks);
    asio::io_context io;
    auto work = [&]() -> asio::awaitable<void> {
      auto launching = cluster::launch(io, quiet(ranks));
      const workers all = co_await std::move(launching);
      CHECK(all.size() == ranks);
      for (const int id : all.ids()) {
        CHECK(all.state(id) == worker_state::ready);
        CHECK(all.pid(id) > 0);
        CHECK_FALSE(all.host(id).empty());
        const auto event = co_await all.next_event();
        CHECK(event.what == cluster::worker_event::kind::registered);
      }
      std::ostringstream text;
      text << all;
      CHECK(has(text.str(), std::to_string(ranks) + " workers"));
      co_await all.shutdown();
      for (const int id : all.ids()) CHECK(all.state(id) == worker_state::gone);
      co_await all.shutdown();  // again is no harm
    };
    run(io, work());
  }
}

TEST_CASE("two launches live at once", "[cluster]") {
  asio::io_context io;
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = cluster::launch(io, quiet(1));
    const workers one = co_await std::move(launching);
    auto launching_two = cluster::launch(io, quiet(2));
    const workers two = co_await std::move(launching_two);
    CHECK(one.pid(0) != two.pid(0));
    co_await one.shutdown();
    CHECK(two.state(1) == worker_state::ready);
    co_await two.shutdown();
  };
  run(io, work());
}

TEST_CASE("a launcher that does not exist is named at once", "[cluster]") {
  const own_launcher own;
  const auto problem = failure_of(quiet(1).command({"/no/such/mpiexec"}));
  CHECK(problem.code() == errc::launch_failed);
  CHECK(has(problem.what(), "/no/such/mpiexec"));
}

TEST_CASE("a launcher that fails is told with its status and its words", "[cluster]") {
  const own_launcher own;
  const folder here;
  const auto script = here.script("mpiexec", "echo 'no slots for you' >&2; exit 7");
  const auto begun = std::chrono::steady_clock::now();
  const auto problem = failure_of(quiet(3).command({script}));
  CHECK(std::chrono::steady_clock::now() - begun <
        cohort_test::patient(30s));  // and not at the time limit
  CHECK(problem.code() == errc::launch_failed);
  CHECK(has(problem.what(), "exited with status 7"));
  CHECK(has(problem.what(), "no slots for you"));
  CHECK(has(problem.what(), "missing: ranks 0, 1, 2"));
}

TEST_CASE("what a launcher has printed on the console is not printed again", "[cluster]") {
  const own_launcher own;
  const folder here;
  const auto script = here.script("mpiexec", "echo 'said once' >&2; exit 7");
  const auto problem = failure_of(launch_options{}.ranks(1).command({script}));
  CHECK(problem.code() == errc::launch_failed);
  CHECK(has(problem.what(), "exited with status 7"));
  CHECK_FALSE(has(problem.what(), "said once"));
  CHECK(has(problem.what(), "what the launcher printed stands above"));
}

TEST_CASE("workers that never connect are named, and their processes ended", "[cluster]") {
  const own_launcher own;
  const folder here;
  // It answers --version at once, and then keeps a process that is no worker.
  const auto script =
      here.script("mpiexec", "case \"$*\" in *--version*) exit 0;; esac\nsleep 300 & echo $! > " +
                                 here.path("pid") + "\nwait");
  const auto problem = failure_of(quiet(2).command({script}).timeout(5s).grace(200ms));
  CHECK(problem.code() == errc::deadline_exceeded);
  CHECK(has(problem.what(), "missing: ranks 0, 1"));
  CHECK(ends(std::stoi(contents(here.path("pid")))));
}

TEST_CASE("a worker that leaves between its connection and its MPI", "[cluster]") {
  const auto problem =
      failure_of(quiet(2).environment("COHORT_TEST_WORKER", "leaves_after_join").timeout(30s));
  CHECK(problem.code() == errc::launch_failed);
  CHECK((has(problem.what(), "was lost before") || has(problem.what(), "the launcher exited")));
}

TEST_CASE("a wrong option is named", "[cluster]") {
  CHECK(has(failure_of(quiet(-1)).what(), "ranks"));
  CHECK(has(failure_of(quiet(1).interface("not an address")).what(), "interface"));
}

TEST_CASE("a launch that is cancelled leaves nothing behind", "[cluster]") {
  const own_launcher own;
  const folder here;
  const auto script =
      here.script("mpiexec", "case \"$*\" in *--version*) exit 0;; esac\necho $$ > " +
                                 here.path("pid") + "\nexec sleep 300");
  asio::io_context io;
  asio::cancellation_signal signal;
  std::exception_ptr ended;
  asio::co_spawn(io, cluster::launch(io, quiet(1).command({script}).grace(200ms)),
                 asio::bind_cancellation_slot(
                     signal.slot(), [&](std::exception_ptr how, workers) { ended = how; }));
  while (!contents(here.path("pid")).ends_with('\n')) io.run_one_for(5ms);
  signal.emit(asio::cancellation_type::terminal);
  io.run();
  CHECK(ended != nullptr);
  CHECK(ends(std::stoi(contents(here.path("pid")))));
}

namespace {

using tcp_stream = asio::ip::tcp::socket;

/// What a stranger gets to hear after it has said this.
asio::awaitable<std::size_t> answer_to(asio::ip::tcp::endpoint where, std::string bytes) {
  tcp_stream stranger(co_await asio::this_coro::executor);
  co_await stranger.async_connect(where, asio::use_awaitable);
  std::error_code failed;
  co_await asio::async_write(stranger, asio::buffer(bytes),
                             asio::redirect_error(asio::use_awaitable, failed));
  std::array<char, 256> reply{};
  co_return co_await asio::async_read(stranger, asio::buffer(reply),
                                      asio::redirect_error(asio::use_awaitable, failed));
}

/// A launcher that starts nothing before it is let go, so that others reach the manager first.
class held_launcher {
 public:
  held_launcher() {
    const std::string address = here_.path("address");
    script_ =
        here_.script("mpiexec", "case \"$*\" in *--version*) exec " + own_.name() +
                                    " --version;; esac\necho \"$COHORT_CLUSTER_MANAGER\" > " +
                                    address + ".part && mv " + address + ".part " + address +
                                    "\nwhile [ ! -e " + here_.path("go") +
                                    " ]; do sleep 0.05; done\nexec " + own_.name() + " \"$@\"");
  }

  [[nodiscard]] launch_options options(int ranks) const {
    return quiet(ranks).command({script_}).interface("127.0.0.1");
  }
  /// Where the manager listens, once it does.
  asio::awaitable<asio::ip::tcp::endpoint> manager(asio::io_context& io) const {
    asio::steady_timer pause(io);
    while (!std::filesystem::exists(here_.path("address"))) {
      pause.expires_after(5ms);
      co_await pause.async_wait(asio::use_awaitable);
    }
    std::string text = contents(here_.path("address"));
    text.erase(text.find_last_not_of('\n') + 1);
    co_return cluster::parse_endpoint(text).value();
  }
  void let_go() const { std::ofstream(here_.path("go")) << "go"; }

 private:
  own_launcher own_;
  folder here_;
  std::string script_;
};

/// While it lives, this process can open no file; what is open stays so.
class no_more_descriptors {
 public:
  no_more_descriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit now = before_;
    now.rlim_cur = 0;
    ::setrlimit(RLIMIT_NOFILE, &now);
  }
  ~no_more_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  no_more_descriptors(const no_more_descriptors&) = delete;
  no_more_descriptors& operator=(const no_more_descriptors&) = delete;

 private:
  rlimit before_{};
};

using crowd = std::deque<tcp_stream>;

/// Launches two ranks when `come` is done with the manager, and while its crowd is still there.
/// Returns how many were refused.
std::size_t refused_besides(
    const std::function<asio::awaitable<void>(asio::ip::tcp::endpoint, asio::io_context&, crowd&)>&
        come) {
  const held_launcher launcher;
  asio::io_context io;
  crowd present;
  std::size_t refused = 0;
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = cluster::launch(io, launcher.options(2));
    const workers all = co_await std::move(launching);
    refused = all.refused();
    CHECK(all.state(1) == worker_state::ready);
    co_await all.shutdown();
  };
  auto strangers = [&]() -> asio::awaitable<void> {
    auto looking = launcher.manager(io);
    const auto where = co_await std::move(looking);
    auto coming = come(where, io, present);
    co_await std::move(coming);
    launcher.let_go();
  };
  asio::co_spawn(io, strangers(), cohort::rethrow);
  run(io, work());
  return refused;
}

}  // namespace

TEST_CASE("strangers are refused, and the launch succeeds all the same", "[cluster]") {
  const cohort::log::capture lines;
  const auto come = [](asio::ip::tcp::endpoint where, asio::io_context& io,
                       crowd& present) -> asio::awaitable<void> {
    // Junk of the length of a greeting, and shorter, and nothing.
    const std::size_t junk = co_await answer_to(where, std::string(64, 'x'));
    CHECK(junk == 0);
    // A greeting is answered, but a proof with another token is not enough.
    cluster::launch_token wrong{};
    cluster::greeting hello;
    hello.purpose = cluster::purpose::control;
    auto trying = cluster::connect(io, {where}, wrong, hello);
    auto failing = caught<cohort::error>(std::move(trying));
    const auto impostor = co_await std::move(failing);
    REQUIRE(impostor);
    CHECK(impostor->code() == errc::refused);
    CHECK(has(impostor->what(), "does not know this launch's token"));
    // The same, by one who does not care who answers. Then the proof again, which was recorded.
    const cluster::connecting_side side(wrong, hello);
    std::string greeting(reinterpret_cast<const char*>(side.greeting().data()), 64);
    const std::size_t said = co_await answer_to(where, greeting + std::string(32, 'p'));
    CHECK(said == 64 + 1);  // nonce, proof, and that it was wrong
    // Many that are silent, and stay: none of them may keep the workers out.
    for (int i = 0; i < 200; ++i) {
      present.emplace_back(io);
      co_await present.back().async_connect(where, asio::use_awaitable);
    }
  };
  CHECK(refused_besides(come) >= 100);
  CHECK(lines.contains("refused a connection"));
}

TEST_CASE("ten thousand strangers are refused, each for a reason", "[cluster]") {
  constexpr std::size_t many = 10'000;
  const cohort::log::capture lines;
  const auto come = [](asio::ip::tcp::endpoint where, asio::io_context& io,
                       crowd& present) -> asio::awaitable<void> {
    const std::string junk(64, 'j');
    for (std::size_t i = 0; i < many; ++i) {
      if (present.size() == 300) present.pop_front();
      present.emplace_back(io);
      tcp_stream& one = present.back();
      co_await one.async_connect(where, asio::use_awaitable);
      std::error_code gone;  // it may have been closed to make room for others
      if (i % 3 == 0) {
        co_await asio::async_write(one, asio::buffer(junk),
                                   asio::redirect_error(asio::use_awaitable, gone));
      }
      if (i % 3 == 1) one.shutdown(tcp_stream::shutdown_send, gone);
    }
    present.clear();
  };
  CHECK(refused_besides(come) == many);
  CHECK(lines.contains("it does not speak this protocol"));
  CHECK(lines.contains("(more of them are counted, not told)"));
}

TEST_CASE("a manager without descriptors waits for some, and the launch succeeds", "[cluster]") {
  const held_launcher launcher;
  asio::io_context io;
  std::size_t refused = 0;
  bool ready = false;
  bool listens = false;
  asio::ip::tcp::endpoint where;
  auto work = [&]() -> asio::awaitable<void> {
    auto launching = cluster::launch(io, launcher.options(2));
    const workers all = co_await std::move(launching);
    ready = true;
    refused = all.refused();
    co_await all.shutdown();
  };
  auto look = [&]() -> asio::awaitable<void> {
    auto looking = launcher.manager(io);
    where = co_await std::move(looking);
    listens = true;
  };
  asio::co_spawn(io, work(), cohort::rethrow);
  asio::co_spawn(io, look(), cohort::rethrow);
  while (!listens) io.run_one();
  // One that stands before the door proves that there is somebody to be accepted.
  const int stranger = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(stranger >= 0);
  launcher.let_go();
  std::size_t handlers = 0;
  {
    const no_more_descriptors none;
    REQUIRE(::dup(0) < 0);
    REQUIRE(::connect(stranger, where.data(), static_cast<socklen_t>(where.size())) == 0);
    const auto until = std::chrono::steady_clock::now() + 1s;
    while (std::chrono::steady_clock::now() < until) handlers += io.run_one_for(50ms);
    CHECK_FALSE(ready);
  }
  ::close(stranger);
  CHECK(handlers > 0);
  CHECK(handlers < 200);  // a loop that does not pause makes tens of thousands
  io.run();
  CHECK(ready);
  CHECK(refused == 1);
}

TEST_CASE("workers of another program are refused, and the difference is named", "[cluster]") {
  const folder here;
  const std::string copy = here.path("copy");
  std::filesystem::copy_file("/proc/self/exe", copy);
  // The build id, where the linker has written one; else the digest of the file.
  std::string text = contents(copy);
  const std::string& id = cohort::program_id();
  const std::string digits = id.substr(id.find(':') + 1);
  std::string raw;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    raw += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  const std::size_t at = text.find(raw);
  if (at == text.npos) {
    text += "another one";
  } else {
    text[at + 3] = static_cast<char>(text[at + 3] ^ 1);
  }
  std::ofstream(copy, std::ios::binary) << text;
  const auto problem = failure_of(quiet(2).program(copy));
  CHECK(problem.code() == errc::binary_mismatch);
  CHECK(has(problem.what(), "another program than this one"));
  CHECK(has(problem.what(), digits));
}

TEST_CASE("a launcher of another MPI is told from one that fails", "[cluster]") {
  std::string version(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int size = 0;
  ::MPI_Get_library_version(version.data(), &size);
  const bool open_mpi = has(version, "Open MPI");
  const std::string other = open_mpi ? "/usr/bin/mpiexec.mpich" : "/usr/bin/mpiexec.openmpi";
  if (::access(other.c_str(), X_OK) != 0) {
    WARN("not tried: there is no " << other);
    return;
  }
  const own_launcher own;
  const auto problem = failure_of(quiet(2).command({other}).timeout(30s));
  CHECK(problem.code() == errc::launch_failed);
  CHECK(has(problem.what(), "belongs to another MPI"));
}

TEST_CASE("a manager that does not know the token is found out", "[cluster]") {
  asio::io_context io;
  asio::ip::tcp::acceptor impostor(io, {asio::ip::address_v4::loopback(), 0});
  const auto where = impostor.local_endpoint();
  auto pretend = [&]() -> asio::awaitable<void> {
    for (;;) {
      auto visitor = co_await impostor.async_accept(asio::use_awaitable);
      std::array<char, 64> greeting{};
      co_await asio::async_read(visitor, asio::buffer(greeting), asio::use_awaitable);
      co_await asio::async_write(visitor, asio::buffer(greeting), asio::use_awaitable);
      std::array<char, 32> proof{};
      std::error_code failed;
      const std::size_t got = co_await asio::async_read(
          visitor, asio::buffer(proof), asio::redirect_error(asio::use_awaitable, failed));
      CHECK(got == 0);  // who does not trust proves nothing
    }
  };
  asio::co_spawn(io, pretend(), asio::detached);
  auto work = [&]() -> asio::awaitable<void> {
    cluster::greeting hello;
    hello.purpose = cluster::purpose::control;
    auto failing =
        caught<cohort::error>(cluster::connect(io, {where}, cohort::random_bytes<16>(), hello));
    const auto problem = co_await std::move(failing);
    REQUIRE(problem);
    CHECK(problem->code() == errc::refused);
    CHECK(has(problem->what(), "does not know this launch's token"));
    impostor.close();
  };
  run(io, work());
}
