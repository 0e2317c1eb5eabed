# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""The task graph that the files of ranks hold: its critical path, and who was idle. For
scripts/timeline_merge."""
from .files import USES


class Task:
    """A task that has run, or a source. Times are those of its file until `at` shifts them."""
    __slots__ = ("name", "key", "window", "rank", "row", "begin", "end", "line", "failed", "source",
                 "uses", "needs", "depth")

    def __init__(self, event, line, rank):
        args = event["args"]
        self.name, self.key, self.window = event["name"], args["key"], args["window"]
        self.rank, self.row, self.line = rank, event["tid"], line
        self.begin = event["ts"]
        self.end = self.begin + event.get("dur", 0)
        self.failed = bool(args.get("failed"))
        self.source = event["cat"] == "source"
        self.uses = [(use, key) for use in USES for key in args.get(use, "").split()]
        self.needs = []  # (use, task), where the task is known
        self.depth = 0   # tasks on the longest way from the beginning of the window

    @property
    def length(self):
        return self.end - self.begin

    def order(self):
        return self.window, self.depth, self.name, self.key


class TaskFile:
    """What is remembered of the file of a rank."""

    def __init__(self, file):
        self.file = file
        self.tasks = []
        self.first, self.last = None, 0
        self.lost = self.lost_uses = 0
        self.shift = 0  # from the time of its file to that of the merged one

    def learn(self, budget):
        names = {}
        for line, event in self.file.events():
            budget.take(1, self.file)
            if event.get("cat") not in ("task", "source"):
                for member, name in (("lost", "lost"), ("dependencies", "lost_uses")):
                    count = event["args"].get(member, 0)
                    setattr(self, name, getattr(self, name) + (count if type(count) is int else 0))
                continue
            one = Task(event, line, self.file.rank)
            one.name = names.setdefault(one.name, one.name)
            budget.take(len(one.uses), self.file)
            self.tasks.append(one)
            self.first = one.begin if self.first is None else min(self.first, one.begin)
            self.last = max(self.last, one.end)


class Graph:
    """The tasks of all files, each of which knows the tasks that it needs."""

    def __init__(self, files):
        self.files = files  # rank -> TaskFile
        self.twice = self.unknown = 0
        self.by_key = {}
        self.by_line = {}  # (rank, line) -> task
        for number, file in files.items():
            for one in file.tasks:
                if (one.window, one.key) in self.by_key:
                    self.twice += 1
                    continue
                self.by_key[one.window, one.key] = one
                self.by_line[number, one.line] = one
        for one in self.by_key.values():
            for use, key in one.uses:
                needed = self.by_key.get((one.window, key))
                if needed is None:
                    self.unknown += 1
                else:
                    one.needs.append((use, needed))
        self.tasks = self.sorted_by_needs()

    def begin(self, one):
        return one.begin + self.files[one.rank].shift

    def end(self, one):
        return one.end + self.files[one.rank].shift

    def sorted_by_needs(self):
        """Each behind what it needs, windows one after another."""
        waits = {id(one): len(one.needs) for one in self.by_key.values()}
        readers = {}
        for one in self.by_key.values():
            for _, needed in one.needs:
                readers.setdefault(id(needed), []).append(one)
        ready = [one for one in self.by_key.values() if not one.needs]
        done = []
        while ready:
            one = ready.pop()
            done.append(one)
            for reader in readers.get(id(one), ()):
                reader.depth = max(reader.depth, one.depth + 1)
                waits[id(reader)] -= 1
                if waits[id(reader)] == 0:
                    ready.append(reader)
        if len(done) < len(self.by_key):
            one = min((one for one in self.by_key.values() if waits[id(one)]),
                      key=lambda one: (one.window, one.name, one.key))
            seen = set()
            while id(one) not in seen:  # who is stuck needs somebody who is
                seen.add(id(one))
                one = next(needed for _, needed in one.needs if waits[id(needed)])
            raise self.files[one.rank].file.refused(
                f"the task {shown(one.name)} depends on itself")
        return sorted(done, key=Task.order)

    def executed(self):
        return [one for one in self.tasks if not one.source]

    def orders(self):
        """(file of a task, its end, file of one that needs it, its begin)"""
        for one in self.tasks:
            for _, needed in one.needs:
                yield (self.files[needed.rank], needed.end, self.files[one.rank], one.begin)

    def critical_path(self):
        """The longest chain of tasks that need each other, by their lengths; those of all windows
        one after another, since a fence lets nothing overlap."""
        longest = {}  # task -> (length of the longest chain that ends with it, the one before)
        best = {}     # window -> its end
        for one in self.tasks:
            before = max((needed for _, needed in one.needs), default=None,
                         key=lambda needed: longest[id(needed)][0])
            length = one.length + (longest[id(before)][0] if before else 0)
            longest[id(one)] = length, before
            if one.window not in best or length > longest[id(best[one.window])][0]:
                best[one.window] = one
        path = []
        for window in sorted(best):
            chain = []
            one = best[window]
            while one is not None:
                if not one.source:
                    chain.append(one)
                one = longest[id(one)][1]
            path += reversed(chain)
        return path

    def span(self):
        """From the begin of the first task to the end of the last, sources apart."""
        tasks = self.executed()
        return (min(map(self.begin, tasks), default=0), max(map(self.end, tasks), default=0))

    def busy(self, rank):
        """In how much of the time at least one task ran there."""
        total, until = 0, None
        for begin, end in sorted((one.begin, one.end) for one in self.files[rank].tasks
                                 if not one.source):
            if until is None or begin > until:
                total, until = total + end - begin, end
            elif end > until:
                total, until = total + end - until, end
        return total


def shown(name, width=40):
    name = "".join(c if c.isprintable() else "?" for c in name)
    return name if len(name) <= width else name[:width - 3] + "..."


def counted(number, word):
    return f"{number} {word}{'s' * (number != 1)}"


MOST_OF_PATH = 40


def report(graph, scope, top, table, ms, share):
    """Prints what there is to know; with the functions of the other reports."""
    tasks = graph.executed()
    begin, end = graph.span()
    windows = len({one.window for one in graph.tasks})
    failed = sum(one.failed for one in tasks)
    sources = len(graph.tasks) - len(tasks)
    print(f"task graph {shown(scope)}: {counted(len(tasks), 'task')}"
          + f" and {counted(sources, 'source')}" * (sources > 0)
          + f" of {counted(len(graph.files), 'rank')}" + f" in {windows} windows" * (windows > 1)
          + f", {ms(end - begin)} ms from the first task to the last"
          + f"; {failed} failed" * (failed > 0) + "\n")
    if not tasks:
        return

    path = graph.critical_path()
    length = sum(one.length for one in path)
    print(f"critical path: {counted(len(path), 'task')}, {ms(length)} ms,"
          f" {share(length, end - begin)} of the time\n")
    listed = {id(one) for one in sorted(path, key=lambda one: -one.length)[:MOST_OF_PATH]}
    rows, before = [], begin
    for one in path:
        if id(one) in listed:
            rows.append((shown(one.name), f"rank {one.rank}", ms(one.length),
                         ms(max(graph.begin(one) - before, 0))))
        before = graph.end(one)
    if len(path) > len(listed):
        rows.append((f"{len(path) - len(listed)} more, none longer", "", "", ""))
    table(("critical path", "where", "ms", "ms before it"), rows)

    rows, all_busy = [], 0
    for number, file in graph.files.items():
        busy = graph.busy(number)
        all_busy += busy
        rows.append((f"rank {number}", str(sum(not one.source for one in file.tasks)), ms(busy),
                     ms(end - begin - busy), share(end - begin - busy, end - begin)))
    whole = (end - begin) * len(graph.files)
    rows.append(("all", str(len(tasks)), ms(all_busy), ms(whole - all_busy),
                 share(whole - all_busy, whole)))
    table(("rank", "tasks", "ms busy", "ms idle", "idle"), rows)

    if top > 0:
        rows = [(shown(one.name), f"rank {one.rank}", ms(one.length), share(one.length, length))
                for one in sorted(tasks, key=lambda one: (-one.length, one.order()))[:top]]
        table(("longest tasks", "where", "ms", "of the critical path"), rows)


def warnings(graph):
    for number, file in graph.files.items():
        if file.lost or file.lost_uses:
            yield (f"rank {number} has not recorded {counted(file.lost, 'task')} and"
                   f" {file.lost_uses} dependencies: there was no room")
    if graph.unknown:
        yield (f"{graph.unknown} dependencies are on tasks that are in none of the files; the"
               " critical path may be longer")
    if graph.twice:
        yield f"{graph.twice} tasks are there twice; the first of each was used"
