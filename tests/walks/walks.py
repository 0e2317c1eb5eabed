#!/usr/bin/env python3
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""Runs the program of a walk and compares the functions that ran with docs/design/walks.md.

    walks.py [--update | --print | --all] PROGRAM...

PROGRAM is one of those that are built here, walk_NAME. The block of the page between
`<!-- walk: NAME -->` and `<!-- end -->` is generated: `--update` writes it anew, and without it a
difference is printed and the status is 1. `--print` shows the block only, `--all` all functions that
ran in place of those that count.

What counts is told on the page, "What is counted". This is how it is found in the record of a
program, which has several repetitions of the operation, and one stretch of time in which the engine
looks and nothing happens:

1. Functions outside include/cohort are left out, and what they call belongs to their caller.
2. All instances of a template, all overloads of one name in one file, and the lambdas in a function
   are that function.
3. A place is a function with all its callers. Places of the idle stretch are left out, but for those
   that lead to others.
4. Of the repetitions, whose lists may differ by a race, `--update` takes the list that occurs most
   often; a comparison wants to see the list of the page once, in up to three runs. It leaves the line
   "All that ran" out.
"""

import collections
import difflib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, "docs", "design", "walks.md")
RANKS = 2
SKIPPED = 77
# The ranks whose functions are told, and what stands above their lists.
PARTS = {"rendezvous": ((0, "the sender, rank 0"), (1, "the receiver, rank 1"))}
# A part ends with the message that it sends. When MPI is through with it is a race, and no part of it.
SENDS = "the sender, rank 0"
ASKS = "request_list::test_requests"  # the function that asks MPI
UPDATE = "cmake --build --preset dev --target update_walks"

# What calls one of these, or is one, hands on: calls outside, as they are written, and functions
# that put an operation into a list, by their names.
OUTSIDE = re.compile(r"\b((MPI_[A-Z]|nccl[A-Z]|cuda[A-Z]|cu[A-Z])\w*\(|"
                     r"asio::(post|defer|dispatch|async_initiate)\b)")
LISTS = re.compile(r"(?<!statistics)::(push|push_back|append|enqueue|add|insert|at_next_look)$")

# What is shown of a function, and its file below include/cohort.
Function = collections.namedtuple("Function", "name file")
BEGINS_AND_ENDS = "constructor, destructor or assignment"
SMALL = "small"
COUNTED = "counted"


# ---- names -----------------------------------------------------------------------------------

def namespaces():
    """All namespaces of the headers, as lists of names."""
    found = set()
    for folder, _, files in os.walk(os.path.join(ROOT, "include", "cohort")):
        for file in files:
            inside = []
            with open(os.path.join(folder, file), encoding="utf-8") as lines:
                for line in lines:
                    begin = re.match(r"\s*(?:inline )?namespace ([\w:]+) \{", line)
                    if begin:
                        inside.append(begin.group(1))
                        found.add("::".join(inside))
                        if line.rstrip().endswith("}"):
                            inside.pop()
                    elif re.match(r"\s*\}  // namespace \w", line) and inside:
                        inside.pop()
    return found


def without_groups(text):
    """The text without <…> and (…), but for the signs of operators."""
    text = re.sub(r"\boperator\(\)", "operator_call", text)
    text = re.sub(r"\boperator(<=>|<<=?|>>=?|<=?|>=?|->\*?)(?=[(<])", "operator_sign", text)
    result, depth = [], 0
    previous = ""
    for sign in text:
        if sign in "<(":
            depth += 1
        elif sign in ">)" and previous != "-":
            depth -= 1
        elif depth == 0:
            result.append(sign)
        previous = sign
    return "".join(result)


def readable(mangled):
    """The name of a function whose template arguments c++filt cannot read."""
    parts, at = [], re.match(r"_ZN?[KV]*", mangled).end()
    while size := re.match(r"\d+", mangled[at:]):
        at += size.end() + int(size[0])
        parts.append(mangled[at - int(size[0]):at])
    return "::".join(parts) + "()"


def name_of(demangled, spaces):
    """`cohort::a::b<int>::c(int) const` is `b::c` where cohort::a is a namespace."""
    enclosing = re.split(r"::\{lambda", demangled)[0]
    of_class = enclosing != demangled and "(" not in enclosing
    text = re.sub(r"\[[^]]*\]", "", enclosing)
    text = without_groups(text)
    text = re.sub(r"( const| volatile|&+|\.\w+)*$", "", text.strip())
    operator = re.search(r"operator .*$", text)  # a conversion
    if operator:
        head, tail = text[:operator.start()], "operator"
        text = head + tail
    text = text.split(" ")[-1]
    parts = text.split("::")
    for length in range(len(parts) - 1, 0, -1):
        if "::".join(parts[:length]) in spaces:
            parts = parts[length:]
            break
    name = "::".join(parts).replace("operator_call", "operator()")
    return name + "::(lambda)" if of_class else name


def begins_or_ends(name):
    parts = name.split("::")
    return parts[-1].startswith("~") or parts[-1] == "operator=" or parts[-2:-1] == parts[-1:]


# ---- sources ---------------------------------------------------------------------------------

def facts_of(path, line):
    """Of the function that begins in this line: whether it has one statement, and calls outside."""
    with open(path, encoding="utf-8") as file:
        text = "".join(file.readlines()[line - 1:line + 120])
    if re.match(r"\s*(template <.*> *)?(class|struct) ", text):
        return True, False  # g++ has made it
    text = re.sub(r'//[^\n]*|"(\\.|[^"\\])*"', " ", text)
    parentheses, braces, body = 0, 0, []
    for at, sign in enumerate(text):
        parentheses = max(0, parentheses + (sign == "(") - (sign == ")"))  # may begin inside
        if parentheses == 0 and sign == ";" and braces == 0:
            return True, False  # a declaration, or `= default`
        if parentheses == 0 and sign == "{":
            braces += 1
        if braces > 0:
            body.append(sign)
        if parentheses == 0 and sign == "}":
            braces -= 1
            if braces == 0:
                break
    body = "".join(body)
    loops = re.search(r"\b(for|while|do|try|co_await|co_return)\b", body)
    outside = bool(OUTSIDE.search(body))
    return body.count(";") <= 1 and not loops and not outside, outside


# ---- records ---------------------------------------------------------------------------------

def run(program):
    """Runs a program; the records of its ranks."""
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "walk")
        environment = dict(os.environ, COHORT_WALK=record)
        # The engine does not sleep, so there is one kind of lap.
        environment["COHORT_SPIN_US"] = "10000000"
        done = subprocess.run([os.path.join(ROOT, "scripts", "mpirun.sh"), str(RANKS), program],
                              env=environment, check=False)
        if done.returncode != 0:
            sys.exit(f"{program} has failed with status {done.returncode}")
        records = []
        for rank in range(RANKS):
            with open(f"{record}.{rank}", encoding="ascii") as file:
                records.append([(line[0], *line[2:].split()) for line in file])
        return records


def output_of(command, lines=()):
    return subprocess.run(command, input="".join(line + "\n" for line in lines), text=True,
                          stdout=subprocess.PIPE, check=True).stdout.splitlines()


class Program:
    """What the addresses in the records of one program are."""

    def __init__(self, program, records):
        addresses = sorted({at for record in records for kind, at, _ in record if kind in "<>^"})
        # llvm's is a hundred times faster.
        tools = ("llvm-addr2line", "llvm-addr2line-19", "llvm-addr2line-14", "addr2line")
        tool = next(each for each in tools if shutil.which(each))
        lines = output_of([tool, "-e", program], addresses)
        symbols, has_open_mpi = {}, False
        for symbol in output_of(["nm", program]):
            at, _, name = symbol.rpartition(" ")
            has_open_mpi |= name.startswith("ompi_mpi_comm_world")
            if at[:1].isalnum():
                symbols.setdefault(int(at.split(" ")[0], 16), name)
        if not has_open_mpi:
            print("skipped: the page tells of Open MPI", file=sys.stderr)
            sys.exit(SKIPPED)
        names = output_of(["c++filt"], [symbols.get(int(at, 16), "?") for at in addresses])
        names = [readable(one) if one.startswith("_Z") else one for one in names]
        spaces = namespaces()
        self.functions = {}  # of addresses; None: not of the library
        self.outside = set()  # functions that call MPI, CUDA, NCCL or Asio's executors
        self.simple = {}  # of functions: whether all that ran of that name have one statement
        for at, name, place in zip(addresses, names, lines):
            path, _, line = place.split(" ")[0].rpartition(":")
            file = os.path.normpath(path).partition("include/cohort/")[2]
            if not file:
                self.functions[at] = None
                continue
            one = Function(name_of(name, spaces), file)
            self.functions[at] = one
            simple, outside = facts_of(os.path.join(ROOT, "include", "cohort", file), int(line))
            simple = simple or "{lambda" in name and not outside
            self.simple[one] = self.simple.get(one, True) and simple
            if outside:
                self.outside.add(one)


class Place:
    """A function with all its callers."""

    def __init__(self, function=None, caller=None):
        self.function = function
        self.caller = caller
        self.called = {}

    def calls(self, function):
        """The place of what is called here; itself where that is not of the library, or the same."""
        if function is None or function == self.function:
            return self
        if function not in self.called:
            self.called[function] = Place(function, self)
        return self.called[function]


def depth_of_loop(record):
    """How many functions are on the stack that have called the loop, as cohort::run has."""
    least = depth = None
    for kind, _, _ in record:
        if kind in "wi":
            depth = 0
        elif depth is not None and kind in "^<>":
            depth += -1 if kind == ">" else 1
            if kind == ">":
                least = depth if least is None else min(least, depth)
    return least or 0


def stretches(program, record, top):
    """Pairs of the mark of each stretch and its places, in the order of their first calls."""
    found, inside, stacks, of_user = [], None, {}, {}
    outside, begun = depth_of_loop(record), 0
    for kind, at, thread in record:
        if kind in "wie":
            if inside is not None and stacks.get(thread):
                found[-1][2].add(stacks[thread][-1][1])
            inside, stacks, of_user, begun = (None if kind == "e" else {}), {}, {}, 0
            if inside is not None:
                found.append((kind, inside, set()))
            continue
        if inside is None:
            continue
        # What runs on the thread, outermost first. The part of the user who has been called by it
        # begins with a stack of its own.
        stack = stacks.setdefault(thread, [])
        if kind == ">":
            if stack and stack[-1][0] == at:
                stack.pop()
                if len(stack) < of_user.get(thread, 0):
                    of_user[thread] = -1
            continue
        caller = stack[-1][1] if stack else top
        if kind == "^":
            begun += 1
            if begun <= outside:
                continue
            of_user[thread] = len(stack) + 1
        elif len(stack) == of_user.get(thread, 0):
            caller = top
        place = caller.calls(program.functions[at])
        stack.append((at, place))
        if kind == "<" and place is not top:
            inside.setdefault(place)
    return found


def with_callers(places, top):
    found = set()
    for place in places:
        while place is not top and place not in found:
            found.add(place)
            place = place.caller
    return found


def told(visited, wanted, top):
    """The wanted places as a tuple of (depth, function), as this repetition has come to them."""
    called = {}
    for place in visited:
        while place is not top and place in wanted:
            called.setdefault(place.caller, {}).setdefault(place)
            place = place.caller
    result = []

    def tell(place, depth):
        for one in called.get(place, ()):
            result.append((depth, one.function))
            tell(one, depth + 1)
    tell(top, 0)
    return tuple(result)


def without_tests(calls):
    """The calls without those in which MPI is asked what has ended."""
    result, deeper = [], None
    for depth, one in calls:
        if deeper is not None and depth > deeper:
            continue
        deeper = depth if one.name == ASKS else None
        if deeper is None:
            result.append((depth, one))
    return tuple(result)


def repetitions(program, record):
    """For each repetition: what hands on, and all that ran."""
    top = Place()
    found = stretches(program, record, top)
    idle = {place for mark, places, _ in found if mark == "i" for place in places}
    lists = []
    for mark, visited, last in found:
        if mark != "w":
            continue
        everything = with_callers([place for place in visited if place not in idle], top)
        ends = {place for place in everything if place.function in program.outside or
                place not in idle and LISTS.search(place.function.name)}
        lists.append((told(visited, with_callers(ends | last, top), top),
                      told(visited, everything, top)))
    return lists


# ---- what is shown ---------------------------------------------------------------------------

def kinds_of(program, calls):
    """The kind of each function; small is who has one statement and calls nothing that is counted."""
    kinds, callees, chain = {}, collections.defaultdict(set), []
    for depth, one in calls:
        del chain[depth:]
        if chain:
            callees[chain[-1]].add(one)
        chain.append(one)
        kinds[one] = (BEGINS_AND_ENDS if begins_or_ends(one.name) else
                      SMALL if program.simple[one] else COUNTED)

    def reaches_counted(one, seen):
        if one in seen:
            return False
        seen.add(one)
        return any(kinds[each] == COUNTED or reaches_counted(each, seen) for each in callees[one])

    changed = True
    while changed:
        changed = False
        for one, kind in kinds.items():
            if kind == SMALL and reaches_counted(one, set()):
                kinds[one] = COUNTED
                changed = True
    return kinds


def shown(kinds, calls):
    """The lines of a list: each function where it is called first."""
    lines, seen, chain = [], set(), []
    for depth, one in calls:
        del chain[depth:]
        new = kinds[one] == COUNTED and one not in seen
        if new:
            seen.add(one)
            lines.append((f"{'  ' * sum(chain)}{one.name}", one.file))
        chain.append(new)
    return lines


def number_of(functions):
    files = {one.file for one in functions}
    return f"{len(functions)} functions in {len(files)} files"


def blocks_of(program_file, everything):
    """The name of a walk, and its block for each way in which its parts have run, frequent ones first."""
    name = os.path.basename(program_file).removeprefix("walk_")
    records = run(program_file)
    program = Program(program_file, records)
    if all(one.name != ASKS for one in program.simple):
        sys.exit(f"{ASKS} has not run: does it have another name?")
    parts = []
    for rank, title in PARTS.get(name, ((0, ""),)):
        lists = repetitions(program, records[rank])
        if title == SENDS:
            lists = [(without_tests(path), without_tests(ran)) for path, ran in lists]
        ran = collections.Counter(ran for _, ran in lists).most_common(1)[0][0]
        paths = collections.Counter(path for path, _ in lists).most_common()
        parts.append([(title, path, ran) for path, _ in paths])
    return name, [block_of(program, ways, everything) for ways in itertools.product(*parts)]


def block_of(program, parts, everything):
    kinds, hand_on, lines = {}, set(), []
    for title, path, ran in parts:
        here = kinds_of(program, ran + path)
        for one, kind in here.items():
            if kinds.get(one) != COUNTED:
                kinds[one] = kind
        hand_on.update(one for _, one in path)
        if title:
            lines.append(("\n" if lines else "") + title)
        rows = shown(here, ran if everything else path)
        width = max(len(row) for row, _ in rows) + 2
        lines += [f"{row:{width}}{file}" for row, file in rows]
    of_kind = collections.Counter(kinds.values())
    counted = {one for one, kind in kinds.items() if kind == COUNTED}
    return "\n".join([
        "```text", *lines, "```", "", f"**{number_of(hand_on & counted)}.**",
        f"All that ran: {number_of(counted)}, and besides {of_kind[SMALL]} small ones and "
        f"{of_kind[BEGINS_AND_ENDS]} constructors, destructors and assignments."])


def is_same(one, other):
    """But for the figures of all that ran, in which races show."""
    return one.partition("\nAll that ran")[0] == other.partition("\nAll that ran")[0]


def main():
    options = {one for one in sys.argv[1:] if one.startswith("--")}
    programs = [one for one in sys.argv[1:] if not one.startswith("--")]
    if not programs or options - {"--update", "--print", "--all"}:
        sys.exit(__doc__)
    status = 0
    for each in programs:
        name, blocks = blocks_of(each, "--all" in options)
        if options & {"--print", "--all"}:
            print(blocks[0])
            continue
        with open(PAGE, encoding="utf-8") as file:
            page = file.read()
        before, begin, rest = page.partition(f"<!-- walk: {name} -->\n")
        old, end, after = rest.partition("\n<!-- end -->")
        if not begin or not end:
            sys.exit(f"docs/design/walks.md has no block for the walk '{name}'")
        if "--update" in options:
            with open(PAGE, "w", encoding="utf-8") as file:
                file.write(before + begin + blocks[0] + end + after)
            continue
        for _ in range(2):  # a busy machine may have made the same race of all repetitions
            if any(is_same(old, one) for one in blocks):
                break
            blocks += blocks_of(each, False)[1]
        if any(is_same(old, one) for one in blocks):
            if not is_same(old, blocks[0]):
                print(f"the list of the walk '{name}' is what some repetitions have run, not most")
            continue
        status = 1
        print("\n".join(difflib.unified_diff(old.split("\n"), blocks[0].split("\n"),
                                             "docs/design/walks.md", "what has run", lineterm="")))
        print(f"The walk '{name}' has changed. See whether the sentences around its list still hold, "
              f"and write the list with\n    {UPDATE}")
    sys.exit(status)


main()
