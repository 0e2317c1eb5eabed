#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# mpirun.sh N PROGRAM ARGUMENTS...: starts N ranks on this machine, whichever MPI is installed.
#
# Open MPI refuses to run as root, and to start more ranks than there are cores, unless it is told
# that this is meant; other launchers do not know these options. The launcher is $MPIEXEC, else
# mpiexec. This is the one place that knows; ctest and scripts/quickstart.sh use it.
ranks=$1
shift
launcher=${MPIEXEC:-mpiexec}
export HOME="${HOME:-/nonexistent}"  # Open MPI 5 does not start without the variable

options=
case $("$launcher" --version 2>&1) in
  *"Open MPI"* | *OpenRTE* | *PRTE* | *prte*)
    # Two jobs at once would both be bound to the first cores.
    options="--bind-to none"
    cores=$(nproc)
    if command -v lscpu >/dev/null 2>&1; then
      physical=$(lscpu -p=CORE,SOCKET 2>/dev/null | grep -v '^#' | sort -u | wc -l)
      [ "$physical" -gt 0 ] && [ "$physical" -lt "$cores" ] && cores=$physical
    fi
    [ "$ranks" -gt "$cores" ] && options="$options --oversubscribe"
    if [ "$(id -u)" -eq 0 ]; then
      export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
      export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
    ;;
esac
# shellcheck disable=SC2086  # the options are words
exec "$launcher" $options -n "$ranks" "$@"
