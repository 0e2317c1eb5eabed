#!/usr/bin/env python3
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""pages.py FOLDER SITE: writes the Markdown pages as Doxygen is to read them to FOLDER, and to SITE
llms.txt and the pages that it lists, as Markdown.

The pages are written for GitHub. Doxygen 1.9 makes no anchors of headings, so each heading gets
one, "tour-messages" on the page tour.md, and links lead to the pages of the site: to that of a
header, where one is meant. Another file that a page links is copied, as text. A link to a folder of
the repository is none on the site.
"""

import pathlib
import re
import shutil
import sys
import xml.etree.ElementTree

here = pathlib.Path(__file__).parent
root = here.parent.parent
# A link, or code, in which nothing is one.
link = re.compile(r"`[^`]*`|(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
# Emphasis, which Doxygen does not see beside code or inside a word; or code, in which it takes a
# quote for the end unless there are two marks.
marked = re.compile(r"`[^`]*`|\*\*((?:`[^`]*`|[^*`])+)\*\*|(?<!\*)\*(\w+)\*(?!\*)")


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
        if at:
            at = f"#{name}-{at}" if suffix == ".html" else f"#{at}"
        return name + suffix + at
    if to.suffix == ".hpp":
        name = "_".join(to.relative_to(root / "include/cohort").with_suffix("").parts)
        return "group__" + name.replace("_", "__") + ".html"
    if to.is_dir():
        return None
    copy = to.name if to.suffix == ".svg" else "_".join(to.relative_to(root).parts) + ".txt"
    shutil.copy(to, site / copy)
    return copy


def mark(match):
    if match[1]:
        return f"<b>{marked.sub(mark, match[1])}</b>"
    if match[2]:
        return f"<em>{match[2]}</em>"
    return f"`{match[0]}`" if "'" in match[0] else match[0]


def translate(page, pages, site, suffix):
    """The page with links to pages that end in suffix; for .html, as Doxygen is to read it."""
    name, seen, lines, fence = page_name(page), {}, [], None
    all_lines = page.read_text().split("\n")
    # A page with many sections gets a table of contents, unless it begins with one.
    has_contents = sum(line.startswith("## ") for line in all_lines) > 3
    has_contents = has_contents and not any(line.startswith("- [") for line in all_lines[:20])

    def follow(match):
        image, text, url = match.groups()
        if url is None:
            return match[0]
        to = target(page, url, pages, site, suffix)
        if image:
            return f"![{text}]({to})"
        return f"[{text}]({to})" if to else text

    # A link may begin on one line and end on the next, so a paragraph is looked at as a whole.
    paragraph = []

    def end_paragraph():
        if paragraph:
            text = link.sub(follow, "\n".join(paragraph))
            if suffix == ".html":
                text = marked.sub(mark, text)
            lines.append(text)
            paragraph.clear()

    for line in all_lines:
        if fence or line.startswith("```"):
            end_paragraph()
            lines.append(line)
            fence = None if fence and line.startswith(fence) else fence or "```"
        elif line.startswith("<!-- snippet"):  # for scripts/check_snippets.sh
            end_paragraph()
        elif suffix == ".html" and (heading := re.match(r"(#+) (.*)", line)):
            end_paragraph()
            depth, text = len(heading[1]), heading[2]
            at = f"{name}-{anchor(text, seen)}"
            if name == "index" and depth > 1:  # the navigation would show its parts as pages
                line = f"<h{depth - 1}>\\anchor {at} {text}</h{depth - 1}>"
            elif name != "index":
                line += f" {{#{at if depth > 1 else name}}}"
                if depth == 1 and has_contents:
                    line += "\n\n[TOC]"
            lines.append(line)
        elif not line:
            end_paragraph()
            lines.append(line)
        else:
            paragraph.append(line)
    end_paragraph()
    return "\n".join(lines)


def first_sentences(text):
    """One sentence, or more where it is short."""
    text = link.sub(lambda match: match[2] or match[0], " ".join(text.split()))
    sentences = re.split(r"(?<=[.?]) (?=[A-Z`])", text)
    while len(sentences) > 1 and len(sentences[0]) < 80:
        sentences[:2] = [" ".join(sentences[:2])]
    return re.sub(":$", ".", sentences[0])


def entry(page):
    """A line of llms.txt: the title, the link, and what the page begins with."""
    title, *rest = re.sub(r"<!--.*?-->\n*", "", page.read_text()).strip().split("\n\n")
    first = next(text for text in rest if not text.startswith("#"))
    return f"- [{title.lstrip('# ')}]({page_name(page)}.md): {first_sentences(first)}"


def layer_entry(header):
    text = re.search(r"/// \\file((?: .*)?(?:\n/// .*)*)", header.read_text())[1]
    text = text.replace("\n///", " ")
    url = "group__" + header.stem.replace("_", "__") + ".html"
    return f"- [cohort/{header.name}]({url}): {first_sentences(text)}"


def main():
    folder, site = (pathlib.Path(argument) for argument in sys.argv[1:])
    layout = xml.etree.ElementTree.parse(here / "layout.xml").getroot().find("navindex")
    by_name = {page_name(one): one for one in [*root.glob("*.md"), *root.glob("docs/**/*.md")]}
    # In the order of the navigation: the title of a group, and its pages.
    groups = [("Start", [])]
    for tab in layout.iter("tab"):
        url = tab.get("url", "")
        page = by_name.get(url.removeprefix("@ref "))
        if url and not page:
            sys.exit(f"docs/site/layout.xml: there is no page {url}")
        if tab.get("type") == "usergroup" or page == by_name["reference"]:
            groups.append((tab.get("title"), []))
        if tab.get("type") == "user":
            groups[-1][1].append(page)
    pages = [by_name["index"]] + [page for _, group in groups for page in group]
    for page in by_name.values():
        if page not in pages:
            sys.exit(f"docs/site/layout.xml does not name {page.relative_to(root)}")

    folder.mkdir(parents=True)
    for page in pages:
        for into, suffix in (folder, ".html"), (site, ".md"):
            (into / f"{page_name(page)}.md").write_text(translate(page, pages, site, suffix))

    about = by_name["index"].read_text().split("\n\n")[1]
    lines = ["# cohort", "", "> " + first_sentences(about), ""]
    for title, group in groups:
        lines += [f"## {title}", "", *map(entry, group), ""]
        if title == "Reference":
            headers = sorted(root.glob("include/cohort/*.hpp"))
            lines[-1:] = [*(layer_entry(one) for one in headers if one.stem != "src"), ""]
    (site / "llms.txt").write_text("\n".join(lines))


main()
