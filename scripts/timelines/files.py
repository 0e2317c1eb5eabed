# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""Reads the files of timelines, which may be cut off or not be any. For scripts/timeline_merge."""
import decimal
import itertools
import json
import os
import stat

PHASES = ("negotiate", "queue", "pack", "data", "unpack")
STEPS = ("device pack", "device reduce", "device unpack")  # meanwhile, in the time of the device
USES = ("reads", "takes", "after")  # how a task depends on another
KEYS = {"name", "cat", "ph", "ts", "dur", "pid", "tid", "s", "args"}
LONGEST_LINE = 1 << 22  # a task with 65536 dependencies
MOST_NANOSECONDS = 1 << 62


class Refused(Exception):
    """An input that is not what it should be; the text names it."""


def whole_number(where, value, most, least=0):
    if type(value) is not int or not least <= value < most:
        raise ValueError(where)
    return value


def nanoseconds(value):
    """A time in microseconds, which the writer has made a little larger than it is."""
    if type(value) not in (int, decimal.Decimal) or not 0 <= value < MOST_NANOSECONDS // 1000:
        raise ValueError("a time")
    return int(value * 1000)


def microseconds(value):
    """As the writer of the files does it: viewers multiply by 1000 and cut."""
    whole, rest = divmod(value, 1000)
    return f"{whole}.{rest:03}2" if rest else str(whole)


def no_constant(name):
    raise ValueError(name)


# With exact numbers, and without NaN.
strict = json.JSONDecoder(parse_float=decimal.Decimal, parse_constant=no_constant)
compact = json.JSONEncoder(separators=(",", ":"))


class Timeline:
    """The file of one rank: its head, and its events when they are asked for."""

    def __init__(self, path, allow_cut):
        self.path, self.allow_cut = path, allow_cut
        self.last_line = None  # with an event; known after the first reading
        self.cut = False
        with self.opened() as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise self.refused("is not a regular file, and is read twice")
            line = self.line_of(file)
        try:
            head = strict.decode(line.decode().rstrip() + "]}")["otherData"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self.refused("is not a timeline that cohort has written") from None
        if isinstance(head, dict) and "merged_from" in head:
            raise self.refused("is merged already")
        try:
            if head["cohort_timeline"] != 1:
                raise self.refused(f"has format {head['cohort_timeline']!r}; this program knows 1")
            self.rank = whole_number("rank", head["rank"], 1 << 31)
            self.size = whole_number("size", head["size"], 1 << 31, 1)
            self.host = str(head["host"])
            self.clock = str(head["boot"]) or self.host  # ranks with the same one share it
            self.graph = head.get("graph")  # the scope, in a file with the tasks of one
            if not isinstance(self.graph, (str, type(None))):
                raise ValueError("graph")
            self.steady, self.system = (
                whole_number(key, int(head[key]), MOST_NANOSECONDS)
                for key in ("steady_ns", "system_ns"))
        except (ValueError, KeyError, TypeError):
            raise self.refused("is not a timeline that cohort has written") from None

    def refused(self, what):
        return Refused(f"{self.path}: {what}")

    def opened(self):
        try:
            return open(self.path, "rb")
        except OSError as problem:
            raise self.refused(problem.strerror) from None

    def line_of(self, file):
        try:
            return file.readline(LONGEST_LINE)
        except OSError as problem:
            raise self.refused(problem.strerror) from None

    def events(self):
        """(number of the line, event), checked as far as this program relies on it."""
        if self.last_line is not None:  # the file may have grown since
            for number, event in self.read():
                if event is None or number > self.last_line:
                    break
                yield number, event
            return
        self.last_line, self.cut = 1, True
        for number, event in self.read():
            if event is None:
                self.cut = False
                break
            yield number, event
            self.last_line = number
        if self.cut and not self.allow_cut:
            raise self.refused(f"is cut off after line {self.last_line}"
                               " (--cut takes what is there)")

    def read(self):
        with self.opened() as file:
            self.line_of(file)
            for number in itertools.count(2):
                line = self.line_of(file)
                if not line.endswith(b"\n"):
                    if len(line) == LONGEST_LINE:
                        raise self.refused(f"line {number} is too long")
                    return
                if line == b"]}\n":
                    while more := self.line_of(file):
                        if more.strip():
                            raise self.refused(f"something follows its end at line {number}")
                    yield number, None
                    return
                if line.strip() in (b"", b","):  # between the pages that the timeline writes
                    continue
                try:
                    yield number, self.checked(
                        strict.decode(line.decode().rstrip().removesuffix(",")))
                except (ValueError, KeyError, TypeError, RecursionError,
                        decimal.DecimalException):
                    raise self.refused(
                        f"line {number} is not an event of a cohort timeline") from None

    def checked(self, event):
        """The event, with times in nanoseconds."""
        kind = event["ph"]
        if kind not in ("X", "i", "M") or not KEYS.issuperset(event) or event["pid"] != self.rank:
            raise ValueError("kind")
        if not isinstance(event["args"], dict) or not all(
                isinstance(event.get(key, ""), str) for key in ("name", "cat", "s")):
            raise ValueError("name")
        whole_number("tid", event["tid"], 1 << 53)
        if kind != "M":
            event["ts"] = nanoseconds(event["ts"])
        if kind == "X":
            event["dur"] = nanoseconds(event["dur"])
            if event["cat"] not in (PHASES + STEPS if self.graph is None else ("task",)):
                raise ValueError("cat")
        args = event["args"]
        if event.get("cat") in ("task", "source"):
            whole_number("window", args["window"], 1 << 32)
            if not isinstance(args["key"], str):
                raise ValueError("key")
            for use in USES:
                if not isinstance(args.get(use, ""), str):
                    raise ValueError(use)
        elif kind == "X":
            whole_number("set", args["set"], 1 << 32)
            whole_number("log_count", args["log_count"], 1 << 64)
            whole_number("tensors", args.get("tensors", 1), 1 << 32)
        for value in args.values():
            if not isinstance(value, (str, int)):
                raise ValueError("args")
        return event


class Budget:
    """How many events may be looked at; operations inside a fused one count as well."""

    def __init__(self, most):
        self.most = self.left = most

    def take(self, number, file):
        self.left -= number
        if self.left < 0:
            raise file.refused(f"more than {self.most} events in all (--limit sets another bound)")
