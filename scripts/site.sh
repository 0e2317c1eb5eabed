#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# site.sh [FOLDER]: makes the documentation a site in FOLDER, build/site if none is given: the pages
# in the order of docs/site/layout.xml, a page for each public header, search, and llms.txt. Fails if
# Doxygen warns, or if a link leads nowhere. Open FOLDER/index.html; nothing has to serve it.
#
# It needs doxygen, doxygen-awesome-css (packages of Debian 12 and 13) and python3, and no network.
# DOXYGEN_AWESOME_CSS is where the style sheets are, if not where the package has them.
set -euo pipefail
cd "$(dirname "$0")/.."
site=${1:-build/site}
css=${DOXYGEN_AWESOME_CSS:-/usr/share/doxygen-awesome-css}
for tool in doxygen python3 awk; do
  command -v "$tool" >/dev/null || { echo "site.sh: there is no $tool; install doxygen and python3" >&2; exit 1; }
done
if [ ! -e "$css/doxygen-awesome.css" ]; then
  echo "site.sh: $css has no doxygen-awesome.css; install doxygen-awesome-css" >&2
  exit 1
fi

rm -rf "$site"
mkdir -p "$site"
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
python3 docs/site/pages.py "$pages/pages" "$site"

# The top of each layer is for users, and of its rooms the verbs of the coordinator: see
# docs/design/layers.md.
{
  cat docs/site/Doxyfile
  echo "INPUT = $pages/pages include/cohort" include/cohort/*/ include/cohort/coordinator/verbs
  echo "USE_MDFILE_AS_MAINPAGE = $pages/pages/index.md"
  echo "OUTPUT_DIRECTORY = $site"
  echo "HTML_EXTRA_STYLESHEET = $css/doxygen-awesome.css $css/doxygen-awesome-sidebar-only.css docs/site/site.css"
} >"$pages/Doxyfile"
doxygen "$pages/Doxyfile" 2>&1 | tee "$pages/warnings"
rm -f "$site/concepts.html"  # it lists those without a comment, which have no page
python3 docs/site/links.py "$site"
