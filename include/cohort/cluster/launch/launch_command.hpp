// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a launch runs: from options to arguments and environment, for the launchers known.

#include <cohort/cluster/launch_options.hpp>
#include <cohort/core/error.hpp>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Whose launcher it is, as far as its options differ.
enum class launcher_kind {
  open_mpi_4,  ///< orterun: Open MPI up to 4.1
  open_mpi_5,  ///< prterun: Open MPI from 5.0
  mpich,       ///< hydra: MPICH and MVAPICH
  slurm,       ///< srun
  unknown,     ///< is told the number of ranks with -n, and nothing else
};

/// A process to start.
struct launch_command {
  launch_command() {}  // for g++ 12, see launch_options

  std::vector<std::string> argv;         ///< the first is looked up in PATH; empty: nothing to run
  std::vector<std::string> environment;  ///< "NAME=value": all of it
  std::string directory;                 ///< empty: where this process runs
};

/// From what `<command> --version` prints.
[[nodiscard]] inline launcher_kind launcher_kind_of(std::string_view text) noexcept {
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (has("PRRTE") || has("prterun")) return launcher_kind::open_mpi_5;
  for (const std::string_view name : {"(Open MPI) ", "(OpenRTE) "}) {
    const auto at = text.find(name);
    if (at == std::string_view::npos) continue;
    int major = 0;
    const std::string_view version = text.substr(at + name.size());
    std::from_chars(version.data(), version.data() + version.size(), major);
    return major >= 5 ? launcher_kind::open_mpi_5 : launcher_kind::open_mpi_4;
  }
  if (has("HYDRA build details")) return launcher_kind::mpich;
  if (text.starts_with("slurm ")) return launcher_kind::slurm;
  return launcher_kind::unknown;
}

/// Whether only a running launcher sets this variable for its ranks. A launcher that inherited it
/// would take itself for a rank, or for a step inside that job. What users set stays, as do
/// OMPI_MCA_btl or OMPI_ALLOW_RUN_AS_ROOT.
template <class Any = void>
[[nodiscard]] bool set_by_launcher(std::string_view name) noexcept {
  static constexpr std::string_view names[] = {
      "OMPI_UNIVERSE_SIZE", "OMPI_APP_CTX_NUM_PROCS", "OMPI_ARGV", "OMPI_COMMAND",
      "OMPI_FILE_LOCATION", "OMPI_FIRST_RANKS", "OMPI_NUM_APP_CTX", "OMPI_MCA_ess", "OMPI_MCA_pmix",
      "OMPI_MCA_initial_wdir", "OMPI_MCA_mpi_oversubscribe", "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
      // From Open MPI 5.0.
      "OMPI_LIBDIR_LOC", "OMPI_MCA_PREFIXES", "OMPI_MCA_cpu_type", "OMPI_MCA_num_procs",
      "OMPI_TOOL_NAME", "OMPI_VERSION", "OMPI_WORLD_LOCAL_SIZE", "OMPI_WORLD_SIZE",
      "MPI_LOCALNRANKS", "MPI_LOCALRANKID",
      // Of a step or of a task of it; what describes the allocation stays, for srun needs it.
      "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID",
      "SLURM_LAUNCH_NODE_IPADDR", "SLURM_DISTRIBUTION"};
  static constexpr std::string_view prefixes[] = {
      "OMPI_COMM_",  "OMPI_MCA_ess_",  "OMPI_MCA_orte_", "OMPI_MCA_pmix_", "PMIX_",
      "PMI_",        "PMI2_",          "PRTE_",          "HYDI_",          "SLURM_STEP",
      "SLURM_SRUN_", "SLURM_CPU_BIND", "SLURM_PMI"};
  // Parameters and permissions that the user gives to PMIx and PRRTE, as OMPI_MCA_* to Open MPI.
  static constexpr std::string_view own[] = {"PMIX_MCA_", "PRTE_ALLOW_", "PRTE_MCA_"};
  static constexpr std::string_view not_own[] = {"PRTE_MCA_ess_", "PRTE_MCA_prte_",
                                                 "PRTE_MCA_pmix_"};
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  if (std::ranges::any_of(own, begins)) return std::ranges::any_of(not_own, begins);
  return std::ranges::find(names, name) != std::end(names) || std::ranges::any_of(prefixes, begins);
}

namespace detail {

[[nodiscard]] inline std::string_view name_in(std::string_view assignment) noexcept {
  return assignment.substr(0, assignment.find('='));
}

/// What a small file holds; empty if it cannot be read.
template <class Any = void>
[[nodiscard]] std::string read_start(const std::string& path) {
  std::string text(1024, '\0');
  std::FILE* const file = std::fopen(path.c_str(), "re");
  text.resize(file == nullptr ? 0 : std::fread(text.data(), 1, text.size(), file));
  if (file != nullptr) std::fclose(file);
  return text;
}

/// Open MPI 5 does not even tell its version without HOME, which a service may lack.
template <class Any = void>
void provide_home(std::vector<std::string>& environment) {
  const auto is_home = [](const std::string& one) { return name_in(one) == "HOME"; };
  if (std::ranges::none_of(environment, is_home)) environment.emplace_back("HOME=/nonexistent");
}

}  // namespace detail

/// `ours` ("NAME=value") without what set_by_launcher(), and with the changes.
template <class Any = void>
[[nodiscard]] std::vector<std::string> launch_environment(
    std::span<const std::string> ours, std::span<const launch_options::variable> changes) {
  std::vector<std::string> result;
  for (const std::string& one : ours) {
    if (!set_by_launcher(detail::name_in(one))) result.push_back(one);
  }
  for (const launch_options::variable& each : changes) {
    std::erase_if(result,
                  [&](const std::string& one) { return detail::name_in(one) == each.name; });
    if (each.set) result.push_back(each.name + "=" + each.value);
  }
  return result;
}

/// How many ranks the launcher would start without complaint, if that can be known: the slots of
/// `hosts`, else `here` where no batch system ("NAME=value" in `ours`) says otherwise.
template <class Any = void>
[[nodiscard]] std::optional<int> slots_of(const launch_options& options, int here,
                                          std::span<const std::string> ours) {
  if (!options.hosts().empty()) {
    int slots = 0;
    for (const std::string& host : options.hosts()) {
      // "name" is one slot, "name:4" are four; another colon belongs to something else.
      const auto colon = host.find(':');
      int count = 1;
      if (colon != std::string::npos) {
        const char* end = host.data() + host.size();
        const auto [stop, failed] = std::from_chars(host.data() + colon + 1, end, count);
        if (failed != std::errc{} || stop != end) return std::nullopt;
      }
      slots += count;
    }
    return slots;
  }
  for (const std::string& flag : options.flags()) {
    if (flag.find("host") != std::string::npos || flag.find("machinefile") != std::string::npos) {
      return std::nullopt;
    }
  }
  for (const std::string& one : ours) {
    for (const std::string_view batch : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE"}) {
      if (detail::name_in(one) == batch) return std::nullopt;
    }
  }
  return here;
}

/// The arguments between the launcher's name and the program. Throws errc::not_supported for hosts
/// with an unknown launcher: they can be given in its own words, by flags().
template <class Any = void>
[[nodiscard]] std::vector<std::string> launcher_arguments(launcher_kind kind,
                                                          const launch_options& options,
                                                          bool oversubscribed) {
  const bool open_mpi = kind == launcher_kind::open_mpi_4 || kind == launcher_kind::open_mpi_5;
  std::vector<std::string> result;
  const auto add = [&](auto... words) { (result.emplace_back(words), ...); };
  add("-n", std::to_string(options.ranks()));

  if (!options.hosts().empty()) {
    std::string hosts;
    for (const std::string& host : options.hosts()) hosts += (hosts.empty() ? "" : ",") + host;
    if (open_mpi) add("--host", hosts);
    if (kind == launcher_kind::mpich) add("-hosts", hosts);
    if (kind == launcher_kind::slurm) add("--nodelist", hosts);
    if (kind == launcher_kind::unknown) {
      throw error(errc::not_supported,
                  "launch_options: hosts with a launcher that is not known; say it by flags");
    }
  }
  if (oversubscribed) {
    // Not "--map-by :OVERSUBSCRIBE": Open MPI 5 takes one --map-by, and flags() may have it.
    if (open_mpi) add("--oversubscribe");
    if (kind == launcher_kind::slurm) add("--overcommit");
  }
  if (options.on_loss() == loss_policy::proceed) {
    if (open_mpi) add("--enable-recovery");
    if (kind == launcher_kind::mpich) add("-disable-auto-cleanup");
    if (kind == launcher_kind::slurm) add("--kill-on-bad-exit=0");
  }
  // By name only: values may be secret, and arguments are not. hydra brings the whole environment
  // to the ranks by itself, and srun unless a variable says otherwise.
  if (open_mpi) {
    std::vector<std::string> names;
    for (const auto& [name, value, set] : options.environment()) {
      std::erase(names, name);
      if (set) names.push_back(name);
    }
    for (const std::string& name : names) add("-x", name);
  }
  if (kind == launcher_kind::slurm) add("--export=ALL");
  result.insert(result.end(), options.flags().begin(), options.flags().end());
  return result;
}

/// The launcher and its first words: COHORT_MPIEXEC where it is set, else options.command().
template <class Any = void>
[[nodiscard]] std::vector<std::string> launcher_words(const launch_options& options) {
  const char* text = std::getenv("COHORT_MPIEXEC");
  std::vector<std::string> words;
  std::string_view rest = text == nullptr ? std::string_view() : std::string_view(text);
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (!word.empty()) words.emplace_back(word);
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  }
  return words.empty() ? options.command() : words;
}

/// The environment of this process.
template <class Any = void>
[[nodiscard]] std::vector<std::string> current_environment() {
  std::vector<std::string> result;
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) result.emplace_back(*one);
  return result;
}

/// The cores that this process may use, which is what Open MPI counts as slots.
template <class Any = void>
[[nodiscard]] int usable_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return usable_cpus();
  std::vector<std::string> cores;  // each told by the list of its hardware threads
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    std::string core = detail::read_start("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                                          "/topology/thread_siblings_list");
    if (core.empty()) return usable_cpus();
    if (std::ranges::find(cores, core) == cores.end()) cores.push_back(std::move(core));
  }
  return cores.empty() ? usable_cpus() : static_cast<int>(cores.size());
}

/// The program that runs now.
[[nodiscard]] inline std::string this_program() {
  std::string path(4096, '\0');
  const auto size = ::readlink("/proc/self/exe", path.data(), path.size());
  if (size <= 0 || static_cast<std::size_t>(size) == path.size()) {
    throw error(errc::invalid_argument, "launch_options: program: /proc/self/exe cannot be read");
  }
  path.resize(static_cast<std::size_t>(size));
  return path;
}

/// The whole command. Pure: `here` are the slots of this machine. Open MPI 5, which does not start
/// without HOME, gets one that does not exist where there is none.
template <class Any = void>
[[nodiscard]] launch_command make_launch_command(const launch_options& options, launcher_kind kind,
                                                 int here, std::span<const std::string> ours) {
  validate(options);
  launch_command result;
  result.environment = launch_environment(ours, options.environment());
  result.directory = options.directory();
  if (kind == launcher_kind::open_mpi_5) detail::provide_home(result.environment);
  if (options.ranks() == 0) return result;

  bool oversubscribed = options.oversubscribe() == oversubscription::always;
  // srun takes what it needs from the allocation, and knows best what that has.
  if (options.oversubscribe() == oversubscription::automatic && kind != launcher_kind::slurm) {
    const auto slots = slots_of(options, here, ours);
    oversubscribed = slots && options.ranks() > *slots;
  }
  result.argv = launcher_words(options);
  for (std::string& word : launcher_arguments(kind, options, oversubscribed)) {
    result.argv.push_back(std::move(word));
  }
  result.argv.push_back(options.program().empty() ? this_program() : options.program());
  result.argv.insert(result.argv.end(), options.arguments().begin(), options.arguments().end());
  return result;
}

/// The same for this process and this machine.
template <class Any = void>
[[nodiscard]] launch_command make_launch_command(const launch_options& options,
                                                 launcher_kind kind) {
  return make_launch_command(options, kind, usable_cores(), current_environment());
}

}  // namespace cohort::cluster
