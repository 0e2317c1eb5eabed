#!/usr/bin/env python3
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""Tests what scripts/timeline_merge makes of task graphs, on inputs made by hand, and on what the
recording itself has written.

    timeline_tasks_test.py [PROGRAM]

PROGRAM is the executable of recording_test.cpp; without it that one test is skipped.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "coordinator"))
from timeline_merge_test import Case, instant, merge, span, time, trace  # noqa: E402

PROGRAM = None
SVG = "{http://www.w3.org/2000/svg}"


def task(name, begin, end, window=0, row=900, **args):
    """An event; begin and end in microseconds. The key of a task is its name in small letters."""
    return {"name": name, "cat": "task", "ph": "X", "ts": time(round(begin * 1000)),
            "dur": time(round(end * 1000) - round(begin * 1000)), "pid": 0, "tid": 1000 + row,
            "args": {"window": window, "key": name.lower(), **args}}


def source(name, when, window=0):
    return {"name": name, "cat": "source", "ph": "i", "s": "t", "ts": when, "pid": 0, "tid": 1002,
            "args": {"window": window, "key": name.lower()}}


def graph(rank, size, events, scope="scope", **more):
    text = trace(rank, size, events, **more)
    return text.replace('"boot"', f'"graph": {json.dumps(scope)}, "boot"', 1)


class Graphs(Case):
    def counts(self, *ranks, arguments=()):
        paths = [self.file(f"{n}.json", graph(n, len(ranks), events))
                 for n, events in enumerate(ranks)]
        return self.merged(*arguments, *paths)

    def diamond(self):
        """Rank 1 starts recording 500 us later on the same clock."""
        zero = graph(0, 2, [
            source("A(0)", 1000),
            task("Factor(0)", 2000, 5000, takes="a(0)"),
            task("Solve(1)", 5000, 9500, row=901, reads="factor(0)"),
        ])
        one = graph(1, 2, [
            task("Solve(0)", 6500, 8500, reads="factor(0)"),
            task("Sum()", 9500, 10500, failed=1, takes="solve(0)", reads="solve(1)",
                 after="factor(0)"),
        ], steady=1_500_000, system=5_000_500_000)
        return self.file("0.json", zero), self.file("1.json", one)


class Figures(Graphs):
    def test_the_report_is_exact(self):
        # The way by Solve(1) takes 3 + 4.5 + 1 ms, that by Solve(0) 3 + 2 + 1.
        out, err, _ = self.merged(*self.diamond())
        self.assertEqual(err, "")
        self.assertEqual(out, """\
task graph scope: 4 tasks and 1 source of 2 ranks, 9.000 ms from the first task to the last; 1 failed

critical path: 3 tasks, 8.500 ms, 94.4 % of the time

critical path   where     ms  ms before it
Factor(0)      rank 0  3.000         0.000
Solve(1)       rank 0  4.500         0.000
Sum()          rank 1  1.000         0.500

rank    tasks  ms busy  ms idle    idle
rank 0      2    7.500    1.500  16.7 %
rank 1      2    3.000    6.000  66.7 %
all         4   10.500    7.500  41.7 %

longest tasks   where     ms  of the critical path
Solve(1)       rank 0  4.500                52.9 %
Factor(0)      rank 0  3.000                35.3 %
Solve(0)       rank 1  2.000                23.5 %
Sum()          rank 1  1.000                11.8 %

""")

    def test_the_order_of_the_files_does_not_matter(self):
        zero, one = self.diamond()
        first = self.merged(zero, one)
        self.assertEqual(self.merged(one, zero), first)

    def test_windows_follow_each_other(self):
        # Keys of another window are other tasks. The longest chain of each window counts.
        out, err, _ = self.counts(
            [task("A", 0, 4000), task("B", 4000, 5000, reads="a"),
             task("A", 6000, 7000, window=1), task("C", 6000, 9000, window=1)],
            [task("D", 0, 2000), task("E", 7000, 8500, window=1, reads="a")])
        self.assertEqual(err, "")
        self.assertIn("6 tasks of 2 ranks in 2 windows, 9.000 ms", out)
        self.assertIn("critical path: 3 tasks, 8.000 ms, 88.9 % of the time", out)
        self.assertIn("""\
A              rank 0  4.000         0.000
B              rank 0  1.000         0.000
C              rank 0  3.000         1.000
""", out)

    def test_time_in_which_several_tasks_run_is_busy_once(self):
        out, _, _ = self.counts([task("A", 0, 4000), task("B", 1000, 2000, row=901),
                                 task("C", 3000, 6000, row=901), task("D", 8000, 10000)])
        self.assertIn("rank 0      4    8.000    2.000  20.0 %", out)

    def test_a_long_path_is_listed_in_part(self):
        events = [task(f"t{i}", 100 * i, 100 * i + (90 if i == 30 else 50),
                       **({"reads": f"t{i - 1}"} if i else {})) for i in range(50)]
        out, _, _ = self.counts(events)
        self.assertIn("critical path: 50 tasks, 2.540 ms", out)
        self.assertRegex(out, r"\nt30 +rank 0  0.090         0.050\n")
        self.assertRegex(out, r"\nt31 +rank 0  0.050         0.010\n")
        self.assertIn("\n10 more, none longer\n", out)
        self.assertEqual(sum(line.startswith("t") and "rank 0" in line and line.endswith("050")
                             for line in out.splitlines()), 38)

    def test_the_number_of_longest_tasks_can_be_chosen(self):
        out, _, _ = self.merged("--top", "1", *self.diamond())
        self.assertTrue(out.endswith("""\
longest tasks   where     ms  of the critical path
Solve(1)       rank 0  4.500                52.9 %

"""))
        out, _, _ = self.merged("--top", "0", *self.diamond())
        self.assertNotIn("longest tasks", out)

    def test_a_graph_without_tasks(self):
        out, err, _ = self.counts([source("A", 1)], [])
        self.assertEqual((out, err), ("task graph scope: 0 tasks and 1 source of 2 ranks, 0.000 ms"
                                      " from the first task to the last\n\n", ""))

    def test_what_is_missing_is_told(self):
        path = self.file("0.json", graph(1, 3, [
            task("A", 0, 1, reads="gone b"), task("A", 2, 3), task("B", 0, 1),
            instant("tasks left out", 9, lost=5, dependencies=7)]))
        _, err, _ = self.merged(path)
        self.assertIn("no file of rank 0, 2: its tasks are missing", err)
        self.assertIn("rank 1 has not recorded 5 tasks and 7 dependencies: there was no room", err)
        self.assertIn("1 dependencies are on tasks that are in none of the files", err)
        self.assertIn("1 tasks are there twice", err)

    def test_names_are_printed_safely(self):
        out, _, _ = self.counts([task('a"\n\x1b[31m' + "x" * 60, 1, 9)])
        self.assertIn('a"??[31m' + "x" * 29 + "...", out)
        self.assertNotIn("\x1b", out)


class Merged(Graphs):
    def test_dependencies_are_arrows_and_names(self):
        _, _, events = self.merged(*self.diamond())
        self.assertEqual(self.arrows(events), [
            ((0, 2000000), (0, 5000000)),  # from the begin of a slice; viewers draw from its end
            ((0, 2000000), (1, 7000000)),
            ((0, 2000000), (1, 10000000)),
            ((0, 5000000), (1, 10000000)),
            ((1, 7000000), (1, 10000000)),
        ])
        args = {e["name"]: e["args"] for e in events if e["ph"] == "X"}
        self.assertEqual(args["Sum()"], {"window": 0, "key": "sum()", "failed": 1,
                                         "takes": "Solve(0)", "reads": "Solve(1)",
                                         "after": "Factor(0)"})
        self.assertEqual(args["Factor(0)"]["takes"], "A(0)")
        _, _, events = self.merged("--no-arrows", *self.diamond())
        self.assertEqual(self.arrows(events), [])

    def test_a_coordinator_and_a_graph_merge_into_one_file(self):
        operations = [self.file(f"c{n}.json", trace(n, 2, [span("negotiate", "a", 1 + n, 9, 1),
                                                           span("data", "a", 9, 10, 1)]))
                      for n in (0, 1)]
        out, err, events = self.merged(*operations, *self.diamond())
        self.assertEqual(err, "")
        self.assertIn("2 ranks, 1 operations", out)
        self.assertIn("critical path: 3 tasks", out)
        self.assertEqual({e["cat"] for e in events if e["ph"] == "X"}, {"negotiate", "data", "task"})
        self.assertEqual(len(self.arrows(events)), 6)

    def test_machines_are_put_right_by_what_tasks_need(self):
        # Rank 1 is on another machine, whose clock is 3 ms behind.
        zero = graph(0, 2, [task("A", 1000, 5000)], steady=777, system=9_000_000_000)
        one = graph(1, 2, [task("B", 3000, 4000, reads="a")], steady=5, system=9_000_000_000,
                    boot="two")
        paths = self.file("0.json", zero), self.file("1.json", one)
        _, err, events = self.merged(*paths)
        self.assertIn("the clocks disagree: 1 times a task is seen to begin before what it needs"
                      " ends, by up to 2.000 ms; --causal", err)
        self.assertIn("1 arrows are left out", err)
        out, err, events = self.merged("--causal", *paths)
        self.assertEqual(err, "")
        self.assertEqual(self.times(events)[1, "B", "task"], 5_000_000)
        self.assertIn("B              rank 1  1.000         0.000", out)

    def test_a_clock_that_no_shift_puts_right_is_told(self):
        _, err, _ = self.counts([task("A", 1, 5), task("B", 4, 6, reads="a")],
                                arguments=["--causal"])
        self.assertIn("cannot be put right by shifting: 0 elections are still seen before the last"
                      " submission and 1 tasks before what they need, by up to 0.001 ms", err)


class Refusals(Graphs):
    def refused(self, why, *arguments):
        status, out, err = self.run_inside(self.out, *arguments)
        self.assertEqual((status, out), (2, ""))
        self.assertRegex(err, why)
        self.assertFalse(self.out.exists())

    def test_files_that_do_not_belong_together(self):
        zero = self.file("0.json", graph(0, 2, [task("A", 1, 2)]))
        self.refused("b.json: is of the task graph 'other', and .*0.json of 'scope'", zero,
                     self.file("b.json", graph(1, 2, [], scope="other")))
        self.refused("b.json: is of rank 0, as .*0.json is", zero,
                     self.file("b.json", graph(0, 2, [])))
        self.refused("b.json: is of a job of 3 ranks", zero, self.file("b.json", trace(1, 3, [])))

    def test_cycles(self):
        path = self.file("0.json", graph(0, 1, [task("Z", 1, 2), task("A", 1, 2, reads="b z"),
                                                task("B", 3, 4, reads="a"), task("C", 5, 6, reads="b")]))
        self.refused("0.json: the task A depends on itself", path)
        path = self.file("0.json", graph(0, 1, [task("A", 1, 2, reads="a")]))
        self.refused("0.json: the task A depends on itself", path)

    def test_lines_that_are_no_events(self):
        good = graph(0, 1, [task("A", 1, 9, reads="b"), source("B", 1)])
        self.merged(self.file("good.json", good))
        self.out.unlink()
        for old, new in (('"task"', '"data"'), ('"window": 0', '"window": -1'),
                         ('"key": "a"', '"key": 7'), ('"key": "a"', '"kay": "a"'),
                         ('"reads": "b"', '"reads": 7'), ('"key": "b"', '"key": []')):
            self.assertIn(old, good)
            path = self.file("bad.json", good.replace(old, new, 1))
            self.refused("bad.json: line [34] is not an event", path)
        self.refused("bad.json: line 3 is not an event",
                     self.file("bad.json", trace(0, 1, [task("A", 1, 9)])))
        self.refused("is not a timeline", self.file("bad.json", good.replace('"scope"', "7")))

    def test_random_damage_is_refused_or_drawn_but_never_a_crash(self):
        good = [pathlib.Path(path).read_text() for path in self.diamond()]
        source_of_chance = random.Random(7)
        drawn = 0
        for _ in range(1000):
            data = bytearray(good[1].encode())
            for _ in range(source_of_chance.randint(1, 3)):
                at = source_of_chance.randrange(len(data))
                if source_of_chance.random() < 0.7:
                    data[at] = source_of_chance.choice(b'0123456789{}[]",:-.eE\\\n\0\xff ant()')
                else:
                    del data[at:at + source_of_chance.randint(1, 30)]
            status, _, err = self.run_inside("--svg", self.folder / "bad.svg", self.out,
                                             self.folder / "0.json", self.file("bad.json", data))
            self.assertIn(status, (0, 2), err)
            drawn += status == 0
            if status == 0:
                xml.etree.ElementTree.fromstring((self.folder / "bad.svg").read_text())
                json.loads(self.out.read_text())
        self.assertGreater(drawn, 50)

    def test_dependencies_count_as_events(self):
        path = self.file("0.json", graph(0, 1, [task("A", 1, 9, reads="b c d")]))
        self.merged("--limit", "5", path)
        self.out.unlink()
        self.refused("more than 4 events in all", "--limit", "4", path)


class Drawings(Graphs):
    def drawn(self, *arguments):
        self.merged("--svg", self.folder / "out.svg", *arguments)
        return xml.etree.ElementTree.fromstring((self.folder / "out.svg").read_text())

    def texts(self, image):
        return [one.text for one in image.iter(SVG + "text")]

    def test_a_graph_and_its_schedule(self):
        image = self.drawn(*self.diamond())
        titles = [one.find(SVG + "title").text for one in image.iter(SVG + "g")]
        self.assertEqual(titles, [
            "A(0), rank 0", "Factor(0), rank 0", "Solve(0), rank 1", "Solve(1), rank 0",
            "Sum(), rank 1, failed", "Solve(1), 4500000 ns", "Factor(0), 3000000 ns",
            "Solve(0), 2000000 ns", "Sum(), 1000000 ns"])
        boxes = [one.find(SVG + "rect").attrib for one in image.iter(SVG + "g")]
        # Layers from left to right; Factor(0) stands alone in its own, between those behind it.
        places = [(float(box["x"]), float(box["y"])) for box in boxes[:5]]
        self.assertEqual(sorted({x for x, _ in places}), [places[i][0] for i in (0, 1, 2, 4)])
        self.assertEqual(places[2][0], places[3][0])
        self.assertEqual(places[1][1] * 2, places[2][1] + places[3][1])
        # A schedule to scale: 9 ms in 720 pixels without labels and margins.
        bars = {title.split(",")[0]: box for title, box in zip(titles[5:], boxes[5:])}
        self.assertAlmostEqual(float(bars["Solve(1)"]["width"]), 4.5 / 9 * 590, 0)
        self.assertAlmostEqual(float(bars["Sum()"]["x"]), 110 + 8 / 9 * 590, 0)
        self.assertEqual({bars[name]["y"] for name in ("Sum()", "Solve(0)")}, {bars["Sum()"]["y"]})
        kinds = {name: bars[name]["class"] for name in bars}
        self.assertEqual(kinds, {"Factor(0)": "node critical", "Solve(0)": "node",
                                 "Solve(1)": "node critical", "Sum()": "node critical failed"})
        edges = sorted(one.get("class") for one in image.iter(SVG + "path"))
        self.assertEqual([kind for kind in edges if kind != "mark"],
                         ["after", "reads", "reads critical", "reads critical", "takes", "takes"])
        self.assertEqual([text for text in self.texts(image) if " ms" in text],
                         [f"{i} ms" for i in (0, 2, 4, 6, 8)])

    def test_names_cannot_break_it(self):
        paths = [self.file("0.json", graph(0, 1, [task('<a>&"\x01', 0, 9)], scope="<s>"))]
        image = self.drawn(*paths)
        self.assertIn('<a>&"?', self.texts(image))
        self.assertIn("<s>: 1 task of 1 rank", self.texts(image))

    def test_of_a_large_graph_the_beginning_is_drawn(self):
        events = [task(f"t{i}", i, i + 1, **({"reads": f"t{i - 1}"} if i else {}))
                  for i in range(600)]
        image = self.drawn(self.file("0.json", graph(0, 1, events)))
        self.assertIn("Only 500 of 600 tasks and sources are in the graph, those with the shortest"
                      " ways from the beginning.", self.texts(image))
        names = [one.find(SVG + "title").text for one in image.iter(SVG + "g")]
        self.assertIn("t499, rank 0", names)
        self.assertNotIn("t500, rank 0", names)
        self.assertIn("t599, 1000 ns", names)

    def test_windows_are_drawn_apart(self):
        path = self.file("0.json", graph(0, 1, [task("A", 0, 1), task("A", 2, 3, window=1)]))
        self.assertEqual([t for t in self.texts(self.drawn(path)) if t.startswith("window")],
                         ["window 0", "window 1"])

    def test_without_a_graph_there_is_nothing_to_draw(self):
        path = self.file("0.json", trace(0, 1, []))
        status, _, err = self.run_inside("--svg", self.folder / "out.svg", self.out, path)
        self.assertEqual(status, 2)
        self.assertIn("has no task graph to draw", err)
        self.assertFalse(self.out.exists())

    def test_a_picture_that_cannot_be_written(self):
        paths = self.diamond()
        status, _, err = self.run_inside("--svg", "/dev/full", self.out, *paths)
        self.assertEqual(status, 1)
        self.assertIn("/dev/full: No space left", err)
        status, _, err = self.run_inside("--svg", paths[1], self.out, *paths)
        self.assertEqual(status, 2)
        self.assertIn("is also the file to write", err)


class Whole(Graphs):
    def test_it_reads_what_the_recording_writes(self):
        if PROGRAM is None:
            self.skipTest("no program was given")
        environment = {**os.environ, "COHORT_TEST_SCHEDULE": str(self.folder / "run.json")}
        subprocess.run([PROGRAM, "[writes]"], env=environment, check=True, timeout=60,
                       capture_output=True)
        paths = [self.folder / f"run.{rank}.json" for rank in (0, 1)]
        for path in paths:
            json.loads(path.read_text())
        out, err, events = self.merged(*paths)
        self.assertEqual(err, "")
        self.assertIn("task graph diamond: 4 tasks and 1 source of 2 ranks, 0.009 ms", out)
        self.assertIn("critical path: 3 tasks, 0.009 ms, 94.4 % of the time", out)
        self.assertIn("rank 1      2    0.003    0.006  66.7 %", out)
        self.assertEqual(len(self.arrows(events)), 5)
        args = {e["name"]: e["args"] for e in events if e["ph"] == "X"}
        self.assertEqual(args["sum()"]["takes"], "solve(0)")
        self.assertEqual(args["factor(0)"]["takes"], "A(0)")
        self.assertEqual(merge.tasks.shown("x"), "x")


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        PROGRAM = sys.argv.pop(1)
    unittest.main()
