// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Starts the ranks of a job by a launcher, watches it, and starts them again after a loss.
///
/// The room `launch`: options enter; processes leave, and what has become of them.

#include <cohort/cluster/launch/child_process.hpp>
#include <cohort/cluster/launch/launch_command.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/membership/admission.hpp>
#include <cohort/cluster/membership/membership.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/log.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// How long a launcher may take to say its version; then it counts as unknown.
inline constexpr std::chrono::seconds version_timeout{5};

/// Whose launcher the options name: asks it with `--version`. srun is known by its name, for in
/// some installations it is a wrapper that starts a job whatever it is asked. Throws
/// errc::launch_failed if it cannot be started.
template <class Any = void>
[[nodiscard]] asio::awaitable<launcher_kind> identify_launcher(
    launch_options options, std::chrono::nanoseconds bound = version_timeout) {
  launch_command command;
  command.argv = launcher_words(options);
  const std::string_view name = command.argv.front();
  if (name.substr(name.rfind('/') + 1) == "srun") co_return launcher_kind::slurm;
  command.argv.emplace_back("--version");
  command.directory = options.directory();
  command.environment = launch_environment(current_environment(), options.environment());
  detail::provide_home(command.environment);
  child_process child(co_await asio::this_coro::executor, command);
  child.kill_after(bound);
  co_await child.wait();
  co_return launcher_kind_of(child.output());
}

/// What a launch with these options runs, for child_process. Its argv is empty for no ranks. Throws
/// errc::invalid_argument that names an option, or as identify_launcher.
template <class Any = void>
[[nodiscard]] asio::awaitable<launch_command> prepare_launch(launch_options options) {
  validate(options);
  auto kind = launcher_kind::unknown;
  if (options.ranks() > 0) kind = co_await identify_launcher(options);
  co_return make_launch_command(options, kind);
}

/// The launcher of a job, and all attempts to start it again. Part of a manager.
template <class Any>
class basic_launching {
 public:
  using clock = std::chrono::steady_clock;

  /// `given_up`: the job could not be started again.
  basic_launching(membership& workers, admission& door, std::function<void()> given_up)
      : workers_(workers), door_(door), given_up_(std::move(given_up)) {}

  /// Completes when the launcher runs.
  asio::awaitable<void> start() {
    launch_options started_with = workers_.options;
    started_with.environment(token_variable, to_text(door_.token()));
    started_with.environment(manager_variable, door_.addresses());
    const launch_command command = co_await prepare_launch(std::move(started_with));
    child_options how;
    how.grace = workers_.options.grace();
    how.longest_line = workers_.options.longest_line();
    how.on_line = [to = workers_.output->lines()](const output_line& line) { to->push(line); };
    if (!door_.problem().empty()) co_return;  // in the meantime
    child_ = std::make_shared<child_process>(workers_.io.get_executor(), command, how);
    exited_.reset();
    watched_ = true;
    door_.open();
    workers_.run(watch());
  }
  [[nodiscard]] bool started() const noexcept { return child_ != nullptr; }
  /// In the background.
  void terminate() { workers_.run(end_child()); }
  /// After a start that has failed.
  asio::awaitable<void> clean_up() {
    if (child_) {
      co_await end_child();
    }
    door_.part_from_all();
  }
  /// The launcher ends after its ranks. False if it has not in time.
  asio::awaitable<bool> ends(std::chrono::nanoseconds bound) {
    const auto runs = [this] { return !exited_; };
    co_await workers_.changed.wait_while(runs, from_now(bound));
    co_return exited_.has_value();
  }
  /// What the launcher has printed, for the text of an error. Without a sink of the user it has
  /// been shown already.
  [[nodiscard]] std::string words() const {
    const std::string printed = child_ ? child_->output() : std::string();
    if (printed.empty()) return printed;
    if (workers_.options.sinks().empty()) return "; what the launcher printed stands above";
    return "\nthe launcher printed:\n" + printed;
  }
  /// How long outputs are read after the launcher's end.
  void output_bound(std::chrono::nanoseconds bound) noexcept { output_bound_ = bound; }

  // ---- once more

  [[nodiscard]] bool may_start_again() const noexcept {
    return !workers_.closing && workers_.options.on_loss() == loss_policy::respawn &&
           times_ < workers_.options.respawns();
  }
  void will_start_again(std::string because) {
    workers_.stage = job_stage::falling;
    because_ = std::move(because);
  }
  void start_again() {
    if (!std::exchange(starting_again_, true)) workers_.run(until_all_are_back());
  }
  /// Called once, when it runs again or never will.
  void when_started_again(std::function<void()> function) {
    waiting_.push_back(std::move(function));
  }
  void notify_waiting() {
    for (const auto& each : std::exchange(waiting_, {})) each();
  }
  void forget_waiting() { waiting_.clear(); }

 private:
  asio::awaitable<void> end_child() { co_await child_->terminate(workers_.options.grace()); }

  asio::awaitable<void> watch() {
    membership::loop_guard guard(workers_);
    exited_ = co_await child_->wait();
    const std::string text = "the launcher " + exited_->text();
    door_.fail(errc::launch_failed, text + "; " + door_.missing());
    workers_.changed.notify();
    // What its ranks have sent is in their connections; these end by themselves.
    const auto open = [](const member_ptr& each) { return !each->control->ended(); };
    const auto limit = from_now(output_bound_);
    if (std::any_of(workers_.joined.begin(), workers_.joined.end(), open)) {
      asio::steady_timer pause(workers_.io, std::chrono::seconds(1));
      co_await pause.async_wait(awaiting<Any>);
      for (const member_ptr& each : workers_.joined) {
        if (open(each)) workers_.lose(each, text);
      }
    }
    co_await workers_.output->read_to_the_end(limit);
    guard.release();
    watched_ = false;
    workers_.changed.notify();
  }

  [[nodiscard]] bool is_wanted() const noexcept {
    return !workers_.closing && !workers_.terminating;
  }

  /// Ends what is left of the job and launches it as the first time, until that succeeds or the
  /// time of a launch is over: what is gone, such as a machine, may need time to come back. After a
  /// success a loss is a new one, with time of its own.
  asio::awaitable<void> until_all_are_back() {
    membership::loop_guard guard(workers_);
    constexpr std::chrono::nanoseconds shortest = std::chrono::milliseconds(250);
    constexpr std::chrono::nanoseconds longest = std::chrono::seconds(8);
    std::chrono::nanoseconds pause = shortest;
    clock::time_point limit{};
    while (workers_.starts_again()) {
      const bool new_loss = limit == clock::time_point();
      if (new_loss) {
        ++times_;
        pause = shortest;
      }
      log::write(log::level::warning, "the job is started again: " + because_);
      try {
        co_await end_old_job();
        if (new_loss) limit = from_now(workers_.options.timeout());
        co_await try_again(limit);
      } catch (const std::exception& failed) {
        workers_.stage = job_stage::starting_again;
        door_.set_problem(failed.what());
      }
      if (workers_.has_begun()) {  // though it may have lost a rank since
        limit = clock::time_point();
        continue;
      }
      because_ = "it could not be started again: " + door_.problem();
      const auto next = from_now(pause);
      pause = std::min(2 * pause, longest);
      if (next < limit) {
        const auto waits = [this] { return is_wanted(); };
        co_await workers_.changed.wait_while(waits, next);
        if (is_wanted()) continue;
      }
      give_up();
    }
    starting_again_ = false;
    guard.release();
  }

  /// The time that this takes does not count for the next launch.
  asio::awaitable<void> end_old_job() {
    const std::string text = "the job is started again, since " + because_;
    // The launcher ends them; where it has crashed, some may live.
    for (const member_ptr& each : workers_.ranks) {
      workers_.lose(each, text, membership::parting::by_launcher);
    }
    co_await end_child();
    for (const member_ptr& each : workers_.ranks) {
      workers_.part_from(each, text);
      if (each->silent < 2) continue;  // of a silent one, no end of its output may ever come
      each->printed.stop();
    }
    while (watched_) co_await workers_.changed.wait();
  }

  asio::awaitable<void> try_again(clock::time_point limit) {
    workers_.stage = job_stage::starting_again;
    door_.begin();
    if (!is_wanted()) {
      door_.set_problem("the workers are ended");
      co_return;
    }
    door_.listen();
    const auto before = child_;
    std::exception_ptr failed;
    try {
      co_await start();
      co_await door_.wait(limit);
    } catch (...) {
      failed = std::current_exception();
    }
    if (workers_.has_begun()) co_return;
    door_.close();
    co_await clean_up();
    if (failed) std::rethrow_exception(failed);
    if (child_ != before) door_.set_problem(door_.problem() + words());
  }

  /// Who is lost stays lost.
  void give_up() {
    given_up_();
    workers_.stage = is_wanted() ? job_stage::running : job_stage::ended;
    if (is_wanted()) {
      for (const member_ptr& each : workers_.ranks) each->cause += "; " + because_;
      log::write(log::level::error, because_);
    }
    workers_.changed.notify();
    workers_.events_changed.notify();
    notify_waiting();
  }

  membership& workers_;
  admission& door_;
  std::function<void()> given_up_;
  std::shared_ptr<child_process> child_;
  std::optional<exit_status> exited_;
  bool watched_ = false;  // until the launcher has ended and all its output is read
  std::chrono::nanoseconds output_bound_ = std::chrono::seconds(30);
  std::string because_;
  int times_ = 0;                // that it was started again
  bool starting_again_ = false;  // the coroutine that does it
  std::vector<std::function<void()>> waiting_;
};
using launching = basic_launching<void>;

}  // namespace cohort::cluster
