# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# What the scripts share: options, finding and installing what is missing, configuring, building.
# To be sourced by bash, from anywhere; it changes to the root of the repository.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export HOME=${HOME:-/nonexistent}  # Open MPI 5 does not start without the variable

np=2                     # ranks, --np
may_install=yes          # --no-install
mpi=${COHORT_MPI:-}      # openmpi or mpich, --mpi; empty: whatever mpicc is
cmake_arguments=()       # -D..., handed to CMake

say() { printf '\n== %s\n' "$*"; }
die() {
  printf '\n%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# parse_options USAGE "$@"
parse_options() {
  local usage=$1
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --np) np=${2:-}; shift ;;
      --np=*) np=${1#*=} ;;
      --no-install) may_install=no ;;
      --mpi) mpi=${2:-}; shift ;;
      --mpi=*) mpi=${1#*=} ;;
      --skip) [ -n "${skip+set}" ] || die "unknown option: $1"; skip=${2:-}; shift ;;
      -D?*) cmake_arguments+=("$1") ;;
      -h | --help) printf '%s\n' "$usage"; exit 0 ;;
      *) printf '%s\n' "$usage" >&2; die "unknown option: $1" ;;
    esac
    [ $# -gt 0 ] && shift
  done
  [[ $np =~ ^[1-9][0-9]*$ ]] || die "--np takes a number of ranks, not '$np'"
  [[ $mpi =~ ^(|openmpi|mpich)$ ]] || die "--mpi takes openmpi or mpich, not '$mpi'"
}

# shellcheck disable=SC2034  # used by the scripts
common_options="\
  --np N         number of ranks
  --no-install   install nothing; say what is missing and stop
  --mpi NAME     openmpi or mpich, where both are installed (default: whatever mpicc is)
  -DNAME=VALUE   handed to CMake
Compilers are taken from CC and CXX if these are set."

# --- what is there ------------------------------------------------------------------------------

# compiles CODE: whether the chosen C++ compiler accepts it.
compiles() {
  [ -n "$cxx" ] && printf '%s\n' "$1" | "$cxx" -std=c++20 -fsyntax-only -x c++ - >/dev/null 2>&1
}

find_compiler() {
  local candidate
  for candidate in ${CXX:-c++ g++ clang++}; do
    cxx=$candidate
    have "$cxx" && compiles '
      #if defined(__clang__) ? __clang_major__ < 16 : __GNUC__ < 12
      #error "too old"
      #endif
      #include <coroutine>
      std::coroutine_handle<> handle;' && return
  done
  cxx=
}

# Sets mpicc and mpiexec, or leaves them empty. Where two MPIs are installed side by side, Debian
# adds the name to the command: mpicc.mpich.
find_mpi() {
  local suffix
  mpicc='' mpiexec=''
  for suffix in ${mpi:+".$mpi"} "" ${mpi:-.openmpi .mpich}; do
    if ! have "mpicc$suffix" || ! have "mpiexec$suffix"; then continue; fi
    if [ -z "$suffix" ] && [ -n "$mpi" ] && ! is_mpi "$mpi"; then continue; fi
    mpicc=$(command -v "mpicc$suffix")
    mpiexec=$(command -v "mpiexec$suffix")
    return
  done
}

# is_mpi NAME: whether the plain mpiexec is that of NAME.
is_mpi() {
  case $(mpiexec --version 2>&1) in
    *HYDRA* | *MPICH*) [ "$1" = mpich ] ;;
    *) [ "$1" = openmpi ] ;;
  esac
}

# Fills missing (in words) and packages (Debian's names). PART is tests or examples.
find_missing() {
  local part=$1 version
  missing=() packages=()
  lack() { missing+=("$1"); shift; packages+=("$@"); }

  find_compiler
  [ -n "$cxx" ] || lack "a C++20 compiler (g++ 12 or clang 16, or newer)" g++
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p' || true)
  at_least "$version" 3.25 || lack "CMake 3.25 or newer${version:+ (found $version)}" cmake
  have ninja || have make || lack "Ninja or make" ninja-build
  find_mpi
  if [ -z "$mpicc" ]; then
    if [ "$mpi" = mpich ]; then
      lack "MPICH (mpicc and mpiexec)" libmpich-dev mpich
    else
      lack "MPI (mpicc and mpiexec of Open MPI or MPICH)" libopenmpi-dev openmpi-bin
    fi
  fi
  if [[ "${cmake_arguments[*]-}" != *-DAsio_INCLUDE_DIR* ]]; then
    has_header asio/version.hpp "ASIO_VERSION >= 102201" ||
      lack "standalone Asio 1.22.1 or newer (headers)" libasio-dev
  fi
  has_header CLI/CLI.hpp || lack "CLI11 (headers)" libcli11-dev
  if [ "$part" = tests ]; then
    has_header catch2/catch.hpp || has_header catch2/catch_test_macros.hpp ||
      lack "Catch2 2.13 or 3" catch2
  fi
}

# has_header HEADER [CONDITION]: it can be included, and then the condition holds.
has_header() {
  if [ -z "$cxx" ]; then
    [ -e "/usr/include/$1" ]  # the compiler is still to be installed
  else
    printf '#include <%s>\n#if !(%s)\n#error\n#endif\n' "$1" "${2:-1}" |
      "$cxx" -std=c++20 -E -x c++ - >/dev/null 2>&1
  fi
}

# at_least VERSION LIMIT
at_least() {
  [ -n "$1" ] && [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# --- installing it ------------------------------------------------------------------------------

# provide PART: makes sure that all is there for the part (tests or examples), or says what is not.
provide() {
  find_missing "$1"
  if [ ${#missing[@]} -gt 0 ]; then
    say "missing on this machine"
    printf '  %s\n' "${missing[@]}"
    if [ "$may_install" = no ]; then
      explain_install
      die "stopped, because --no-install was given"
    fi
    distribution=$(. /etc/os-release 2>/dev/null && echo "${ID:-} ${VERSION_ID:-}") || true
    case $distribution in
      "debian 12" | "debian 13") ;;
      "ubuntu 24.04") say "Ubuntu is installed like Debian; this branch is untested" ;;
      *) explain_install; die "this system is not Debian 12 or 13: install these by hand" ;;
    esac
    apt_install "${packages[@]}"
    find_missing "$1"
    [ ${#missing[@]} -eq 0 ] || die "still missing after the installation: ${missing[*]}"
  fi
  say "using $("$cxx" --version | head -n 1), $(cmake --version | head -n 1), $mpicc, $mpiexec"
}

# apt_install PACKAGE...: as root or with sudo; nothing happens if all of them are there.
apt_install() {
  local -a as_root=()
  dpkg -s "$@" >/dev/null 2>&1 && return
  if [ "$(id -u)" -ne 0 ]; then
    have sudo || { explain_install; die "installing needs root, and there is no sudo"; }
    as_root=(sudo)
    [ -t 0 ] || as_root+=(-n)  # nobody is there to type a password
  fi
  say "installing $*"
  "${as_root[@]}" apt-get -qq update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 \
    install -y --no-install-recommends "$@" >/dev/null
}

explain_install() {
  cat <<TEXT

How to install all of it (only Debian 12 and 13 are tested):
  Debian 12 and 13, Ubuntu 24.04
    apt-get install g++ cmake ninja-build libopenmpi-dev openmpi-bin libasio-dev libcli11-dev catch2
    (for MPICH: libmpich-dev mpich in place of libopenmpi-dev openmpi-bin)
  Fedora
    dnf install gcc-c++ cmake ninja-build openmpi-devel asio-devel cli11-devel catch-devel
    module load mpi/openmpi-x86_64
  Arch
    pacman -S gcc cmake ninja openmpi asio cli11 catch2
  conda-forge (no root needed)
    conda create -n cohort -c conda-forge cxx-compiler cmake ninja openmpi-mpicc asio cli11 catch2
  A cluster with modules
    load g++ 12 or newer, CMake 3.25 or newer and an MPI; Asio and CLI11 are folders of headers:
    unpack them, and give -DAsio_INCLUDE_DIR=... or add the folders to CPATH
TEXT
}

# --- building -----------------------------------------------------------------------------------

# As many jobs as there are cores, with 2.5 GB of memory for each: coroutines are hungry.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 2500000) }' /proc/meminfo 2>/dev/null)
  memory=${memory:-$cores}
  [ "$memory" -ge 1 ] || memory=1
  echo $((memory < cores ? memory : cores))
}

# How many ranks run at once. Most tests wait for something most of the time; on two cores two jobs of
# three ranks run side by side.
test_jobs() { echo $((3 * $(nproc))); }

# configure DIRECTORY CMAKE_ARGUMENTS...: with the tools that were found. A folder that was
# configured with other tools, or for another copy of the repository, is begun anew.
configure() {
  local directory=$1 cc signature
  shift
  cc=${CC:-$(sed -E 's/clang\+\+/clang/; s/g\+\+/gcc/; s/c\+\+/cc/' <<<"$cxx")}
  signature="$PWD $(command -v "$cxx") $("$cxx" -dumpfullversion -dumpversion) $mpicc $mpiexec
$("$mpicc" -show 2>/dev/null || true)"
  if [ "$(cat "$directory/tools" 2>/dev/null)" != "$signature" ]; then
    rm -rf "$directory"
    mkdir -p "$directory"
    printf '%s\n' "$signature" >"$directory/tools"
  fi

  local -a arguments=("-DCMAKE_CXX_COMPILER=$cxx" "-DCMAKE_C_COMPILER=$cc"
    "-DMPI_C_COMPILER=$mpicc" "-DCOHORT_MPIEXEC=$mpiexec")
  if [ ! -e "$directory/CMakeCache.txt" ] && have ninja; then arguments+=(-G Ninja); fi
  if have ccache; then
    [ -w "$HOME" ] || export CCACHE_DIR=$PWD/build/ccache
    export CCACHE_SLOPPINESS=pch_defines,time_macros  # what precompiled headers need
    arguments+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  say "configuring $directory"
  cmake -S . -B "$directory" "${arguments[@]}" "$@" ${cmake_arguments[@]+"${cmake_arguments[@]}"} \
    >"$directory/configure.log" 2>&1 || { cat "$directory/configure.log"; return 1; }
  grep -E '^-- (cohort:|Found (MPI_C|Asio))|[Ww]arning' "$directory/configure.log" || true
}

# build DIRECTORY [TARGET...]
build() {
  local directory=$1
  shift
  say "building $directory"
  cmake --build "$directory" -j "$(build_jobs)" ${1+--target "$@"}
}
