#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_fresh_machine.sh SUITE DIRECTORY [CHECK...]: runs the two commands on a bare system.
#
# SUITE is bookworm or trixie. DIRECTORY, outside the repository, gets a bare system (debootstrap)
# from the mirror that this machine uses, and a throw-away copy of it with the committed state of
# the repository. The checks, all but quickstart, test and openings if none is named:
#   root    quickstart.sh and test.sh as root, with an empty environment and no terminal
#   again   both once more: nothing is left to install
#   user    both as an ordinary user, with --no-install
#   quickstart, test   the one alone, as root, in the copy that is there
#   mpich   test.sh --mpi mpich as root, beside the Open MPI that is there
#   sudo    quickstart.sh as a user with sudo, in a fresh copy
#   openings  as root, what check_everything.sh has of that name, with this system's Open MPI
# Needs root, debootstrap and about 5 GB. It is not part of CI: it downloads 500 MB for each suite.
set -euo pipefail
suite=$1 directory=$2
shift 2
checks=("$@")
[ $# -gt 0 ] || checks=(root again user mpich sudo)
repository=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$directory"
base=$(cd "$directory" && pwd)/$suite-base
machine=${base%-base}-machine
# shellcheck disable=SC2016  # the format is apt's
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' |
  head -n 1)

if [ ! -e "$base/complete" ]; then
  rm -rf --one-file-system "$base"
  debootstrap --variant=minbase "$suite" "$base" "$mirror" >/dev/null
  touch "$base/complete"
fi

fresh_copy() {
  rm -rf --one-file-system "$machine"
  cp -a "$base" "$machine"
  for file in /etc/resolv.conf /etc/hosts; do cp "$file" "$machine$file"; done
  git clone --quiet --no-hardlinks "$repository" "$machine/srv/cohort"
}

# inside USER COMMAND...: in the copy's own view of the mounts, so that none outlives the command.
inside() {
  local user=$1
  shift
  # shellcheck disable=SC2016  # $1 and the rest are for the inner shells
  unshare --mount --pid --fork bash -c '
    set -e
    machine=$1 user=$2
    shift 2
    mount -t proc proc "$machine/proc"
    mount --rbind /dev "$machine/dev"
    exec chroot --userspec="$user" "$machine" env -i \
      PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      sh -c "cd /srv/cohort && exec \"\$@\"" sh "$@"' \
    bash "$machine" "$user" "$@" </dev/null
}

timed() {
  local started=$SECONDS
  printf '\n==== %s: %s\n' "$suite" "$*"
  "$@"
  printf '==== %s: %s: ok, %d s\n' "$suite" "$*" $((SECONDS - started))
}

both_as() {
  local user=$1
  shift
  timed inside "$user" scripts/quickstart.sh "$@"
  timed inside "$user" scripts/test.sh "$@"
}

add_user() {
  inside root:root sh -c 'id newcomer >/dev/null 2>&1 || useradd --create-home newcomer'
  inside root:root rm -rf build
  inside root:root chown -R newcomer: .
}

if [ ! -d "$machine" ] || [ "${checks[0]}" = root ]; then fresh_copy; fi
for check in "${checks[@]}"; do
  case $check in
    root) both_as root:root ;;
    again) both_as root:root --no-install ;;
    user)
      add_user
      both_as newcomer:newcomer --no-install
      inside root:root chown -R root: .
      ;;
    quickstart | test) timed inside root:root "scripts/$check.sh" ;;
    mpich) timed inside root:root scripts/test.sh --mpi mpich ;;
    openings) timed inside root:root scripts/check_everything.sh openings-openmpi ;;
    sudo)
      fresh_copy
      inside root:root sh -c 'apt-get -qq update && apt-get -qq install -y sudo >/dev/null'
      add_user
      echo 'newcomer ALL=(ALL) NOPASSWD: ALL' >"$machine/etc/sudoers.d/newcomer"
      timed inside newcomer:newcomer scripts/quickstart.sh
      ;;
    *) echo "unknown check: $check" >&2; exit 1 ;;
  esac
done
echo "$suite: ${checks[*]}: all ok"
