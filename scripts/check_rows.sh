#!/bin/sh
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_rows.sh: reads the table "row by row" of docs/design/coordinator.md. Every test case and
# benchmark that it names must exist; rows that name none are listed. Exits with 1 if one is missing.
cd "$(dirname "$0")/.." || exit 1
wrong=0
without=0
rows=0
while IFS='|' read -r _ row shown _; do
  row=$(printf '%s' "$row" | sed 's/^ *//; s/ *$//')
  shown=$(printf '%s' "$shown" | sed 's/^ *//; s/ *$//')
  rows=$((rows + 1))
  case $shown in
    none)
      echo "without a test: $row"
      without=$((without + 1))
      ;;
    *": "*)
      file=${shown%%: *}
      name=${shown#*: }
      if ! grep -F "\"$name\"" "$file" 2>/dev/null | grep -Eq '^([A-Z]+_)?TEST_CASE|^ +"'; then
        echo "$row: no test case \"$name\" in $file"
        wrong=1
      fi
      ;;
    *)
      if [ ! -e "$shown" ]; then
        echo "$row: $shown is not there"
        wrong=1
      fi
      ;;
  esac
done <<EOF
$(awk '/^## The comparison table/ {on = 1} on && /^\| / && !/^\| Row/ && !/^\|---/' docs/design/coordinator.md)
EOF
echo "$rows rows, $without without a test"
exit $wrong
