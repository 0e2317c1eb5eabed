// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// From options to the command line and the environment: pure functions.
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "cohort/cluster/launch/launch_command.hpp"
#include "cohort/cluster/launch_options.hpp"
#include "support/catch.hpp"

namespace {

using namespace cohort;
using namespace cohort::cluster;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using strings = std::vector<std::string>;

void set_mpiexec(const char* value) {
  if (value == nullptr) {
    ::unsetenv("COHORT_MPIEXEC");
  } else {
    ::setenv("COHORT_MPIEXEC", value, 1);
  }
}

bool invalid(const launch_options& options, const std::string& field) {
  try {
    validate(options);
  } catch (const error& failed) {
    return failed.code() == errc::invalid_argument &&
           std::string(failed.what()).find("launch_options: " + field) != std::string::npos;
  }
  return false;
}

}  // namespace

TEST_CASE("launchers are told apart by what they say of their version") {
  CHECK(launcher_kind_of("mpiexec (OpenRTE) 4.1.4\n\nReport bugs") == launcher_kind::open_mpi_4);
  CHECK(launcher_kind_of("mpirun (Open MPI) 4.1.6\n") == launcher_kind::open_mpi_4);
  CHECK(launcher_kind_of("mpirun (Open MPI) 5.0.3\n") == launcher_kind::open_mpi_5);
  CHECK(launcher_kind_of("mpirun (Open MPI) 10.0.0\n") == launcher_kind::open_mpi_5);
  CHECK(launcher_kind_of("prterun (PRRTE) 3.0.5\n") == launcher_kind::open_mpi_5);
  CHECK(launcher_kind_of("HYDRA build details:\n    Version: 4.0.2\n") == launcher_kind::mpich);
  CHECK(launcher_kind_of("slurm 22.05.8\n") == launcher_kind::slurm);
  CHECK(launcher_kind_of("Intel(R) MPI Library for Linux* OS") == launcher_kind::unknown);
  CHECK(launcher_kind_of("") == launcher_kind::unknown);
}

TEST_CASE("each launcher is told in its own words") {
  const auto plain = launch_options{}.ranks(4);
  CHECK(launcher_arguments(launcher_kind::open_mpi_4, plain, false) == strings{"-n", "4"});
  CHECK(launcher_arguments(launcher_kind::mpich, plain, true) == strings{"-n", "4"});
  CHECK(launcher_arguments(launcher_kind::unknown, plain, true) == strings{"-n", "4"});

  const auto all = launch_options{}
                       .ranks(3)
                       .hosts({"a", "b:2"})
                       .on_loss(loss_policy::proceed)
                       .environment("TOKEN", "secret")
                       .environment("GONE", "1")
                       .without_environment("GONE")
                       .environment("TOKEN", "newer")
                       .environment("SECOND", "")
                       .flags({"--bind-to", "none"});
  CHECK(launcher_arguments(launcher_kind::open_mpi_4, all, true) ==
        strings{"-n", "3", "--host", "a,b:2", "--oversubscribe", "--enable-recovery", "-x", "TOKEN",
                "-x", "SECOND", "--bind-to", "none"});
  CHECK(launcher_arguments(launcher_kind::open_mpi_5, all, true) ==
        launcher_arguments(launcher_kind::open_mpi_4, all, true));
  CHECK(launcher_arguments(launcher_kind::mpich, all, true) ==
        strings{"-n", "3", "-hosts", "a,b:2", "-disable-auto-cleanup", "--bind-to", "none"});
  CHECK(launcher_arguments(launcher_kind::slurm, all, true) ==
        strings{"-n", "3", "--nodelist", "a,b:2", "--overcommit", "--kill-on-bad-exit=0",
                "--export=ALL", "--bind-to", "none"});
  CHECK_THROWS_WITH(launcher_arguments(launcher_kind::unknown, all, true),
                    ContainsSubstring("hosts"));
}

TEST_CASE("slots are those of the hosts, or of this machine where no batch system knows better") {
  const strings nothing{"PATH=/bin"};
  CHECK(slots_of(launch_options{}, 6, nothing) == 6);
  CHECK(slots_of(launch_options{}.hosts({"a", "b:4"}), 6, nothing) == 5);
  CHECK_FALSE(slots_of(launch_options{}.hosts({"a", "b:many"}), 6, nothing));
  CHECK_FALSE(slots_of(launch_options{}.flags({"--hostfile", "x"}), 6, nothing));
  CHECK_FALSE(slots_of(launch_options{}, 6, strings{"SLURM_JOB_ID=7"}));
  CHECK_FALSE(slots_of(launch_options{}, 6, strings{"PBS_JOBID=7"}));
}

TEST_CASE("a command is the launcher, its arguments, the program and the program's arguments") {
  set_mpiexec(nullptr);
  const strings ours{"PATH=/bin", "PMIX_RANK=0"};
  auto options = launch_options{}.ranks(2).program("/opt/app").arguments({"-v", "x y"});
  options.directory("/tmp").environment("A", "b=c");
  auto command = make_launch_command(options, launcher_kind::open_mpi_4, 2, ours);
  CHECK(command.argv == strings{"mpiexec", "-n", "2", "-x", "A", "/opt/app", "-v", "x y"});
  CHECK(command.environment == strings{"PATH=/bin", "A=b=c"});
  CHECK(command.directory == "/tmp");

  SECTION("one rank more than slots is told, unless it is not wanted") {
    options.ranks(3);
    command = make_launch_command(options, launcher_kind::open_mpi_4, 2, ours);
    CHECK(command.argv[3] == "--oversubscribe");
    command = make_launch_command(options.oversubscribe(oversubscription::never),
                                  launcher_kind::open_mpi_4, 2, ours);
    CHECK(command.argv[3] == "-x");
    command = make_launch_command(options.ranks(1).oversubscribe(oversubscription::always),
                                  launcher_kind::open_mpi_5, 2, ours);
    CHECK(command.argv[3] == "--oversubscribe");
    options.oversubscribe(oversubscription::automatic).ranks(9);
    command = make_launch_command(options, launcher_kind::slurm, 2, ours);
    CHECK(command.argv == strings{"mpiexec", "-n", "9", "--export=ALL", "/opt/app", "-v", "x y"});
  }
  SECTION("Open MPI 5 has a home") {
    const strings& environment = command.environment;
    command = make_launch_command(options, launcher_kind::open_mpi_5, 2, ours);
    CHECK(environment == strings{"PATH=/bin", "A=b=c", "HOME=/nonexistent"});
    command = make_launch_command(options.environment("HOME", "/h"), launcher_kind::open_mpi_5, 2,
                                  strings{"HOME=/root"});
    CHECK(environment == strings{"A=b=c", "HOME=/h"});
  }
  SECTION("no ranks are no command") {
    CHECK(make_launch_command(options.ranks(0), launcher_kind::unknown, 2, ours).argv.empty());
  }
  SECTION("the program is this one unless another is named") {
    command = make_launch_command(launch_options{}.ranks(1), launcher_kind::mpich, 2, ours);
    CHECK_THAT(command.argv.back(), ContainsSubstring("cluster_launcher_test"));
    CHECK(command.argv.back() == this_program());
  }
  SECTION("a variable replaces the launcher, with words of its own") {
    set_mpiexec(" mpiexec.mpich  -iface lo ");
    command = make_launch_command(options, launcher_kind::mpich, 2, ours);
    CHECK(command.argv ==
          strings{"mpiexec.mpich", "-iface", "lo", "-n", "2", "/opt/app", "-v", "x y"});
    set_mpiexec("");
    CHECK(launcher_words(options.command({"srun", "--mpi=pmix"})) == strings{"srun", "--mpi=pmix"});
    set_mpiexec(nullptr);
  }
}

TEST_CASE("only what a running launcher sets is taken from the environment") {
  for (const char* name : {"OMPI_COMM_WORLD_RANK",
                           "OMPI_UNIVERSE_SIZE",
                           "OMPI_MCA_ess",
                           "OMPI_MCA_ess_base_jobid",
                           "OMPI_MCA_orte_hnp_uri",
                           "OMPI_MCA_pmix",
                           "OMPI_MCA_pmix_x",
                           "OMPI_MCA_num_procs",
                           "OMPI_WORLD_SIZE",
                           "OMPI_TOOL_NAME",
                           "OMPI_VERSION",
                           "PMIX_RANK",
                           "PMIX_NAMESPACE",
                           "PMI_RANK",
                           "PMI_FD",
                           "PRTE_LAUNCHED",
                           "PRTE_MCA_ess_base_jobid",
                           "HYDI_CONTROL_FD",
                           "MPI_LOCALRANKID",
                           "SLURM_STEP_ID",
                           "SLURM_STEPID",
                           "SLURM_STEP_NODELIST",
                           "SLURM_PROCID",
                           "SLURM_LOCALID",
                           "SLURM_CPU_BIND_LIST"}) {
    CAPTURE(name);
    CHECK(set_by_launcher(name));
  }
  for (const char* name :
       {"OMPI_MCA_btl", "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT", "PMIX_MCA_gds",
        "PRTE_MCA_rmaps_default_mapping_policy", "MPIR_CVAR_CH4_NETMOD", "SLURM_JOB_ID",
        "SLURM_NTASKS", "SLURM_JOB_NODELIST", "PATH", "LD_LIBRARY_PATH", "OMPI", ""}) {
    CAPTURE(name);
    CHECK_FALSE(set_by_launcher(name));
  }

  using change = launch_options::variable;
  const strings ours{"A=1", "PMI_RANK=3", "B=2", "AB=3", "EMPTY="};
  const std::vector<change> changes{
      {"A", "9", true}, {"B", "", false}, {"NEW", "x", true}, {"PMI_RANK", "5", true}};
  // What the user sets is set, whatever its name.
  CHECK(launch_environment(ours, changes) ==
        strings{"AB=3", "EMPTY=", "A=9", "NEW=x", "PMI_RANK=5"});
}

TEST_CASE("an option outside its range is named") {
  validate(launch_options{}.ranks(0).grace(0s));
  CHECK(invalid(launch_options{}.ranks(-1), "ranks"));
  CHECK(invalid(launch_options{}.command({}), "command"));
  CHECK(invalid(launch_options{}.command({""}), "command"));
  CHECK(invalid(launch_options{}.flags({std::string("a\0b", 3)}), "flags"));
  CHECK(invalid(launch_options{}.arguments({std::string("a\0b", 3)}), "arguments"));
  CHECK(invalid(launch_options{}.hosts({"a,b"}), "hosts"));
  CHECK(invalid(launch_options{}.hosts({"--x"}), "hosts"));
  CHECK(invalid(launch_options{}.hosts({""}), "hosts"));
  CHECK(invalid(launch_options{}.environment("", "x"), "environment"));
  CHECK(invalid(launch_options{}.environment("A=B", "x"), "environment"));
  CHECK(invalid(launch_options{}.timeout(0s), "timeout"));
  CHECK(invalid(launch_options{}.grace(-1s), "grace"));
  CHECK(invalid(launch_options{}.heartbeat(-1s), "heartbeat"));
  CHECK(invalid(launch_options{}.max_message(0), "max_message"));
  CHECK(invalid(launch_options{}.sink({}), "sink"));
  CHECK(invalid(launch_options{}.output_bound(0), "output_bound"));
  CHECK(invalid(launch_options{}.longest_line(0), "longest_line"));
}

TEST_CASE("the machine has at least one core, and not more cores than threads") {
  CHECK(usable_cores() >= 1);
  CHECK(usable_cores() <= usable_cpus());
  CHECK(launch_options{}.ranks() == usable_cpus());
}
