#!/usr/bin/env python3
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""links.py SITE: fails if a link, an image or a script of a page of SITE, or a link of its Markdown
files, leads to a file or to an anchor that is not there, or out of the site. The same for what its
search and its navigation offer. Links to other hosts are not followed."""

import html.parser
import pathlib
import re
import sys
import urllib.parse


class page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = {""}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append((self.getpos()[0], value))


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: page(path.read_text()) for path in site.rglob("*.html")}
    links = [(path, *link) for path, one in pages.items() for link in one.links]
    # Of a Markdown file the anchors are not looked at: those of the page that is made of it are.
    for path in [*site.glob("*.md"), site / "llms.txt"]:
        text = re.sub(r"^```.*?^```|`[^`]*`", "", path.read_text(), flags=re.M | re.S)
        for match in re.finditer(r"\]\(([^()\s]+)\)", text):
            links.append((path, text.count("\n", 0, match.start()) + 1, match[1].split("#")[0]))
    dead, inside = [], 0
    for path, line, link in links:
        url = urllib.parse.urlparse(link)
        if url.scheme in ("http", "https", "mailto", "javascript", "data"):
            continue
        inside += 1
        to = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
        if site not in to.parents or not to.is_file():
            dead.append(f"{path.name}:{line}: {link} is not there")
        elif to in pages and urllib.parse.unquote(url.fragment) not in pages[to].anchors:
            dead.append(f"{path.name}:{line}: {link} has no such anchor")
    for path in [*site.glob("search/*.js"), *site.glob("nav*.js")]:
        for match in re.finditer(r"""['"](?:\.\./)?([\w.-]+\.html)(?:#([\w:.-]+))?['"]""",
                                 path.read_text()):
            inside += 1
            to = site / match[1]
            if to not in pages:
                dead.append(f"{path.name}: {match[0]} is not there")
            elif match[2] and match[2] not in pages[to].anchors:
                dead.append(f"{path.name}: {match[0]} has no such anchor")
    print(*dead, sep="\n" if dead else "", file=sys.stderr)
    print(f"{inside} links within {len(pages)} pages, {len(dead)} of them dead")
    sys.exit(1 if dead or not inside else 0)


main()
