#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_labels.sh: each rule that a comment or a page cites by a page and a label, "protocol W4", stands
# on that page of docs/design, and no comment of the layers that have such rules, and no other page,
# cites a label alone.
set -euo pipefail
cd "$(dirname "$0")/.."
label='[A-Z][0-9]'
pages='protocol|rendezvous|graph'
status=0

while IFS=: read -r file line text; do
  page=${text%% *}
  while read -r one; do
    grep -qF -- "- **$one**" "docs/design/$page.md" && continue
    echo "$file:$line: docs/design/$page.md has no rule $one" >&2
    status=1
  done < <(grep -oE "\b$label\b" <<<"${text#* }")
done < <(grep -rnoE "\b($pages) $label(, $label)*\b" include tests docs --include='*.[hi]pp' --include='*.cpp' \
  --include='*.md')

# A letter and a digit in a comment that no page stands before.
layers=(include/cohort/{protocol,coordinator,graph} tests/{protocol,coordinator,graph})
for layer in "${layers[@]}"; do
  [ -d "$layer" ] && continue
  echo "there is no $layer" >&2
  status=1
done
if { grep -rnE '//' "${layers[@]}" --include='*.[hi]pp' --include='*.cpp' || true; } |
  sed -E "s/\b($pages) $label((,| and) $label)*\b//g" |
  grep -E "//.*(^|[^A-Za-z0-9_\"'<.-])$label([^A-Za-z0-9_\"'>+-]|\$)" >&2; then
  echo "which page has these rules?" >&2
  status=1
fi
# The same on a page: the pages with the rules cite their own by the label alone.
if grep -rnE "\b$label\b" docs --include='*.md' | grep -vE "^docs/design/($pages)\.md:" |
  sed -E "s/\b($pages) $label((,| and) $label)*\b//g" |
  grep -E "[^A-Za-z0-9_\"'<.-]$label([^A-Za-z0-9_\"'>+-]|\$)" >&2; then
  echo "which page has these rules?" >&2
  status=1
fi
[ "$status" -ne 0 ] || echo "every rule that is cited stands on its page"
exit $status
