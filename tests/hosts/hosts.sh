#!/bin/bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# hosts.sh: simulates several hosts on this machine, for tests across nodes. There is a head, where
# launchers run, and hosts h1, h2, ..., where ranks run. Each has its own network (eth0, 10.77.0.N
# on one bridge; the head is 10.77.0.254), host name, boot id, process ids, System V IPC, /dev/shm
# and TMPDIR. Other files are shared, as over NFS. The machine's own interfaces, addresses and
# mounts stay as they are, and all is gone when one process, the head's first, ends.
#
#   hosts.sh up N [PROCESS]        makes the head and h1 ... hN, until that process has ended
#   hosts.sh run NP PROGRAM ...    mpiexec on the head, ranks in blocks over the hosts; with
#                                  MAP=node in turns
#   hosts.sh on HOST COMMAND ...   runs it on a host or on the head, here and in this environment
#   hosts.sh netem DELAY RATE      e.g. 50us 1gbit, on each cable in both directions; "-": none
#   hosts.sh loss PERMILLE         of the frames between hosts
#   hosts.sh cut HOST, heal HOST   takes its cable out, puts it back
#   hosts.sh kill HOST, boot HOST  ends all its processes at once, as a crash does; starts it again
#   hosts.sh down
#
# Needs iproute2, and root or user namespaces; where that is not, it says "skipped" and exits with
# 77. $MPIEXEC is the launcher, of Open MPI or MPICH; $COHORT_HOSTS the folder with the state.
set -euo pipefail
self=$(readlink -f "$0")
state=${COHORT_HOSTS:-${TMPDIR:-/tmp}/cohort-hosts-$(id -u)}  # the same for each command

skip() { echo "hosts.sh: skipped: $*" >&2; exit 77; }
die() { echo "hosts.sh: $*" >&2; exit 1; }

own=(-n -u -i -m -p)                              # the namespaces of a host
init='while :; do sleep infinity & wait; done'    # its first process: ends zombies, waits
[ -e "$state/user" ] && as_user=(-U --preserve-credentials) || as_user=()

# --- on the head, which sees all processes ------------------------------------------------------

# begin HOST: its first process, in namespaces of its own. Prints its id.
begin() {
  local parent child=''
  setsid unshare "${own[@]}" -f --kill-child --mount-proc bash -c "$init" </dev/null \
    >/dev/null 2>&1 &
  parent=$!
  for _ in $(seq 500); do
    read -r child _ <"/proc/$parent/task/$parent/children" || true
    # Before it runs bash it may not have its own /proc yet.
    [ -n "$child" ] && [ "$(cat "/proc/$child/comm")" = bash ] && break
    sleep 0.01
  done
  echo "$child" >"$state/$1"
}

# furnish NAME ADDRESS COMMAND...: the command runs things in the host.
furnish() {
  local name=$1 address=$2
  shift 2
  cat /proc/sys/kernel/random/uuid >"$state/boot-$name"
  "$@" sh -ec "hostname $name
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    mount -t tmpfs tmpfs '$state/tmp'
    mount --bind '$state/addresses' /etc/hosts
    mount --bind '$state/boot-$name' /proc/sys/kernel/random/boot_id
    ip link set lo up
    ip addr add $address/24 dev eth0
    ip link set eth0 up"
}

# boot HOST: the first time, or after a kill.
boot() {
  begin "$1"
  ip link add "$1" type veth peer name eth0 netns "$(cat "$state/$1")"
  ip link set "$1" master eth0 up
  furnish "$1" "10.77.0.${1#h}" nsenter -t "$(cat "$state/$1")" "${own[@]}" --
}

head_main() {
  local n=$1 i
  echo 127.0.0.1 localhost >"$state/addresses"
  echo 10.77.0.254 head >>"$state/addresses"
  ip link add eth0 type bridge
  for i in $(seq "$n"); do
    echo "10.77.0.$i h$i" >>"$state/addresses"
    boot "h$i"
  done
  furnish head 10.77.0.254 env --
  echo "$n" >"$state/count"
  eval "$init"
}

# What the launchers take for ssh: HOST COMMAND, with the bare environment of a new login.
agent() {
  while [[ ${1-} == -* ]]; do shift; done
  local host=$1 to
  shift
  cd /
  to=$(cat "$state/$host" 2>/dev/null) || die "no host $host"
  exec nsenter -t "$to" "${own[@]}" -- env -i HOME="$HOME" PATH="$PATH" USER=root SHELL=/bin/sh \
    TMPDIR="$state/tmp" sh -c "$*"
}

# --- from outside -------------------------------------------------------------------------------

# enter COMMAND...: on the head, here and in this environment, to which is added what makes the
# launchers of Open MPI 4 and 5 and of MPICH use the agent.
enter() {
  local first
  first=$(cat "$state/first" 2>/dev/null) || skip "no hosts are up"
  [ -e "/proc/$first" ] || die "the hosts are gone: hosts.sh down"
  export COHORT_HOSTS=$state HOME=${HOME:-/nonexistent} TMPDIR=$state/tmp
  export OMPI_MCA_plm_rsh_agent="$self agent" OMPI_MCA_plm_rsh_no_tree_spawn=1
  export PRTE_MCA_plm_ssh_agent="$self agent" PRTE_MCA_plm_ssh_no_tree_spawn=1
  export HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=$state/agent
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
  nsenter -t "$first" "${as_user[@]}" "${own[@]}" --wd="$PWD" -- "$@"
}

# on HOST COMMAND...
on() {
  local host=$1
  shift
  if [ "$host" = head ]; then
    enter "$@"
    return
  fi
  [ -e "$state/$host" ] || die "no host $host"
  enter nsenter -t "$(cat "$state/$host")" "${own[@]}" --wd="$PWD" -- "$@"
}

# guard PROCESS: takes the hosts down when it has ended, however that was.
guard() {
  while [ -e "/proc/$1" ]; do sleep 0.5; done
  down
}

up() {
  local parent first='' user=() owner=${2-}
  command -v ip >/dev/null || skip "needs ip, of iproute2"
  [ "$(id -u)" -eq 0 ] || user=(-U -r)
  unshare "${user[@]}" "${own[@]}" -f true 2>/dev/null || skip "namespaces are not allowed here"
  down
  mkdir -m 700 "$state" && mkdir "$state/tmp"
  [ ${#user[@]} -eq 0 ] || : >"$state/user"
  printf '#!/bin/sh\nexec "%s" agent "$@"\n' "$self" >"$state/agent"
  chmod +x "$state/agent"
  COHORT_HOSTS=$state setsid unshare "${user[@]}" "${own[@]}" -f --kill-child --mount-proc \
    "$self" head-main "$1" </dev/null >"$state/log" 2>&1 &
  parent=$!
  for _ in $(seq 500); do
    read -r first _ <"/proc/$parent/task/$parent/children" || true
    [ -z "$first" ] || echo "$first" >"$state/first"
    if [ -e "$state/count" ]; then
      if [ -n "$owner" ]; then
        COHORT_HOSTS=$state setsid "$self" guard "$owner" </dev/null >/dev/null 2>&1 &
      fi
      return
    fi
    [ -e "/proc/$parent" ] || break
    sleep 0.02
  done
  cat "$state/log" >&2
  down
  skip "the hosts cannot be made"
}

down() {
  local first
  first=$(cat "$state/first" 2>/dev/null) || first=
  # Only if it is the process that was started here: the number may be another's by now.
  if [ -n "$first" ] && tr '\0' ' ' <"/proc/$first/cmdline" | grep -q head-main; then
    kill -KILL "$first"
    while [ -e "/proc/$first" ]; do sleep 0.02; done
  fi 2>/dev/null
  rm -rf "$state"
}

run() {
  local np=$1 n per i hosts='' launcher=${MPIEXEC:-mpiexec}
  shift
  n=$(cat "$state/count" 2>/dev/null) || skip "no hosts are up"
  per=$(((np + n - 1) / n))
  for i in $(seq "$n"); do hosts+=${hosts:+,}h$i:$per; done
  case $("$launcher" --version 2>&1) in
    *HYDRA*)
      [ "${MAP:-slot}" = slot ] || hosts=${hosts//:$per/}
      enter "$launcher" -hosts "$hosts" -n "$np" "$@" ;;
    *) enter "$launcher" --host "$hosts" --bind-to none --map-by "${MAP:-slot}" -n "$np" "$@" ;;
  esac
}

netem() {
  local delay=${1--} rate=${2--} i cable add=''
  if [ "$delay" != - ]; then
    add="netem limit 100000 delay $delay"
    [ "$rate" = - ] || add+=" rate $rate"
  elif [ "$rate" != - ]; then
    add="tbf rate $rate burst 128kb latency 50ms"
  fi
  for i in $(seq "$(cat "$state/count")"); do
    for cable in "head h$i" "h$i eth0"; do
      on "${cable% *}" tc qdisc del dev "${cable#* }" root 2>/dev/null || true
      # shellcheck disable=SC2086  # words
      [ -z "$add" ] || on "${cable% *}" tc qdisc add dev "${cable#* }" root $add ||
        skip "this kernel lacks sch_${add%% *}"
    done
  done
}

# loss PERMILLE: of the frames that the bridge forwards; 0: none. Needs nft.
loss() {
  on head nft delete table bridge loss 2>/dev/null || true
  [ "$1" = 0 ] || on head nft "add table bridge loss; add chain bridge loss some {
    type filter hook forward priority 0; }
    add rule bridge loss some numgen random mod 1000 lt $1 drop"
}

command=${1-}
[ $# -gt 0 ] && shift
case $command in
  up | down | run | on | agent | netem | loss | guard) "$command" "$@" ;;
  head-main) head_main "$@" ;;
  cut) on head ip link set "$1" down ;;
  heal) on head ip link set "$1" up ;;
  kill) on head kill -KILL "$(cat "$state/$1")" ;;
  boot) on head "$self" boot-here "$1" ;;
  boot-here) boot "$1" ;;
  *) sed -n '5,/^set/{/^set/d;s/^# \{0,1\}//p}' "$self"; exit 2 ;;
esac
