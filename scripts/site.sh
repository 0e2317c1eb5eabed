#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# site.sh [FOLDER]: makes the documentation a site in FOLDER, build/site if none is given: the pages
# in the order of docs/site/layout.xml, a page for each public header, search, and llms.txt. Fails
# if a link or a reference leads nowhere. Open FOLDER/index.html to read it; no server is needed.
#
# It needs doxygen, doxygen-awesome-css and python3 (packages of Debian 12 and 13), and no network.
# DOXYGEN_AWESOME_CSS is where the style sheets are, if not where the package has them.
set -euo pipefail
site=$(realpath -m "${1:-$(dirname "$0")/../build/site}")
cd "$(dirname "$0")/.."
css=${DOXYGEN_AWESOME_CSS:-/usr/share/doxygen-awesome-css}
stop() { echo "site.sh: $*" >&2; exit 1; }
command -v doxygen >/dev/null || stop "there is no doxygen; install doxygen"
command -v python3 >/dev/null || stop "there is no python3; install python3"
[ -e "$css/doxygen-awesome.css" ] ||
  stop "there is no $css/doxygen-awesome.css; install doxygen-awesome-css"

if [ -n "$(ls -A "$site" 2>/dev/null)" ]; then
  [ -e "$site/llms.txt" ] || stop "$site is not empty, and is no site of an earlier run"
  rm -rf "$site"
fi
mkdir -p "$site"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 docs/site/pages.py "$work/pages" "$site"

# The top of each layer is for users, and of its rooms the verbs of the coordinator and the arenas of
# NCCL; docs/design/layers.md has the rooms.
{
  cat docs/site/Doxyfile
  echo "INPUT = $work/pages include/cohort" include/cohort/*/ include/cohort/coordinator/verbs \
    include/cohort/nccl/extra/*arena.hpp
  echo "STRIP_FROM_PATH = include $work"
  echo "USE_MDFILE_AS_MAINPAGE = $work/pages/index.md"
  echo "OUTPUT_DIRECTORY = \"$site\""
  echo "HTML_EXTRA_STYLESHEET = $css/doxygen-awesome.css $css/doxygen-awesome-sidebar-only.css \\"
  echo "  docs/site/site.css"
} >"$work/Doxyfile"
doxygen "$work/Doxyfile" >"$work/output" 2>&1 || { cat "$work/output"; stop "doxygen fails"; }
rm -f "$site/concepts.html"  # a list of all, also of those without a comment, which have no page

# Doxygen 1.9 says the first for each specialisation of a template of std or asio.
sed "s|$PWD/||; s|$work/||" "$work/output" |
  { grep 'warning:' || true; } | { grep -v 'Internal inconsistency' || true; } | sort -u
if grep -qE 'unable to resolve reference|link request .* could not be resolved' "$work/output"; then
  stop "a comment or a page refers to what is not there"
fi
python3 docs/site/links.py "$site"
