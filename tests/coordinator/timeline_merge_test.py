#!/usr/bin/env python3
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""Tests scripts/timeline_merge on inputs made by hand, and on what the timeline itself has written.

    timeline_merge_test.py [PROGRAM]

PROGRAM is the executable of timeline_test.cpp; without it that one test is skipped.
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/timeline_merge"
PROGRAM = None

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("timeline_merge", str(SCRIPT))
merge = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("timeline_merge", loader))
loader.exec_module(merge)

ROWS = {"negotiate": 100, "queue": 200, "pack": 300, "data": 400, "unpack": 500,
        "device pack": 600, "device reduce": 700, "device unpack": 800}


def time(nanoseconds):
    whole, rest = divmod(nanoseconds, 1000)
    return json.loads(f"{whole}.{rest:03}2") if rest else whole


def span(phase, name, begin, end, log_count, number=0, **args):
    """An event; begin and end in microseconds."""
    return {"name": name, "cat": phase, "ph": "X", "ts": time(round(begin * 1000)),
            "dur": time(round(end * 1000) - round(begin * 1000)), "pid": 0,
            "tid": 1000 + ROWS[phase],
            "args": {"set": number, "log_count": log_count, **args}}


def instant(name, when, **args):
    return {"name": name, "cat": "event", "ph": "i", "s": "t", "ts": when, "pid": 0, "tid": 1001,
            "args": args}


def trace(rank, size, events, steady=1_000_000, system=5_000_000_000, boot="one"):
    """The text of a rank's file, line by line as the timeline writes it."""
    head = {"otherData": {"cohort_timeline": 1, "rank": rank, "size": size, "host": "node",
                          "boot": boot, "steady_ns": str(steady), "system_ns": str(system)}}
    lines = [{"name": "process_name", "ph": "M", "pid": rank, "tid": 1001,
              "args": {"name": f"rank {rank}"}}]
    lines += [{**event, "pid": rank, "tid": event["tid"] + 1000 * rank} for event in events]
    text = json.dumps(head)[:-1] + ',"traceEvents":[\n'
    return text + ",\n".join(json.dumps(line) for line in lines) + "\n]}\n"


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.out = self.folder / "out.json"

    def file(self, name, text):
        path = self.folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    def run_inside(self, *arguments):
        """(exit status, stdout, stderr) of main() in this process, which is fast."""
        # main() sets how its standard output treats characters that do not fit.
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        err = io.StringIO()
        before = sys.argv
        sys.argv = ["timeline_merge", *map(str, arguments)]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    status = merge.main()
                except SystemExit as exit_status:
                    status = exit_status.code
        finally:
            sys.argv = before
        out.flush()
        return status, out.buffer.getvalue().decode(), err.getvalue()

    def merged(self, *arguments):
        """stdout, stderr and the events of a merge that must succeed."""
        status, out, err = self.run_inside(self.out, *arguments)
        self.assertEqual((status, err if status else ""), (0, ""))
        return out, err, json.loads(self.out.read_text())["traceEvents"]

    def times(self, events):
        """(rank, name, phase) -> begin in nanoseconds, as a viewer reads it."""
        return {(e["pid"], e["name"], e["cat"]): int(e["ts"] * 1000)
                for e in events if e["ph"] == "X"}

    def arrows(self, events):
        """{(rank and time where it begins, rank and time where it ends)}, checked to be whole."""
        tails = {e["id"]: (e["pid"], int(e["ts"] * 1000)) for e in events if e["ph"] == "s"}
        heads = {e["id"]: (e["pid"], int(e["ts"] * 1000)) for e in events if e["ph"] == "f"}
        self.assertEqual(tails.keys(), heads.keys())
        self.assertEqual(len(tails), sum(e["ph"] == "s" for e in events))
        self.assertEqual(len(heads), sum(e["ph"] == "f" for e in events))
        for before, e in zip(events, events[1:]):
            if e["ph"] in "sf":  # right behind the slice that it belongs to
                self.assertIn(before["ph"], "Xsf")
                self.assertEqual((before["tid"], before["ts"]), (e["tid"], e["ts"]))
        return sorted((tails[i], heads[i]) for i in tails)


class Figures(Case):
    def two_ranks(self):
        """Rank 1 starts recording 0.5 us later on the same clock."""
        zero = trace(0, 2, [
            span("negotiate", "a", 10, 50, 1, epoch=0),
            span("negotiate", "b", 20, 50, 2, epoch=0),
            span("negotiate", "c", 60.25, 81, 3, epoch=0),
            span("queue", "a", 50, 51, 1),
            span("queue", "b", 50, 51, 2),
            span("pack", "a", 51, 53, 1),
            span("pack", "b", 53, 54, 2),
            span("data", "all_reduce", 54, 70, 1, tensors=2, bytes=64, backend="mpi"),
            span("unpack", "a", 70, 71, 1),
            span("unpack", "b", 71, 72, 2),
            span("data", "c", 82, 90, 3),
        ])
        one = trace(1, 2, [
            span("negotiate", "a", 39.5, 49.5, 1, epoch=0),
            span("negotiate", "b", 9.5, 49.5, 2, epoch=0),
            span("negotiate", "c", 79.5, 80.5, 3, epoch=0),
            span("data", "all_reduce", 55.5, 69.5, 1, tensors=2, bytes=64, backend="mpi"),
            span("data", "c", 81.5, 89.5, 3),
        ], steady=1_000_500, system=5_000_000_321)
        return self.file("0.json", zero), self.file("1.json", one)

    def test_the_table_is_exact(self):
        # a: rank 1 is last, rank 0 waits 30 us; b: rank 0 is last, rank 1 waits 10; c: rank 1 is
        # last, rank 0 waits 19.75. Negotiation takes 40 + 30 + 20.75 and 10 + 40 + 1, in all
        # 141.75 of 194.75 us.
        out, err, _ = self.merged(*self.two_ranks())
        self.assertEqual(err, "")
        self.assertEqual(out, """\
2 ranks, 3 operations seen on two or more of them, 0.080 ms from the first event to the last

phase, all ranks together       ms    share  spans
negotiate                    0.142   72.8 %      6
  waiting for the last rank  0.060   30.7 %
  the rest                   0.082   42.1 %
queue                        0.002    1.0 %      2
pack                         0.003    1.5 %      2
data                         0.046   23.6 %      4
unpack                       0.002    1.0 %      2
all                          0.195  100.0 %     16

last to submit  operations   share  ms others waited
rank 1                   2  66.7 %             0.050
rank 0                   1  33.3 %             0.010

waited for most  operations     ms  last, mostly
a                         1  0.030  rank 1, 1 of 1
c                         1  0.020  rank 1, 1 of 1
b                         1  0.010  rank 0, 1 of 1

""")

    def test_times_are_put_on_one_clock_to_the_nanosecond(self):
        _, _, events = self.merged(*self.two_ranks())
        when = self.times(events)
        self.assertEqual(when[0, "c", "negotiate"], 60250)
        self.assertEqual(when[1, "c", "negotiate"], 80000)
        self.assertEqual(when[1, "all_reduce", "data"], 56000)
        self.assertEqual(min(when.values()), 10000)

    def test_arrows_lead_from_the_last_submission_to_the_data_of_the_others(self):
        _, _, events = self.merged(*self.two_ranks())
        self.assertEqual(self.arrows(events), [
            ((0, 20000), (1, 56000)),   # b, inside the fused operation
            ((1, 40000), (0, 54000)),   # a
            ((1, 80000), (0, 82000)),   # c
        ])
        _, _, events = self.merged("--no-arrows", *self.two_ranks())
        self.assertEqual(self.arrows(events), [])

    def test_nothing_of_the_inputs_is_lost(self):
        paths = self.two_ranks()
        _, _, events = self.merged(*paths)
        for path in paths:
            for event in json.loads(pathlib.Path(path).read_text())["traceEvents"]:
                event.pop("ts", None)
                event.pop("dur", None)
                self.assertTrue(any(event.items() <= one.items() for one in events), event)
        durations = [int(e["dur"] * 1000) for e in events if e["ph"] == "X"]
        self.assertEqual(sum(durations), 194_750)

    def test_the_order_of_the_files_does_not_matter(self):
        zero, one = self.two_ranks()
        first = self.merged(zero, one)
        self.assertEqual(self.merged(one, zero), first)

    def test_the_top_names_can_be_chosen(self):
        out, _, _ = self.merged("--top", "1", *self.two_ranks())
        self.assertIn("\na  ", out)
        self.assertNotIn("\nc  ", out)
        out, _, _ = self.merged("--top", "0", *self.two_ranks())
        self.assertNotIn("waited for most", out)


class Devices(Case):
    def test_what_devices_do_is_told_apart_from_what_the_hosts_do(self):
        zero = trace(0, 2, [
            span("negotiate", "a", 1, 2, 1, epoch=0),
            span("device pack", "all_reduce", 3, 5, 1, tensors=2, bytes=64),
            span("device reduce", "all_reduce", 5, 10, 1, tensors=2, bytes=64),
            span("data", "all_reduce", 2, 12, 1, tensors=2, bytes=64, backend="nccl"),
            span("device unpack", "all_reduce", 10, 11, 1, tensors=2, bytes=64),
        ])
        one = trace(1, 2, [
            span("negotiate", "a", 1.5, 2, 1, epoch=0),
            span("data", "all_reduce", 2, 12, 1, tensors=2, bytes=64, backend="nccl"),
            span("device reduce", "all_reduce", 4, 10, 1, tensors=2, bytes=64),
        ], steady=1_000_500)
        out, err, events = self.merged(self.file("0.json", zero), self.file("1.json", one))
        self.assertEqual(err, "")
        self.assertIn("""\
data                         0.020   93.0 %      2
unpack                       0.000    0.0 %      0
all                          0.022  100.0 %      4

step, all devices together     ms  spans  most on one
device pack                 0.002      1        0.002
device reduce               0.011      2        0.006
device unpack               0.001      1        0.001

""", out)
        # An arrow leads to the data operation of the host, not into a row of the device.
        self.assertEqual(self.arrows(events), [((1, 2000), (0, 2000))])
        when = self.times(events)
        self.assertEqual(when[1, "all_reduce", "device reduce"], 4500)

    def test_hosts_alone_have_no_table_of_devices(self):
        out, _, _ = self.merged(self.file("0.json", trace(0, 1, [span("data", "a", 1, 2, 1)])))
        self.assertNotIn("device", out)


class Operations(Case):
    def counts(self, *ranks):
        paths = [self.file(f"{n}.json", trace(n, len(ranks), events))
                 for n, events in enumerate(ranks)]
        out, err, events = self.merged(*paths)
        return out, err, self.arrows(events)

    def test_sets_do_not_mix(self):
        out, _, arrows = self.counts(
            [span("negotiate", "a", 1, 9, 1, number=0), span("data", "a", 9, 10, 1, number=0)],
            [span("negotiate", "a", 2, 9, 1, number=7), span("data", "a", 9, 10, 1, number=7)])
        self.assertIn("2 ranks, 0 operations", out)
        self.assertEqual(arrows, [])

    def test_what_was_not_elected_counts_only_as_time(self):
        out, _, arrows = self.counts([span("negotiate", "a", 1, 9, 0)],
                                     [span("negotiate", "a", 2, 9, 0)])
        self.assertIn("2 ranks, 0 operations", out)
        self.assertIn("negotiate                    0.015  100.0 %      2", out)
        self.assertEqual(arrows, [])

    def test_a_joined_rank_moves_data_without_having_submitted(self):
        _, _, arrows = self.counts(
            [span("negotiate", "a", 1, 9, 1), span("data", "a", 9, 10, 1)],
            [span("negotiate", "a", 2, 9, 1), span("data", "a", 9, 10, 1)],
            [span("data", "a", 11, 12, 1)])
        self.assertEqual(arrows, [((1, 2000), (0, 9000)), ((1, 2000), (2, 11000))])

    def test_of_several_last_ranks_the_lowest_is_named(self):
        out, _, _ = self.counts([span("negotiate", "a", 1, 9, 1)],
                                [span("negotiate", "a", 3, 9, 1)],
                                [span("negotiate", "a", 3, 9, 1)])
        self.assertIn("rank 1                   1  100.0 %             0.002\n", out)
        self.assertNotIn("rank 2", out)

    def test_an_operation_in_two_parts_starts_with_the_first(self):
        _, _, arrows = self.counts(
            [span("negotiate", "a", 1, 9, 1), span("data", "sizes", 9, 10, 1),
             span("data", "a", 10, 12, 1)],
            [span("negotiate", "a", 2, 9, 1), span("data", "a", 10, 12, 1),
             span("data", "sizes", 9, 10, 1)],
            [span("negotiate", "a", 0, 9, 1), span("data", "a", 9.5, 12, 1),
             span("data", "a", 9.5, 12, 1)])
        self.assertEqual(arrows, [((1, 2000), (0, 9000)), ((1, 2000), (2, 9500))])

    def test_operations_may_go_by_the_number_of_their_pack(self):
        out, err, arrows = self.counts(
            [span("negotiate", "a", 1, 9, 1), span("negotiate", "b", 4, 9, 1),
             span("data", "all_reduce", 9, 11, 1, tensors=2)],
            [span("negotiate", "a", 3, 9, 1), span("negotiate", "b", 2, 9, 1),
             span("data", "all_reduce", 10, 11, 1, tensors=2)])
        self.assertIn("2 ranks, 2 operations", out)
        self.assertEqual(err, "")
        self.assertEqual(arrows, [((0, 4000), (1, 10000)), ((1, 3000), (0, 9000))])

    def test_a_name_twice_under_one_number_is_told(self):
        _, err, _ = self.counts(
            [span("negotiate", "a", 1, 9, 1), span("negotiate", "a", 4, 9, 1)],
            [span("negotiate", "a", 2, 9, 1)])
        self.assertIn("rank 0 has 1 operations under numbers that are taken", err)

    def test_one_rank_alone_has_a_table_without_waiting(self):
        out, err, _ = self.counts([span("negotiate", "a", 1, 9, 1), span("data", "a", 9, 10, 1)])
        self.assertEqual(err, "")
        self.assertIn("1 rank, 0 operations", out)
        self.assertIn("waiting for the last rank  0.000", out)
        self.assertNotIn("last to submit", out)

    def test_files_without_events_merge(self):
        out, _, _ = self.counts([], [])
        self.assertIn("all                          0.000      -      0", out)

    def test_names_are_printed_safely(self):
        name = 'quote" \n\x1b[31m\u202e ' + "x" * 60
        out, _, _ = self.counts([span("negotiate", name, 1, 9, 1)],
                                [span("negotiate", name, 2, 9, 1)])
        self.assertIn('quote" ??[31m? ' + "x" * 22 + "...", out)

    def test_missing_ranks_and_lost_events_are_told(self):
        two = self.file("2.json", trace(2, 4, [instant("events lost", 5, lost=17)]))
        _, err, _ = self.merged(two)
        self.assertIn("no file of rank 0, 1, 3:", err)
        self.assertIn("rank 2 has lost 17 events", err)


class Clocks(Case):
    def machines(self, late):
        """Rank 1 is on another machine, whose clock is `late` nanoseconds behind. It submits 30 us
        after rank 0, and both see the election 10 us later."""
        zero = trace(0, 2, [span("negotiate", "a", 10, 50, 1), span("data", "a", 52, 60, 1)],
                     steady=777, system=9_000_000_000, boot="one")
        one = trace(1, 2, [span("negotiate", "a", 40, 50, 1), span("data", "a", 51, 60, 1)],
                    steady=123_456_789_000, system=9_000_000_000 - late, boot="two")
        return self.file("0.json", zero), self.file("1.json", one)

    def begins(self, events):
        when = self.times(events)
        return when[0, "a", "negotiate"], when[1, "a", "negotiate"]

    def test_machines_are_placed_by_their_system_clocks(self):
        _, err, events = self.merged(*self.machines(0))
        self.assertEqual(self.begins(events), (10000, 40000))
        self.assertEqual(err, "")
        _, _, events = self.merged(*self.machines(5000))
        self.assertEqual(self.begins(events), (15000, 40000))

    def test_causality_is_checked_and_corrected_on_demand(self):
        # 45 us behind: rank 1 seems to submit 5 us before rank 0, and to learn at 5 us of an
        # election that is not before 10.
        paths = self.machines(45_000)
        _, err, events = self.merged(*paths)
        self.assertIn("1 elections are seen before the last submission, by up to 0.005 ms", err)
        self.assertEqual(self.begins(events), (55000, 40000))
        _, err, events = self.merged("--causal", *paths)
        self.assertEqual(err, "")
        self.assertEqual(self.begins(events), (50000, 40000))
        # What does not contradict causality is left alone.
        self.assertEqual(self.merged("--causal", *self.machines(5000)),
                         self.merged(*self.machines(5000)))

    def test_corrections_reach_through_other_machines(self):
        # Each machine is 100 us later than the one before, which their operations say in pairs.
        def at(rank, mine, events):
            return self.file(f"{rank}.json", trace(rank, 4, events, steady=1000 * rank,
                                                   system=1_000_000 - mine, boot=str(rank)))
        paths = [at(n, 0, [span("negotiate", "a", 100, 110, n + 1)] * (n < 3)
                    + [span("negotiate", "a", 0, 10, n)] * (n > 0)) for n in range(4)]
        _, err, events = self.merged("--causal", *paths)
        self.assertEqual(err, "")
        when = {e["pid"]: int(e["ts"] * 1000) for e in events
                if e["ph"] == "X" and e["args"]["log_count"] == e["pid"]}
        self.assertEqual(when, {1: 90000, 2: 180000, 3: 270000})

    def test_clocks_that_no_shift_puts_right_are_told(self):
        zero = trace(0, 2, [span("negotiate", "a", 0, 10, 1), span("negotiate", "b", 100, 110, 2)],
                     boot="one")
        one = trace(1, 2, [span("negotiate", "a", 50, 60, 1), span("negotiate", "b", 10, 20, 2)],
                    boot="two")
        paths = self.file("0.json", zero), self.file("1.json", one)
        _, err, _ = self.merged("--causal", *paths)
        self.assertIn("cannot be put right by shifting", err)

    def test_arrows_that_would_lead_back_are_left_out(self):
        zero = trace(0, 2, [span("negotiate", "a", 10, 20, 1), span("data", "a", 21, 30, 1)])
        one = trace(1, 2, [span("negotiate", "a", 40, 50, 1), span("data", "a", 51, 60, 1)],
                    boot="two")
        _, err, events = self.merged(self.file("0.json", zero), self.file("1.json", one))
        self.assertEqual(self.arrows(events), [])
        self.assertIn("1 arrows are left out", err)


class Blanks(Case):
    """A file that is not closed has blanks at its end and between pages."""

    def test_blanks_are_skipped(self):
        text = trace(0, 1, [span("negotiate", "a", 1, 9, 1), span("data", "a", 9, 10, 1)])
        whole = self.merged(self.file("whole.json", text))
        lines = text.splitlines()
        blank = " " * 4000 + "\n"
        text = (lines[0] + "\n" + lines[1].removesuffix(",") + blank + ",\n" + blank
                + lines[2] + blank + lines[3] + blank * 50 + "\n]}\n")
        json.loads(text)
        self.assertEqual(self.merged(self.file("open.json", text)), whole)
        # Killed while it made more blanks, and while the brackets moved behind them.
        self.assertEqual(self.merged(self.file("grown.json", text + blank * 3)), whole)
        moved = self.file("moved.json", text.removesuffix("\n]}\n") + blank)
        status, _, err = self.run_inside(self.out, moved)
        self.assertEqual(status, 2)
        self.assertIn("is cut off after line 6", err)
        out, _, events = self.merged("--cut", moved)
        self.assertEqual((out, events), (whole[0], whole[2]))


class Refusals(Case):
    def setUp(self):
        super().setUp()
        self.good = trace(0, 2, [span("negotiate", "a", 10, 50, 1, epoch=0),
                                 span("data", "all_reduce", 54, 70, 1, tensors=2, bytes=64,
                                      backend="mpi"),
                                 instant("generation", 80)])
        self.other = self.file("other.json", trace(1, 2, [span("negotiate", "a", 10, 50, 1)]))

    def refused(self, why, *arguments):
        status, out, err = self.run_inside(self.out, *arguments)
        self.assertEqual((status, out), (2, ""))
        self.assertRegex(err, why)
        self.assertFalse(self.out.exists())
        self.assertEqual([path for path in self.folder.iterdir() if path.suffix == ".part"], [])

    def test_foreign_files(self):
        for text in ("", "\n", "hello\n", "{}\n", "[]\n", "[1,2]\n", "null\n", '"text"\n',
                     '{"traceEvents":[]}\n', '{"otherData":{},"traceEvents":[\n]}\n',
                     '{"otherData":7,"traceEvents":[\n]}\n', "[" * 100_000, b"\x7fELF\0\xff\n",
                     json.dumps(json.loads(self.good), indent=1)):
            path = self.file("foreign.json", text)
            self.refused("foreign.json: is not a timeline that cohort has written",
                         self.other, path)

    def test_a_format_of_the_future_and_a_merged_file(self):
        text = self.good.replace('"cohort_timeline": 1', '"cohort_timeline": 2')
        self.refused("new.json: has format 2", self.file("new.json", text))
        self.merged(self.other)
        merged = self.file("merged.json", self.out.read_text())
        self.out.unlink()
        self.refused("merged.json: is merged already", merged)

    def test_lines_that_are_no_events(self):
        for old, new in (('"negotiate"', '"walk"'), ('"ph": "X"', '"ph": "B"'), (": 10,", ": -10,"),
                         (": 10,", ": NaN,"), (": 10,", ": Infinity,"), (": 10,", ": 1e400,"),
                         (": 10,", ": " + "1" * 5000 + ","), (": 10,", ': "10",'),
                         (": 10,", ": [],"), ('"log_count": 1', '"log_count": 1.5'),
                         ('"log_count": 1', '"log_count": -1'), ('"epoch": 0', '"epoch": null'),
                         ('"pid": 0, "tid": 1100', '"pid": 3, "tid": 1100'), ('"a"', "17"),
                         ('"set"', '"sat"'), ('"tid": 1100', '"tid": true'),
                         ('"tid": 1100', '"tid": 1100, "more": 1'), ('"a"', '"a'),
                         ('"a"', '"\\ud8"'), ('"a"', '"\t"')):
            self.assertIn(old, self.good)
            path = self.file("bad.json", self.good.replace(old, new, 1))
            self.refused("bad.json: line 3 is not an event", self.other, path)
        bad = self.file("bad.json", self.good.encode().replace(b'"a"', b'"\xff"', 1))
        self.refused("bad.json: line 3 is not an event", self.other, bad)
        more = self.file("bad.json", self.good + "x\n")
        self.refused("bad.json: something follows its end at line 6", self.other, more)
        long = self.file("bad.json", self.good.replace('"a"', '"' + "a" * (1 << 22) + '"'))
        self.refused("bad.json: line 3 is too long", self.other, long)

    def test_a_file_cut_anywhere(self):
        head = self.good.index("\n") + 1
        for size in range(len(self.good)):
            path = self.file("cut.json", self.good[:size])
            why = "is not a timeline" if size < head - 1 else "is cut off after line"
            self.refused("cut.json: " + why, self.other, path)
        for size in range(head, len(self.good)):
            path = self.file("cut.json", self.good[:size])
            _, err, events = self.merged("--cut", self.other, path)
            self.assertIn("cut.json is cut off; it was used up to there", err)
            whole = self.good[:size].count("\n") - 1
            self.assertEqual(sum(e["pid"] == 0 for e in events), whole)
            self.out.unlink()

    def test_random_damage_is_refused_or_read_but_never_a_crash(self):
        source = random.Random(7)
        read = 0
        for _ in range(1500):
            data = bytearray(self.good.encode())
            for _ in range(source.randint(1, 4)):
                at = source.randrange(len(data))
                if source.random() < 0.5:
                    data[at] = source.choice(b'0123456789{}[]",:-.eE\\\n\0\xff ant')
                else:
                    del data[at:at + source.randint(1, 30)]
            status, _, err = self.run_inside(self.out, self.other, self.file("bad.json", data))
            self.assertIn(status, (0, 2))
            if status == 2:
                self.assertRegex(err, r"^timeline_merge: \S*bad.json: ")
            read += status == 0
            if status == 0:
                json.loads(self.out.read_text())
        self.assertGreater(read, 5)

    def test_too_many_events(self):
        path = self.file("good.json", self.good)
        self.merged("--limit", "8", path, self.other)
        self.out.unlink()
        self.refused("other.json: more than 7 events in all", "--limit", "7", path, self.other)
        huge = self.file("huge.json", self.good.replace('"tensors": 2', '"tensors": 4294967295'))
        self.refused("huge.json: more than 5000000 events in all", huge)

    def test_files_that_do_not_belong_together(self):
        path = self.file("good.json", self.good)
        copy = self.file("copy.json", self.good)
        self.refused("copy.json: is of rank 0, as .*good.json is", path, copy)
        bigger = self.file("bigger.json", trace(1, 3, []))
        self.refused("bigger.json: is of a job of 3 ranks, and .*good.json of one of 2", path,
                     bigger)

    def test_files_that_cannot_be_read_or_written(self):
        path = self.file("good.json", self.good)
        self.refused("missing.json: No such file", path, self.folder / "missing.json")
        self.refused("Is a directory", path, self.folder)
        self.refused("/dev/null: is not a regular file", path, "/dev/null")
        status, _, err = self.run_inside(self.folder / "nowhere/out.json", path)
        self.assertEqual(status, 1)
        self.assertIn("nowhere/out.json: No such file", err)
        status, _, err = self.run_inside("/dev/full", path)
        self.assertEqual(status, 1)
        self.assertIn("/dev/full: No space left", err)
        status, _, err = self.run_inside(path, path)
        self.assertEqual(status, 2)
        self.assertIn("is also the file to write", err)
        self.assertEqual(pathlib.Path(path).read_text(), self.good)

    def test_a_failure_leaves_the_file_that_was_there(self):
        self.out.write_text("precious")
        status, _, _ = self.run_inside(self.out, self.file("bad.json", "x"))
        self.assertEqual(status, 2)
        self.assertEqual(self.out.read_text(), "precious")

    def test_wrong_arguments(self):
        for arguments in ([], [self.out], ["--top", "x", self.out, self.other]):
            status, _, err = self.run_inside(*arguments)
            self.assertEqual(status, 2)
            self.assertIn("usage:", err)


class Whole(Case):
    def test_it_runs_as_a_program(self):
        path = self.file("good.json", trace(0, 1, [span("negotiate", "a", 10, 50, 1)]))
        done = subprocess.run([SCRIPT, self.out, path], capture_output=True, text=True,
                              check=False, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("negotiate                    0.040  100.0 %      1", done.stdout)
        done = subprocess.run([SCRIPT, "--help"], capture_output=True, text=True, check=False,
                              timeout=60)
        self.assertEqual(done.returncode, 0)

    def test_it_reads_what_the_timeline_writes(self):
        if PROGRAM is None:
            self.skipTest("no program was given")
        environment = {**os.environ, "COHORT_TEST_TIMELINE": str(self.folder / "run.json")}
        subprocess.run([PROGRAM, "[writes]"], env=environment, check=True, timeout=60,
                       capture_output=True)
        paths = [self.folder / f"run.{rank}.json" for rank in (0, 1)]
        for path in paths:
            json.loads(path.read_text())
        out, err, events = self.merged(*paths)
        self.assertEqual(err, "")
        self.assertIn("waiting for the last rank  0.050", out)
        for line in ("queue                        0.004", "pack                         0.006",
                     "data                         0.020", "unpack                       0.004"):
            self.assertIn(line, out)
        self.assertIn("rank 1                   2  100.0 %             0.050", out)
        self.assertIn('b "quoted"                1  0.020', out)
        arrows = self.arrows(events)
        self.assertEqual([(tail[0], head[0]) for tail, head in arrows], [(1, 0), (1, 0)])
        self.assertEqual([head[1] - tail[1] for tail, head in arrows], [64000, 54000])


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        PROGRAM = sys.argv.pop(1)
    unittest.main()
