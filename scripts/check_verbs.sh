#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# scripts/check_verbs.sh [ROOT]
#
# Every public header of the layers collectives and p2p that declares a verb must be in the list that
# the token matrix is generated from, tests/collectives/verbs.hpp, and every verb of the list must be
# run. A header that holds no verb is named here as an exception.
set -euo pipefail

root=${1:-$(cd "$(dirname "$0")/.." && pwd)}
list=$root/tests/collectives/verbs.hpp
no_verbs=(collectives/block_list.hpp collectives/src.hpp p2p/src.hpp)
wrong=0

complain() {
  echo "check_verbs: $*" >&2
  wrong=1
}

count=0
for path in "$root"/include/cohort/{collectives,p2p}/*.hpp; do
  header=${path#"$root/include/cohort/"}
  [[ " ${no_verbs[*]} " != *" $header "* ]] || continue
  count=$((count + 1))
  grep -q "header = \"$header\"" "$list" || complain "$header is in no verb of $list"
  # Each function that the header declares in namespace cohort, by its catch-all overload.
  while read -r verb; do
    grep -q "cohort::$verb[(<]" "$list" || complain "$header: no verb of the list calls $verb"
  done < <(sed -n 's/^explained \([a-z_]*\)(const communicator&, Arguments&&\.\.\.).*/\1/p' \
    "$path" | sort -u)
done

tuple=$(sed -n '/using all_verbs/,/;/p' "$list")
while read -r verb; do
  grep -q "verbs::$verb[,>]" <<<"$tuple" || complain "$verb is missing from all_verbs"
done < <(awk '/^struct/ { name = $2 } /auto operator\(\)/ { print name }' "$list" | sort -u)

[ $wrong -eq 0 ] || exit 1
echo "$count headers of verbs are in the token matrix"
