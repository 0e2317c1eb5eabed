#!/usr/bin/env python3
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""pages.py FOLDER SITE: the Markdown pages as Doxygen is to read them, in FOLDER, and llms.txt and
the pages as they are in SITE.

The pages are written for GitHub. Doxygen 1.9 knows no anchors made of headings, so each heading gets
one, "tour-messages" on the page tour.md, and links lead to the pages of the site: to that of a
header, where one is meant. Another file that a page links is copied as text. What links a folder of
the repository loses its link.
"""

import pathlib
import re
import shutil
import sys
import xml.etree.ElementTree

here = pathlib.Path(__file__).parent
root = here.parent.parent
code = re.compile(r"(`+[^`]*`+)")
link = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def page_name(path):
    """docs/design/engine.md is the page design_engine."""
    if path == root / "README.md":
        return "index"
    if path.parent == root:
        return path.stem.lower()
    return "_".join(path.relative_to(root / "docs").with_suffix("").parts)


def anchor(heading, seen):
    """What GitHub makes of a heading."""
    name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
    seen[name] = seen.get(name, -1) + 1
    return f"{name}-{seen[name]}" if seen[name] else name


def target(page, url, pages, site, suffix):
    """Where a link of the page leads on the site, or nothing if that is not part of it."""
    if re.match(r"[a-z]+:", url):
        return url
    path, _, at = url.partition("#")
    to = (page.parent / path).resolve() if path else page
    if not to.exists():
        sys.exit(f"{page.relative_to(root)}: there is no {url}")
    if to in pages:
        name = page_name(to)
        return name + suffix + (f"#{name}-{at}" if at and suffix == ".html" else f"#{at}" if at else "")
    if to.suffix == ".hpp":
        name = "_".join(to.relative_to(root / "include/cohort").with_suffix("").parts)
        return "group__" + name.replace("_", "__") + ".html"
    if to.is_dir():
        return None
    copy = "_".join(to.relative_to(root).parts) + ".txt"
    shutil.copy(to, site / copy)
    return copy


def translate(page, pages, site, suffix):
    """The page with links to pages that end in suffix; for .html, as Doxygen is to read it."""
    name, seen, lines, fence = page_name(page), {}, [], None

    def follow(match):
        image, text, url = match.groups()
        to = target(page, url, pages, site, suffix)
        if image:
            return f"![{text}]({to})"
        return f"[{text}]({to})" if to else text

    # A link may begin on one line and end on the next, so a paragraph is looked at as a whole.
    paragraph = []

    def end_paragraph():
        if paragraph:
            lines.append(link.sub(follow, "\n".join(paragraph)))
            paragraph.clear()

    for line in page.read_text().split("\n"):
        if fence or line.startswith("```"):
            end_paragraph()
            lines.append(line)
            fence = None if fence and line.startswith(fence) else fence or "```"
        elif line.startswith("<!-- snippet"):  # for scripts/check_snippets.sh
            end_paragraph()
        elif suffix == ".html" and (heading := re.match(r"(#+) (.*)", line)):
            end_paragraph()
            at = f"{name}-{anchor(heading[2], seen)}"
            if name != "index":
                line += f" {{#{name if heading[1] == '#' else at}}}"
            elif heading[1] != "#":  # in the navigation the parts of the front page would be beside pages
                line = f'<h{len(heading[1])}>\\anchor {at} {heading[2]}</h{len(heading[1])}>'
            lines.append(line)
        elif not line:
            end_paragraph()
            lines.append(line)
        else:
            paragraph.append(line)
    end_paragraph()
    return "\n".join(lines)


def summary(page):
    """The title of a page and the first sentence below it."""
    text = re.sub(r"<!--.*?-->\n*", "", page.read_text())
    title, _, rest = text.partition("\n\n")
    first = " ".join(rest.lstrip().split("\n\n")[0].split())
    first = link.sub(lambda m: m[2], first)
    return title.lstrip("# "), re.split(r"(?<=[.]) (?=[A-Z`])", first)[0]


def main():
    folder, site = (pathlib.Path(argument) for argument in sys.argv[1:])
    layout = xml.etree.ElementTree.parse(here / "layout.xml").getroot().find("navindex")
    # In the order of the navigation: the title of a group, and its pages.
    by_name = {page_name(p): p for p in [root / "README.md", *root.glob("*.md"), *root.glob("docs/**/*.md")]}
    groups = [("Start", [])]
    for tab in layout.iter("tab"):
        if tab.get("type") == "usergroup":
            groups.append((tab.get("title"), []))
        elif (url := tab.get("url", "")).startswith("@ref "):
            groups[-1][1].append(by_name[url[5:]])
    pages = [by_name["index"]] + [page for _, group in groups for page in group]
    for page in by_name.values():
        if page not in pages:
            sys.exit(f"docs/site/layout.xml does not name {page.relative_to(root)}")

    folder.mkdir(parents=True)
    for page in pages:
        for into, suffix in (folder, ".html"), (site, ".md"):
            (into / f"{page_name(page)}.md").write_text(translate(page, pages, site, suffix))

    lines = ["# cohort", "", "> " + summary(root / "README.md")[1], ""]
    for title, group in groups:
        if group:
            lines += [f"## {title}", ""]
            for page in group:
                name, first = summary(page)
                lines.append(f"- [{name}]({page_name(page)}.md): {first}")
            lines.append("")
    (site / "llms.txt").write_text("\n".join(lines))


main()
