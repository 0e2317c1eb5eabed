// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A started process, played by shell scripts; and the launchers that are installed.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cluster/scripts.hpp"
#include "cohort/cluster/launch/child_process.hpp"
#include "cohort/cluster/launch/child_session.hpp"
#include "cohort/cluster/launch/launching.hpp"
#include "cohort/cluster/launch_options.hpp"
#include "support/catch.hpp"
#include "support/patience.hpp"
#include "support/run.hpp"

namespace {

using namespace cohort;
using namespace cohort::cluster;
using namespace cohort_test;
using Catch::Matchers::ContainsSubstring;

launch_command command_of(strings argv) {
  launch_command command;
  command.argv = std::move(argv);
  command.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  return command;
}

struct ended {
  exit_status status;
  std::string output;
  std::string report;
};

asio::awaitable<ended> to_the_end(launch_command command, child_options options) {
  child_process child(co_await asio::this_coro::executor, command, std::move(options));
  const auto status = co_await child.wait();
  co_return ended{status, child.output(), child.report()};
}

ended run_to_the_end(const launch_command& command, child_options options = {}) {
  asio::io_context io;
  return run(io, to_the_end(command, std::move(options)));
}

std::string start_error(const launch_command& command) {
  asio::io_context io;
  try {
    const child_process child(io.get_executor(), command);
  } catch (const error& failed) {
    CHECK(failed.code() == errc::launch_failed);
    return failed.what();
  }
  return "started";
}

int number_in(const std::string& file) {
  const std::string text = contents(file);
  return text.ends_with('\n') ? std::atoi(text.c_str()) : 0;
}

/// The text of a script that only SIGKILL ends, and that tells its number when that is so.
std::string ignores_sigterm(const std::string& file) {
  return "trap '' TERM; echo $$ > " + file + "; while :; do sleep 0.05; done";
}

/// Ignores a signal while it lives.
class ignoring {
 public:
  explicit ignoring(int signal) : signal_(signal) { ::signal(signal, SIG_IGN); }
  ~ignoring() { ::signal(signal_, SIG_DFL); }
  ignoring(const ignoring&) = delete;
  ignoring& operator=(const ignoring&) = delete;

 private:
  int signal_;
};

/// What Open MPI asks of root, up to 4.1 and from 5.0.
const strings root_permissions{"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                               "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"};

/// No child of this process is left, not even as a zombie.
bool no_children() { return ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }

}  // namespace

TEST_CASE("a process that fails is reported with its status and what it printed") {
  folder here;
  const auto program = here.script("fails", "echo plain; echo 'no such host' >&2; exit 3");
  const bool by_pidfd = GENERATE(true, false);
  child_options options;
  options.use_pidfd = by_pidfd;
  const auto result = run_to_the_end(command_of({program}), options);
  CHECK(result.status.code == 3);
  CHECK(result.status.signal == 0);
  CHECK_FALSE(result.status.success());
  CHECK_THAT(result.output, ContainsSubstring("plain\n"));
  CHECK_THAT(result.output, ContainsSubstring("no such host\n"));
  CHECK_THAT(result.report, ContainsSubstring("fails exited with status 3; the last"));
  CHECK_THAT(result.report, ContainsSubstring("no such host"));
  CHECK(no_children());
}

TEST_CASE("a process that a signal ended says which") {
  folder here;
  const auto result = run_to_the_end(command_of({here.script("dies", "kill -9 $$")}));
  CHECK(result.status.signal == SIGKILL);
  CHECK(result.status.text() == "was ended by signal 9 (Killed)");
  CHECK_THAT(result.report, ContainsSubstring("printed nothing"));
}

TEST_CASE("arguments, environment and directory arrive as they are") {
  folder here;
  const auto program = here.script("shows", R"(pwd
for one; do echo "<$one>"; done
env | sort)");
  auto command = command_of({program, "", "a b", "*", "-n", "it's"});
  command.directory = here.where();
  command.environment.push_back("EXTRA=x = y");
  const auto result = run_to_the_end(command);
  CHECK(result.status.success());
  CHECK(result.output.starts_with(here.where() + "\n<>\n<a b>\n<*>\n<-n>\n<it's>\n"));
  CHECK_THAT(result.output, ContainsSubstring("\nEXTRA=x = y\n"));
  CHECK_THAT(result.output, !ContainsSubstring("HOME="));
}

TEST_CASE("what cannot be started is said at once, with the path and the reason") {
  folder here;
  CHECK_THAT(start_error(command_of({"/no/such/program"})),
             ContainsSubstring("cannot start /no/such/program: No such file or directory"));
  CHECK_THAT(start_error(command_of({here.where()})), ContainsSubstring("Permission denied"));
  CHECK_THAT(start_error(command_of({"no-such-mpiexec"})),
             ContainsSubstring("no-such-mpiexec: it is in none of the folders of PATH (/usr"));
  auto command = command_of({"true"});
  CHECK(start_error(command) == "started");
  command.directory = "/no/such/folder";
  CHECK_THAT(start_error(command), ContainsSubstring("in /no/such/folder: No such file"));
  CHECK(eventually(no_children));
}

TEST_CASE("a process gets its three standard descriptors and no other") {
  folder here;
  // Neither closed by exec by itself.
  const int leak = ::open("/dev/null", O_RDONLY);
  const int high = ::dup2(leak, 200);
  const auto program = here.script("descriptors", R"(exec ls -l /proc/self/fd)");
  const auto result = run_to_the_end(command_of({program}));
  ::close(leak);
  ::close(high);
  CHECK_THAT(result.output, ContainsSubstring(" 0 -> /dev/null"));
  CHECK_THAT(result.output, ContainsSubstring(" 1 -> pipe:"));
  CHECK_THAT(result.output, ContainsSubstring(" 2 -> pipe:"));
  // 3 is the folder that ls itself reads.
  for (const char* other : {" 4 -> ", " 5 -> ", " 10 -> ", " 200 -> "}) {
    CHECK_THAT(result.output, !ContainsSubstring(other));
  }
  CHECK_THAT(result.output, ContainsSubstring("/fd\n"));
}

TEST_CASE("a process ignores and blocks no signal that this program does") {
  folder here;
  const ignoring pipes(SIGPIPE);
  const auto result =
      run_to_the_end(command_of({"grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"}));
  CHECK(result.output == "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST_CASE("lines come one by one, with the last that has no newline") {
  folder here;
  const auto program = here.script("lines", R"(printf 'one\ntw'; sleep 0.1; printf 'o\nrest')");
  strings lines;
  child_options options;
  options.on_line = [&](const output_line& line) {
    CHECK(line.rank == launcher_rank);
    CHECK(line.stream == output_stream::out);
    lines.push_back(std::string(line.text) + (line.complete ? "" : "..."));
  };
  run_to_the_end(command_of({program}), options);
  CHECK(lines == strings{"one", "two", "rest..."});
}

TEST_CASE("a handler of lines that throws is told once and does not stop the reading") {
  const log::capture messages;
  child_options options;
  options.on_line = [](const output_line&) { throw std::runtime_error("full"); };
  const auto result = run_to_the_end(command_of({"printf", "a\nb\nc\n"}), options);
  CHECK(result.output == "a\nb\nc\n");
  const std::string told = messages.text();
  CHECK(told.find("full") != std::string::npos);
  CHECK(told.find("full") == told.rfind("full"));
}

TEST_CASE("of much output the last is kept") {
  child_options options;
  options.kept_output = 1000;
  const auto result = run_to_the_end(command_of({"seq", "1", "100000"}), options);
  CHECK(result.output.size() == 1000);
  CHECK(result.output.ends_with("\n99999\n100000\n"));
}

TEST_CASE("a process that ignores SIGTERM is killed after the grace") {
  folder here;
  const auto ready = here.path("ready");
  const auto program = here.script("stays", ignores_sigterm(ready));
  const bool by_pidfd = GENERATE(true, false);
  asio::io_context io;
  child_options options;
  options.use_pidfd = by_pidfd;
  child_process child(io.get_executor(), command_of({program}), options);
  CHECK(eventually([&] { return number_in(ready) > 0; }));
  CHECK(number_in(ready) == child.pid());
  const auto status = run(io, child.terminate(50ms));
  CHECK(status.signal == SIGKILL);
  CHECK_FALSE(runs(child.pid()));
  CHECK_FALSE(child.signal_group(SIGTERM));
  CHECK(run(io, child.terminate(50ms)).signal == SIGKILL);  // again: the same answer
  CHECK(no_children());
}

TEST_CASE("a process that obeys SIGTERM is not waited for longer") {
  asio::io_context io;
  child_process child(io.get_executor(), command_of({"sleep", "1000"}));
  CHECK_FALSE(child.status());
  const auto status = run(io, child.terminate(1h));
  CHECK(status.signal == SIGTERM);
  CHECK(child.status()->signal == SIGTERM);
}

TEST_CASE("a grace or a drain as long as there is has no end") {
  folder here;
  const auto ready = here.path("ready");
  const auto program = here.script("slow", "trap 'sleep 0.2; echo $$ > " + here.path("done") +
                                               "; exit 7' TERM; echo $$ > " + ready +
                                               "; while :; do sleep 0.05; done");
  constexpr auto longest = child_process::duration::max();
  asio::io_context io;
  child_options options;
  options.drain = longest;
  options.grace = longest;
  child_process child(io.get_executor(), command_of({program}), options);
  child.kill_after(longest);
  CHECK(eventually([&] { return number_in(ready) > 0; }));
  SECTION("when the process obeys") {
    const auto status = run(io, child.terminate(longest));
    CHECK(status.text() == "exited with status 7");
    CHECK(number_in(here.path("done")) == child.pid());
  }
  SECTION("when it is given up") {
    const int pid = child.pid();
    child = child_process(io.get_executor(), command_of({"true"}));
    io.run();
    CHECK(number_in(here.path("done")) == pid);
    CHECK(no_children());
  }
  SECTION("and a shorter one that follows counts") {
    CHECK(child.signal_group(SIGSTOP));
    child.kill_after(20ms);
    const auto status = run(io, child.terminate(longest));
    CHECK(status.signal == SIGKILL);
  }
}

TEST_CASE("a grandchild that holds the output neither delays the end nor outlives it") {
  folder here;
  const auto file = here.path("pid");
  const std::string fork = here.script("grandchild", ignores_sigterm(file)) + " & ";
  asio::io_context io;
  SECTION("when the process ends by itself") {
    child_options options;
    options.drain = 50ms;
    const auto program = here.script(
        "forks", fork + "while [ ! -s " + file + " ]; do sleep 0.01; done; echo bye; exit 4");
    child_process child(io.get_executor(), command_of({program}), options);
    const auto status = run(io, child.wait());
    CHECK(status.code == 4);
    CHECK(child.output() == "bye\n");
  }
  SECTION("when it is terminated") {
    child_process child(io.get_executor(), command_of({here.script("forks", fork + "wait")}));
    CHECK(eventually([&] { return number_in(file) > 0; }));
    const auto status = run(io, child.terminate(50ms));
    CHECK(status.signal == SIGTERM);
  }
  CHECK(number_in(file) > 0);
  CHECK(eventually([&] { return !runs(number_in(file)); }));
}

TEST_CASE("what has left the group is found when the process is terminated") {
  folder here;
  const auto file = here.path("pid");
  const std::string fork = "setsid " + here.script("grandchild", ignores_sigterm(file)) + " & ";
  asio::io_context io;
  int expected = 0;
  std::string program;
  SECTION("which obeys") {
    expected = SIGTERM;
    program = here.script("forks", fork + "wait");
  }
  SECTION("which has to be killed") {
    expected = SIGKILL;
    program = here.script("forks", "trap '' TERM; " + fork + "while :; do sleep 0.05; done");
  }
  child_process child(io.get_executor(), command_of({program}));
  CHECK(eventually([&] { return number_in(file) > 0; }));
  CHECK(::getpgid(number_in(file)) != child.pid());
  const auto status = run(io, child.terminate(50ms));
  CHECK(status.signal == expected);
  CHECK(eventually([&] { return !runs(number_in(file)); }));
}

TEST_CASE("the destructor returns at once and leaves no zombie while the loop runs") {
  folder here;
  asio::io_context io;
  const auto ready = here.path("ready");
  const auto program = here.script("stays", ignores_sigterm(ready));
  int pid = -1;
  {
    child_options options;
    options.grace = 50ms;
    const child_process child(io.get_executor(), command_of({program}), options);
    pid = child.pid();
    CHECK(eventually([&] { return number_in(ready) > 0; }));
  }
  CHECK(runs(pid));  // nobody has waited for it
  io.run();
  CHECK_FALSE(runs(pid));
  CHECK(no_children());
}

TEST_CASE("a handler of lines is not called once its process is given up") {
  folder here;
  const auto program = here.script(
      "talks", "trap 'echo last words; exit' TERM; echo ready; while :; do sleep 0.05; done");
  asio::io_context io;
  strings lines;
  std::optional<child_process> child;
  child_options options;
  options.on_line = [&](const output_line& line) {
    lines.emplace_back(line.text);
    child.reset();  // also from inside the handler
  };
  child.emplace(io.get_executor(), command_of({program}), options);
  io.run();
  CHECK(lines == strings{"ready"});
  CHECK(no_children());
}

TEST_CASE("a process that another one is assigned to ends") {
  asio::io_context io;
  child_process child(io.get_executor(), command_of({"sleep", "1000"}));
  const int first = child.pid();
  child = child_process(io.get_executor(), command_of({"true"}));
  CHECK(run(io, child.wait()).success());
  CHECK_FALSE(runs(first));
  CHECK(no_children());
}

TEST_CASE("when the loop is destroyed first, the group is killed there and then") {
  folder here;
  const auto file = here.path("grandchild");
  const auto program =
      here.script("forks", "setsid sh -c 'echo $$ > " + file + "; exec sleep 1000' & wait");
  std::optional<child_process> child;
  {
    asio::io_context io;
    child.emplace(io.get_executor(), command_of({program}));
    CHECK(eventually([&] { return number_in(file) > 0; }));
  }
  CHECK(eventually([&] { return !runs(child->pid()); }));
  CHECK(eventually([&] { return !runs(number_in(file)); }));  // though it had left the group
  CHECK_FALSE(child->signal_group(SIGTERM));
  const int pid = child->pid();
  asio::io_context other;
  const auto code = run(other, code_of(child->wait()));
  CHECK(code == errc::engine_stopped);
  child.reset();
  ::waitpid(pid, nullptr, 0);
}

TEST_CASE("a waiter can be cancelled and the process goes on") {
  asio::io_context io;
  child_process child(io.get_executor(), command_of({"sleep", "1000"}));
  asio::cancellation_signal stop;
  std::exception_ptr failed;
  asio::co_spawn(io, child.wait(),
                 asio::bind_cancellation_slot(
                     stop.slot(), [&](std::exception_ptr error, exit_status) { failed = error; }));
  asio::post(io, [&] { stop.emit(asio::cancellation_type::terminal); });
  while (!failed && io.run_one() > 0) {
  }
  CHECK(failed);
  CHECK(runs(child.pid()));
  CHECK(run(io, child.terminate(cohort_test::patient(10s))).signal == SIGTERM);
}

TEST_CASE("a program that ignores SIGCHLD is told that the status is not known") {
  const ignoring children(SIGCHLD);
  const auto result = run_to_the_end(command_of({"true"}));
  CHECK_FALSE(result.status.known);
  CHECK_FALSE(result.status.success());
}

TEST_CASE("when the manager is killed the process gets SIGTERM") {
  folder here;
  const auto file = here.path("child");
  const auto program = here.script("child", "echo $$ > " + file + "; exec sleep 1000");
  const int manager = ::fork();
  if (manager == 0) {
    asio::io_context io;
    const child_process child(io.get_executor(), command_of({program}));
    io.run();
    ::_exit(0);
  }
  CHECK(eventually([&] { return number_in(file) > 0; }));
  CHECK(runs(number_in(file)));
  ::kill(manager, SIGKILL);
  ::waitpid(manager, nullptr, 0);
  CHECK(eventually([&] { return !runs(number_in(file)); }));
}

TEST_CASE("a launcher is identified by asking it") {
  folder here;
  asio::io_context io;
  const auto says =
      here.script("mpiexec", R"([ "$*" = --version ] && echo 'mpirun (Open MPI) 5.0.1')");
  CHECK(run(io, identify_launcher(launch_options{}.command({says}))) == launcher_kind::open_mpi_5);
  // The one that is only known by its name need not exist.
  CHECK(run(io, identify_launcher(launch_options{}.command({"/no/srun"}))) == launcher_kind::slurm);
  const auto code = run(io, code_of(identify_launcher(launch_options{}.command({"/no/mpiexec"}))));
  CHECK(code == errc::launch_failed);

  const auto silent = here.script("silent", "while :; do sleep 0.05; done");
  CHECK(run(io, identify_launcher(launch_options{}.command({silent}), 20ms)) ==
        launcher_kind::unknown);

  const auto command =
      run(io, prepare_launch(launch_options{}.ranks(1).command({says}).program("/bin/true")));
  CHECK(command.argv == strings{says, "-n", "1", "/bin/true"});
  const auto none = run(io, prepare_launch(launch_options{}.ranks(0).command({"/no/mpiexec"})));
  CHECK(none.argv.empty());
}

TEST_CASE("the launchers that are installed are known, and start what they are told") {
  asio::io_context io;
  for (const std::string name : {"mpiexec.openmpi", "mpiexec.mpich", "mpiexec.hydra", "mpiexec"}) {
    if (::access(("/usr/bin/" + name).c_str(), X_OK) != 0) continue;
    CAPTURE(name);
    auto options = launch_options{}.command({name}).ranks(3).program("/bin/sh");
    // Hydra dies of SIGPIPE, now and then, where its ranks end before it has told them of its
    // stdin.
    options.arguments({"-c", "echo rank says $COHORT_TEST_VALUE; sleep 1"});
    options.environment("COHORT_TEST_VALUE", "hello").without_environment("HOME");
    options.oversubscribe(oversubscription::always);
    const auto kind = run(io, identify_launcher(options));
    CHECK(kind != launcher_kind::unknown);
    if (name == "mpiexec.openmpi") CHECK(kind != launcher_kind::mpich);
    if (name == "mpiexec.mpich") CHECK(kind == launcher_kind::mpich);
    const bool open_mpi = kind == launcher_kind::open_mpi_4 || kind == launcher_kind::open_mpi_5;
    if (open_mpi) options.flags({"--map-by", "core"});  // the user's own words beside ours
    if (open_mpi && ::geteuid() == 0) {
      // Permission is the user's to give: without it, the launcher's own words say so.
      for (const auto& each : root_permissions) options.without_environment(each);
      const auto refused = run(io, to_the_end(make_launch_command(options, kind), {}));
      CHECK_FALSE(refused.status.success());
      CHECK_THAT(refused.report, ContainsSubstring("root"));
      for (const auto& each : root_permissions) options.environment(each, "1");
    }
    const auto result = run(io, to_the_end(make_launch_command(options, kind), {}));
    CAPTURE(result.report);
    CHECK(result.status.success());
    std::size_t greetings = 0;
    for (std::size_t at = 0; (at = result.output.find("rank says hello", at)) != std::string::npos;
         ++at) {
      ++greetings;
    }
    CHECK(greetings == 3);
  }
}

TEST_CASE("ranks that ignore SIGTERM end with a launcher that is killed") {
  asio::io_context io;
  for (const std::string name : {"mpiexec.openmpi", "mpiexec.mpich"}) {
    if (::access(("/usr/bin/" + name).c_str(), X_OK) != 0) continue;
    CAPTURE(name);
    folder here;
    const auto program = here.script("rank", ignores_sigterm(here.path("rank.$1")));
    auto options = launch_options{}.command({name}).ranks(1).program(program).arguments({"only"});
    for (const auto& each : root_permissions) options.environment(each, "1");
    const auto file = here.path("rank.only");
    const auto command = run(io, prepare_launch(options));
    child_process child(io.get_executor(), command);
    CHECK(eventually([&] { return number_in(file) > 0; }));
    CHECK(runs(number_in(file)));
    run(io, child.terminate(10ms));
    CHECK(eventually([&] { return !runs(number_in(file)); }));
  }
}

TEST_CASE("a rank of one job can start another job") {
  asio::io_context io;
  for (const std::string name : {"mpiexec.openmpi", "mpiexec.mpich"}) {
    if (::access(("/usr/bin/" + name).c_str(), X_OK) != 0) continue;
    CAPTURE(name);
    auto options = launch_options{}.command({name}).ranks(1).program("/bin/sh");
    options.arguments({"-c", "env; sleep 1"});  // see above
    for (const auto& each : root_permissions) options.environment(each, "1");
    const auto kind = run(io, identify_launcher(options));
    const auto rank = run(io, to_the_end(make_launch_command(options, kind), {}));
    // The environment that a rank has, with what only its launcher has set.
    strings environment;
    strings removed;
    std::string_view rest = rank.output;
    while (!rest.empty()) {
      const auto line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      environment.emplace_back(line);
      const auto variable = line.substr(0, line.find('='));
      if (set_by_launcher(variable)) removed.emplace_back(variable);
    }
    CHECK(removed.size() > 2);
    options.arguments({"-c", "echo nested; sleep 1"});
    const auto command = make_launch_command(options, kind, 1, environment);
    const auto nested = run(io, to_the_end(command, {}));
    CHECK(nested.status.success());
    CHECK(nested.output == "nested\n");
  }
}
