// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What `launch` is to start and how, `launch_options`, and the part of it that `adopt`
/// takes.
///
/// ```
/// auto options = cluster::launch_options{}.ranks(4).timeout(30s).on_loss(loss_policy::proceed);
/// auto workers = co_await cluster::launch(io, options);
/// ```

#include <cohort/cluster/sinks.hpp>
#include <cohort/core/error.hpp>

#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// What the job does when a rank is lost.
enum class loss_policy {
  fail,     ///< the job ends
  proceed,  ///< the other ranks go on, where the launcher can be told to let them
  respawn,  ///< the whole job is started again once all its ranks are gone
};

/// How the manager talks to the workers.
enum class transport { tcp, mpi };

/// Periods of `launch_options::heartbeat` after which a silent worker is lost.
inline constexpr int silent_heartbeats = 6;

/// Whether the launcher is told that more ranks than slots are meant.
enum class oversubscription {
  automatic,  ///< where there are more ranks than this machine, or the list of hosts, has slots
  always,
  never,
};

/// The CPUs that this process may use: hardware threads.
[[nodiscard]] inline int usable_cpus() noexcept {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  const long all = ::sysconf(_SC_NPROCESSORS_ONLN);  // more than 1024 of them
  return all > 0 ? static_cast<int>(all) : 1;
}

/// Each function with an argument sets, the one of the same name without returns:
/// `launch_options{}.ranks(4).timeout(30s)`.
class launch_options {
 public:
  using duration = std::chrono::nanoseconds;
  using strings = std::vector<std::string>;
  /// What is changed in the environment of the ranks; in this order; without `set` it is removed.
  struct variable {
    std::string name;
    std::string value;
    bool set = true;
  };

  // Provided by us: g++ 12 copies a temporary aggregate bit by bit in an expression with co_await.
  launch_options() {}

  // ---- what is started

  /// Default: usable_cpus(). With 0 nothing is started.
  launch_options& ranks(int count) { return put(ranks_, count); }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// The launcher and what always follows its name; default {"mpiexec"}. The variable
  /// COHORT_MPIEXEC, where it is set, replaces it: words, separated by spaces. A name without a
  /// slash is looked up in PATH.
  launch_options& command(strings words) { return put(command_, std::move(words)); }
  [[nodiscard]] const strings& command() const noexcept { return command_; }
  /// Further arguments of the launcher, after those that follow from the other options.
  launch_options& flags(strings words) { return put(flags_, std::move(words)); }
  [[nodiscard]] const strings& flags() const noexcept { return flags_; }
  /// The program of the ranks; default: this program.
  launch_options& program(std::string path) { return put(program_, std::move(path)); }
  [[nodiscard]] const std::string& program() const noexcept { return program_; }
  launch_options& arguments(strings words) { return put(arguments_, std::move(words)); }
  [[nodiscard]] const strings& arguments() const noexcept { return arguments_; }
  /// Where the launcher runs; default: where this process does.
  launch_options& directory(std::string path) { return put(directory_, std::move(path)); }
  [[nodiscard]] const std::string& directory() const noexcept { return directory_; }
  /// Names of machines, as the launcher knows them ("node1", for Open MPI and MPICH also
  /// "node1:4").
  launch_options& hosts(strings names) { return put(hosts_, std::move(names)); }
  [[nodiscard]] const strings& hosts() const noexcept { return hosts_; }
  /// Sets a variable for the ranks, on all machines.
  launch_options& environment(std::string name, std::string value) {
    environment_.push_back({std::move(name), std::move(value), true});
    return *this;
  }
  /// Removes a variable that this process has.
  launch_options& without_environment(std::string name) {
    environment_.push_back({std::move(name), {}, false});
    return *this;
  }
  [[nodiscard]] const std::vector<variable>& environment() const noexcept { return environment_; }
  launch_options& oversubscribe(oversubscription when) { return put(oversubscribe_, when); }
  [[nodiscard]] oversubscription oversubscribe() const noexcept { return oversubscribe_; }

  /// Nothing is started: the function is called with the manager's addresses and the token, as
  /// texts, once it listens there. Somebody starts the ranks (`ranks` of them, one MPI job), and
  /// they call `serve(addresses, token)`. Who knows the token can give the ranks orders.
  using told_function = std::function<void(const std::string& addresses, const std::string& token)>;
  launch_options& by_hand(told_function function) { return put(by_hand_, std::move(function)); }
  [[nodiscard]] const told_function& by_hand() const noexcept { return by_hand_; }

  // ---- how the manager reaches it

  launch_options& transport(cluster::transport which) { return put(transport_, which); }
  [[nodiscard]] cluster::transport transport() const noexcept { return transport_; }
  /// The address to listen on; default: all, of IPv4 and IPv6.
  launch_options& interface(std::string address) { return put(interface_, std::move(address)); }
  [[nodiscard]] const std::string& interface() const noexcept { return interface_; }
  /// Of one message, in bytes; default 1 GiB.
  launch_options& max_message(std::size_t bytes) { return put(max_message_, bytes); }
  [[nodiscard]] std::size_t max_message() const noexcept { return max_message_; }

  // ---- how it lives and ends

  /// Until all ranks are ready; default 60 s. With `loss_policy::respawn` also for each time that
  /// the job is started again, for all attempts together, from the end of the old one on.
  launch_options& timeout(duration bound) { return put(timeout_, bound); }
  [[nodiscard]] duration timeout() const noexcept { return timeout_; }
  /// Between SIGTERM and SIGKILL; default 3 s.
  launch_options& grace(duration bound) { return put(grace_, bound); }
  [[nodiscard]] duration grace() const noexcept { return grace_; }
  /// How often a thread of each worker shows that its process lives, over a connection of its own;
  /// who has been silent for `silent_heartbeats` periods is lost: it is stopped (also by a
  /// debugger), or its machine has vanished. Zero: never. Without this option: every 5 s if
  /// messages travel over MPI, or the worker is on another machine, and it can connect; else never,
  /// since the end of a process is noticed over TCP anyway.
  launch_options& heartbeat(duration period) { return put(heartbeat_, period); }
  [[nodiscard]] const std::optional<duration>& heartbeat() const noexcept { return heartbeat_; }
  /// Whether workers may call functions here, by `call_context::peers()` and `manager_id`. Off by
  /// default; then such a call fails with errc::refused.
  launch_options& serve_calls(bool wanted) { return put(serve_calls_, wanted); }
  [[nodiscard]] bool serve_calls() const noexcept { return serve_calls_; }
  launch_options& on_loss(loss_policy policy) { return put(on_loss_, policy); }
  [[nodiscard]] loss_policy on_loss() const noexcept { return on_loss_; }
  /// After how many losses `loss_policy::respawn` starts the job again; at the next one it ends.
  /// Default 3. Attempts that fail are no losses: see `timeout`.
  launch_options& respawns(int most) { return put(respawns_, most); }
  [[nodiscard]] int respawns() const noexcept { return respawns_; }
  /// Ctrl-C: once cancels the calls in flight, twice ends the job. Off by default.
  launch_options& interrupt(bool handled) { return put(interrupt_, handled); }
  [[nodiscard]] bool interrupt() const noexcept { return interrupt_; }

  // ---- what the ranks print

  /// One more sink. Without any, console() is used.
  launch_options& sink(output_sink another) {
    sinks_.push_back(std::move(another));
    return *this;
  }
  [[nodiscard]] const std::vector<output_sink>& sinks() const noexcept { return sinks_; }
  launch_options& overflow(overflow_policy policy) { return put(overflow_, policy); }
  [[nodiscard]] overflow_policy overflow() const noexcept { return overflow_; }
  /// Of all lines that wait for the sinks, in bytes; default 4 MiB.
  launch_options& output_bound(std::size_t bytes) { return put(output_bound_, bytes); }
  [[nodiscard]] std::size_t output_bound() const noexcept { return output_bound_; }
  /// Longer lines are cut; default 64 KiB.
  launch_options& longest_line(std::size_t bytes) { return put(longest_line_, bytes); }
  [[nodiscard]] std::size_t longest_line() const noexcept { return longest_line_; }

 private:
  template <class T, class Value>
  launch_options& put(T& field, Value&& value) {
    field = std::forward<Value>(value);
    return *this;
  }

  int ranks_ = usable_cpus();
  strings command_{"mpiexec"};
  strings flags_;
  std::string program_;
  strings arguments_;
  std::string directory_;
  strings hosts_;
  std::vector<variable> environment_;
  oversubscription oversubscribe_ = oversubscription::automatic;
  told_function by_hand_;
  cluster::transport transport_ = cluster::transport::tcp;
  std::string interface_;
  std::size_t max_message_ = std::size_t{1} << 30;
  duration timeout_ = std::chrono::seconds(60);
  duration grace_ = std::chrono::seconds(3);
  std::optional<duration> heartbeat_;
  loss_policy on_loss_ = loss_policy::fail;
  int respawns_ = 3;
  bool interrupt_ = false;
  bool serve_calls_ = false;
  std::vector<output_sink> sinks_;
  overflow_policy overflow_ = overflow_policy::drop_oldest;
  std::size_t output_bound_ = 4 * 1024 * 1024;
  std::size_t longest_line_ = default_longest_line;
};

/// Each function with an argument sets: `adopt_options{}.transport(transport::tcp)`. What they mean
/// is told at the function of that name in launch_options.
class adopt_options {
 public:
  using duration = launch_options::duration;

  // Provided by us: g++ 12 copies a temporary aggregate bit by bit in an expression with co_await.
  adopt_options() { all_.transport(cluster::transport::mpi).on_loss(loss_policy::fail); }

  /// Default: MPI, on a communicator of its own. With TCP the manager listens, and MPI only carries
  /// what the workers do among themselves.
  adopt_options& transport(cluster::transport which) { return all_.transport(which), *this; }
  /// Until all ranks serve; default 60 s.
  adopt_options& timeout(duration bound) { return all_.timeout(bound), *this; }
  adopt_options& max_message(std::size_t bytes) { return all_.max_message(bytes), *this; }
  adopt_options& interface(std::string address) {
    return all_.interface(std::move(address)), *this;
  }
  /// Default fail: the whole job ends. An MPI that has no fault tolerance ends it anyway when a
  /// rank dies.
  adopt_options& on_loss(loss_policy policy) { return all_.on_loss(policy), *this; }
  /// Over MPI the signs of life travel over TCP as well; by default a worker that cannot connect
  /// goes without them, with a warning.
  adopt_options& heartbeat(duration period) { return all_.heartbeat(period), *this; }
  adopt_options& serve_calls(bool wanted) { return all_.serve_calls(wanted), *this; }
  /// One more sink. Without any, the ranks print where the launcher of the job lets them. With one,
  /// their output comes to the manager over TCP, whichever way the messages take.
  adopt_options& sink(output_sink another) { return all_.sink(std::move(another)), *this; }
  adopt_options& overflow(overflow_policy policy) { return all_.overflow(policy), *this; }
  adopt_options& output_bound(std::size_t bytes) { return all_.output_bound(bytes), *this; }
  adopt_options& longest_line(std::size_t bytes) { return all_.longest_line(bytes), *this; }

  /// The same, as the manager keeps them.
  [[nodiscard]] launch_options for_ranks(int count) const {
    launch_options all = all_;
    return all.ranks(count);
  }

 private:
  launch_options all_;
};

/// For `launch`: the manager is outside MPI and talks to the workers over TCP; they have MPI among
/// themselves. *Example*: `co_await launch(io, mpi_on_workers().ranks(4))`.
[[nodiscard]] inline launch_options mpi_on_workers() {
  launch_options options;
  options.transport(transport::tcp);
  return options;
}

/// For `adopt`: rank 0 of a running job is the manager and talks to the others over TCP; MPI only
/// carries what the workers do among themselves.
[[nodiscard]] inline adopt_options tcp_transport_all() {
  adopt_options options;
  options.transport(transport::tcp);
  return options;
}

/// For `adopt`: the same, and all messages travel over MPI.
[[nodiscard]] inline adopt_options mpi_transport_all() {
  adopt_options options;
  options.transport(transport::mpi);
  return options;
}

/// Throws error(errc::invalid_argument) that names the first option outside its range.
template <class Any = void>
void validate(const launch_options& options);

// ---- implementation --------------------------------------------------------------------------

template <class Any>
void validate(const launch_options& options) {
  using namespace std::string_view_literals;
  const auto require = [](bool good, const char* field, const char* what) {
    if (good) return;
    throw error(errc::invalid_argument, std::string("launch_options: ") + field + what);
  };
  // Where a text becomes an argument, a path or a variable, a zero byte would cut it.
  const auto text = [&](const std::string& value, const char* field) {
    require(value.find('\0') == std::string::npos, field, " contains a zero byte");
  };
  const auto texts = [&](const std::vector<std::string>& values, const char* field) {
    for (const std::string& value : values) text(value, field);
  };
  constexpr auto none = launch_options::duration::zero();

  require(options.ranks() >= 0, "ranks", " is negative");
  require(!options.command().empty() && !options.command().front().empty(), "command", " is empty");
  texts(options.command(), "command");
  texts(options.flags(), "flags");
  text(options.program(), "program");
  texts(options.arguments(), "arguments");
  text(options.directory(), "directory");
  for (const std::string& host : options.hosts()) {
    require(!host.empty() && host.find_first_of(", \t\n"sv) == std::string::npos && host[0] != '-',
            "hosts", " contains what is no name of a machine");
  }
  texts(options.hosts(), "hosts");
  for (const auto& [name, value, set] : options.environment()) {
    require(!name.empty() && name.find('=') == std::string::npos, "environment",
            ": a name is empty or contains '='");
    text(name, "environment");
    text(value, "environment");
  }
  text(options.interface(), "interface");
  require(options.max_message() > 0, "max_message", " is zero");
  require(options.timeout() > none, "timeout", " is not positive");
  require(options.grace() >= none, "grace", " is negative");
  const auto beat = options.heartbeat().value_or(none);
  require(beat >= none, "heartbeat", " is negative");
  require(beat == none || beat >= std::chrono::milliseconds(1), "heartbeat", " is below 1 ms");
  require(options.respawns() >= 0, "respawns", " is negative");
  for (const output_sink& sink : options.sinks()) require(bool(sink), "sink", " is empty");
  require(options.output_bound() > 0, "output_bound", " is zero");
  require(options.longest_line() > 0, "longest_line", " is zero");
}

}  // namespace cohort::cluster
