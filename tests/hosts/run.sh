#!/bin/bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# run.sh PROGRAM JOB: makes two simulated hosts (hosts.sh) and runs the program with the job's name
# on the head, or, if the name begins with "ranks-", two ranks of it on each host. Ends with the
# program's status; with 77 where hosts cannot be made. The hosts end with this script, also if it
# is killed.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
COHORT_HOSTS=$(mktemp -d)  # hosts.sh removes it
export COHORT_HOSTS COHORT_HOSTS_SCRIPT=$here/hosts.sh
trap '"$here/hosts.sh" down' EXIT
trap 'exit 143' TERM INT HUP

"$here/hosts.sh" up 2 $$
case $2 in
  ranks-*) "$here/hosts.sh" run 4 "$@" ;;
  *) "$here/hosts.sh" on head "$@" ;;
esac
