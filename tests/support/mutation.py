# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""Breaks one rule of a state machine at a time and shows that its checker notices: what
tests/protocol/mutants.py and tests/graph/mutants.py have in common.
"""
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass
class checker:
    """What a checker is made of: tests/<layer>/jobs.cpp, what it includes, and layers."""
    layer: str
    layers: tuple
    headers: tuple
    files: tuple

    def copied(self, folder):
        """Where a file of a patch is in a new copy of all of it."""
        include = folder / "include/cohort"
        for layer in self.layers:
            shutil.copytree(ROOT / "include/cohort" / layer, include / layer)
        for header in self.headers:
            shutil.copy(ROOT / "include/cohort" / header, include)
        tests = folder / "tests" / self.layer
        tests.mkdir(parents=True)
        for file in self.files:
            shutil.copy(ROOT / "tests" / self.layer / file, tests)
        (folder / "tests/support").mkdir()
        shutil.copy(ROOT / "tests/support/checking.hpp", folder / "tests/support")
        return lambda file: tests / file[6:] if file.startswith("tests/") else include / file


def place(text, file, old):
    """Where in the text the one place is that a patch is for."""
    pattern = r"\s*".join(re.escape(word) for word in re.findall(r"\w+|[^\w\s]", old))
    found = list(re.finditer(pattern, text))
    if len(found) != 1:
        raise ValueError(f"{file}: {len(found)} places look like: {old}")
    return found[0].span()


def body_around(text, begin, end):
    """The braces of the function around, or None. Relies on the layout that clang-format gives: a
    function begins with the last line before that is indented as little as it is."""
    for indent in (0, 2, 4):
        heads = list(re.finditer(rf"^ {{{indent}}}[^\s}}/#].*$", text[:begin] + text[begin:].split(
            "\n", 1)[0], re.MULTILINE))
        if not heads:
            return None
        head = heads[-1]
        if re.match(r"\s*(class|struct|union|enum|namespace)\b", head.group()):
            continue
        first = re.compile(r"\{(?=.*\}$)|\{$", re.MULTILINE).search(text, head.start())
        if first is None or first.start() > begin:
            return None
        line_end = text.index("\n", first.start())
        if text[line_end - 1] == "}":  # all of it in one line
            last = line_end - 1
        else:
            closing = re.compile(rf"^ {{{indent}}}\}}", re.MULTILINE).search(text, line_end)
            last = closing.end() - 1 if closing else 0
        return (first.start(), last + 1) if last >= end else None
    return None


def joined(mutants, names, folder, of):
    """Makes a copy in which a function that mutants change has a body for each of them, and one of
    its own. Returns those that are in it; the others change more than bodies of functions."""
    path = of.copied(folder)
    bodies = {}  # of a file and a span: of each mutant its text
    inside = []
    for name in names:
        own = {}
        try:
            for file, old, new in mutants[name][1:]:
                text = path(file).read_text()
                span = body_around(text, *place(text, file, old))
                if span is None:
                    raise ValueError("not in a body")
                body = own.get((file, span), text[span[0]:span[1]])
                begin, end = place(body, file, old)
                own[file, span] = body[:begin] + new + body[end:]
        except ValueError:
            continue
        inside.append(name)
        for which, body in own.items():
            bodies.setdefault(which, []).append((len(inside), body))
    for (file, (begin, end)), variants in sorted(bodies.items(), reverse=True):
        text = path(file).read_text()
        chosen = "".join(f"if (cohort_mutant == {number}) {body} else "
                         for number, body in variants)
        path(file).write_text(text[:begin] + "{ " + chosen + text[begin:end] + " }" + text[end:])
    (folder / "mutant.hpp").write_text(
        "#pragma once\n#include <cstdlib>\n"
        'inline const int cohort_mutant = std::atoi(std::getenv("COHORT_MUTANT"));\n')
    return inside


def compiled(folder, of, args):
    """The program of the copy, and what the compiler says if it is none."""
    options = ["-include", str(folder / "mutant.hpp")] if (folder / "mutant.hpp").exists() else []
    build = subprocess.run(
        [args.compiler, "-std=c++20", "-O1", "-w", f"-I{folder}/include", f"-I{folder}/tests",
         *options, str(folder / "tests" / of.layer / "jobs.cpp"), "-o", str(folder / "jobs")],
        capture_output=True, text=True, check=False)
    errors = [line for line in build.stderr.splitlines() if "error" in line]
    problem = "".join(errors[:1]) or build.stderr if build.returncode else ""
    return folder / "jobs", problem


def tried(program, number, args):
    """(found, what was seen)"""
    try:
        result = subprocess.run([str(program), "random", "1", str(args.runs)], check=False,
                                capture_output=True, text=True, timeout=600,
                                env=dict(os.environ, COHORT_MUTANT=str(number)))
    except subprocess.TimeoutExpired:
        return False, "does not end"
    lines = result.stdout.strip().splitlines()
    last = lines[-1] if lines else ""
    if result.returncode < 0:
        return True, f"ends with signal {-result.returncode}"
    return last.startswith("VIOLATION"), last


def alone(mutants, name, of, args):
    """(found, what was seen), by a program of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        path = of.copied(folder)
        try:
            for file, old, new in mutants[name][1:]:
                text = path(file).read_text()
                begin, end = place(text, file, old)
                path(file).write_text(text[:begin] + new + text[end:])
        except ValueError as problem:
            return False, f"the patch does not fit: {problem}"
        program, problem = compiled(folder, of, args)
        return (False, "does not compile: " + problem) if problem else tried(program, 0, args)


def main(about, mutants, of):
    """The program of a checker: `about` is its description."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--runs", type=int, default=20000, help="random jobs for each")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--only", nargs="*", choices=sorted(mutants), metavar="NAME")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        print(*(f"{name:22} [{what[0]}]" for name, what in mutants.items()), sep="\n")
        return 0
    names = args.only or list(mutants)
    missed = 0
    with tempfile.TemporaryDirectory() as temporary, \
            concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        folder = pathlib.Path(temporary)
        inside = joined(mutants, names, folder, of)
        program, problem = compiled(folder, of, args)
        if problem:
            print(f"the mutants that share a program do not compile: {problem}")
            return 1
        found, seen = tried(program, 0, args)  # none of them
        if found:
            print(f"without any mutant: {seen}")
            return 1
        numbers = {name: number for number, name in enumerate(inside, 1)}
        run = lambda name: (tried(program, numbers[name], args) if name in numbers
                            else alone(mutants, name, of, args))
        for name, (found, seen) in zip(names, pool.map(run, names)):
            missed += not found
            print(f"{name:22} [{mutants[name][0]}] {'' if found else 'NOT FOUND: '}{seen}",
                  flush=True)
    print(f"{len(names) - missed} of {len(names)} mutants were found")
    return missed > 0

