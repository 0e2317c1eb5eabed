// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file From options to a command that can be started: which launcher it is, and what that needs.

#include <cohort/cluster/launch/child_process.hpp>
#include <cohort/cluster/launch/launch_command.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/core/asio.hpp>

#include <chrono>
#include <string_view>

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

}  // namespace cohort::cluster
