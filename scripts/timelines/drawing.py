# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""Draws a task graph and its schedule as SVG. For scripts/timeline_merge."""
import colorsys
import html

from .tasks import counted, shown

MOST_NODES = 500
MOST_BARS = 20_000
MARGIN = 20
NODE_HEIGHT = 20
LINE = 28      # from one node to the next of its layer
GAP = 44       # between layers
ROW = 22       # of the schedule
LABEL = 90     # room for the names of rows
LEAST_WIDTH = 720


def colour(rank):
    """As graph/dot.hpp has it: hue, saturation and value."""
    red, green, blue = colorsys.hsv_to_rgb((550 + 618 * rank) % 1000 / 1000, 0.35, 0.95)
    return "#" + "".join(f"{round(255 * part):02x}" for part in (red, green, blue))


def text_width(text):
    """About, at 11 pixels."""
    return 6.2 * len(text)


def escaped(text, width=40):
    return html.escape(shown(text, width))


def text(x, y, what, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{what}</text>\n'


class Layers:
    """The places of the tasks of one window: a layer for each depth, from left to right."""

    def __init__(self, tasks):
        self.tasks = tasks
        readers = {}
        for one in tasks:
            for _, needed in one.needs:
                readers.setdefault(id(needed), []).append(one)
        layer = {}
        for one in tasks:
            # A source is drawn just before the first task that needs it.
            layer[id(one)] = max(min((r.depth for r in readers.get(id(one), ())), default=1) - 1, 0
                                 ) if one.source else one.depth
        self.layers = [[] for _ in range(max(layer.values(), default=-1) + 1)]
        for one in tasks:
            self.layers[layer[id(one)]].append(one)
        self.order(readers)
        self.place()

    def order(self, readers):
        """Nodes come near to what they are connected with: its mean place, some times to and fro."""
        place = {}

        def note(nodes):
            for i, one in enumerate(nodes):
                place[id(one)] = (i + 0.5) / len(nodes)

        def mean(one, others):
            known = [place[id(other)] for other in others if id(other) in place]
            return sum(known) / len(known) if known else place[id(one)]

        for nodes in self.layers:
            note(nodes)
        for turn in range(8):
            for nodes in self.layers if turn % 2 == 0 else reversed(self.layers):
                nodes.sort(key=lambda one: mean(
                    one, [needed for _, needed in one.needs] if turn % 2 == 0
                    else readers.get(id(one), ())))
                note(nodes)

    def place(self):
        tallest = max(map(len, self.layers), default=0)
        self.height = tallest * LINE
        self.box = {}  # id -> x, y, width
        x = MARGIN
        for nodes in self.layers:
            width = max((text_width(shown(one.name, 24)) + 12 for one in nodes), default=0)
            for i, one in enumerate(nodes):
                y = (self.height - len(nodes) * LINE) / 2 + i * LINE + (LINE - NODE_HEIGHT) / 2
                self.box[id(one)] = x, y, width
            x += width + GAP
        self.width = x - GAP + MARGIN


def draw_edges(layers, top, critical):
    for one in layers.tasks:
        x, y, _ = layers.box[id(one)]
        for use, needed in one.needs:
            if id(needed) not in layers.box:
                continue
            from_x, from_y, width = layers.box[id(needed)]
            from_x, end, start = from_x + width, y + top + NODE_HEIGHT / 2, \
                from_y + top + NODE_HEIGHT / 2
            bend = max((x - from_x) / 2, 10)
            kinds = [use] + ["critical"] * ((id(needed), id(one)) in critical)
            yield (f'<path class="{" ".join(kinds)}" d="M{from_x:.1f} {start:.1f}'
                   f'C{from_x + bend:.1f} {start:.1f} {x - bend:.1f} {end:.1f} {x:.1f} {end:.1f}"/>\n')


def draw_nodes(layers, top, path):
    for one in layers.tasks:
        x, y, width = layers.box[id(one)]
        kinds = ["node"] + ["critical"] * (id(one) in path) + ["failed"] * one.failed
        corner = NODE_HEIGHT / 2 if one.source else 2
        name = escaped(one.name, 24)
        yield (f'<g><title>{escaped(one.name, 200)}, rank {one.rank}'
               f'{", failed" * one.failed}</title>'
               f'<rect class="{" ".join(kinds)}" x="{x:.1f}" y="{y + top:.1f}" width="{width:.1f}"'
               f' height="{NODE_HEIGHT}" rx="{corner:.0f}" fill="{colour(one.rank)}"/>')
        yield text(x + width / 2, y + top + 14, name, ' text-anchor="middle"').rstrip() + "</g>\n"


def scale(length):
    """(step, unit, nanoseconds of the unit) for about eight marks in so many nanoseconds."""
    step = next(step for power in range(19) for step in (10**power, 2 * 10**power, 5 * 10**power)
                if step * 8 >= length)
    unit = next((unit for unit in (("s", 10**9), ("ms", 10**6), ("us", 1000))
                 if step >= unit[1]), ("ns", 1))
    return step, *unit


def draw_schedule(graph, rows, top, width, path):
    """`rows` has the place of each row of each rank."""
    tasks = graph.executed()
    begin, end = graph.span()
    per_pixel = max(end - begin, 1) / (width - LABEL - 2 * MARGIN)
    height = len(rows) * ROW
    step, unit, nanoseconds = scale(max(end - begin, 1))
    left = MARGIN + LABEL
    for mark in range(0, end - begin + 1, step):
        x = left + mark / per_pixel
        yield f'<path class="mark" d="M{x:.1f} {top}V{top + height + 4}"/>\n'
        yield text(x, top + height + 16, f"{mark // nanoseconds} {unit}", ' text-anchor="middle"')
    first = {}
    for (rank, _), row in rows.items():
        if rank not in first:
            first[rank] = row
            yield text(left - 8, top + row * ROW + 15, f"rank {rank}", ' text-anchor="end"')
    for one in sorted(tasks, key=lambda one: -one.length)[:MOST_BARS]:
        x = left + (graph.begin(one) - begin) / per_pixel
        y = top + rows[one.rank, one.row] * ROW + 2
        wide = max(one.length / per_pixel, 0.3)
        kinds = ["node"] + ["critical"] * (id(one) in path) + ["failed"] * one.failed
        yield (f'<g><title>{escaped(one.name, 200)}, {one.length} ns</title>'
               f'<rect class="{" ".join(kinds)}" x="{x:.1f}" y="{y}" width="{wide:.1f}"'
               f' height="{ROW - 4}" fill="{colour(one.rank)}"/>')
        if text_width(one.name) + 4 <= wide:
            yield text(x + wide / 2, y + 13, escaped(one.name), ' text-anchor="middle"').rstrip()
        yield "</g>\n"


STYLE = """<style>
text{font:11px sans-serif}.node{stroke:#666;stroke-width:.6}.critical{stroke:#000;stroke-width:2}
path{fill:none;stroke:#999}path.takes{stroke:#555;stroke-width:2}path.after{stroke-dasharray:4 3}
path.critical{stroke:#000;stroke-width:2.5}.failed{stroke:#d00;stroke-width:3}path.mark{stroke:#ddd}
</style>
"""


def svg(graph, scope):
    """The picture, piece by piece: the graph, window by window, and below it the schedule."""
    tasks = graph.executed()
    drawn = graph.tasks[:MOST_NODES]  # they are in the order of windows and depths
    windows = {}
    for one in drawn:
        windows.setdefault(one.window, []).append(one)
    layers = {window: Layers(nodes) for window, nodes in windows.items()}
    chain = graph.critical_path()
    path = {id(one) for one in chain}
    critical = {(id(a), id(b)) for a, b in zip(chain, chain[1:])}
    width = max([LEAST_WIDTH, *(one.width for one in layers.values())])

    body = []
    top = MARGIN + 12
    title = f"{escaped(scope)}: {counted(len(tasks), 'task')} of {counted(len(graph.files), 'rank')}"
    body.append(text(MARGIN, top, title, ' style="font-weight:bold"'))
    notes = ["Rounded: a source. Bold edge: the value is taken. Dashed: order only. Black: the"
             " critical path."]
    if len(drawn) < len(graph.tasks):
        notes.append(f"Only {len(drawn)} of {len(graph.tasks)} tasks and sources are in the graph,"
                     " those with the shortest ways from the beginning.")
    if len(tasks) > MOST_BARS:
        notes.append(f"Only the {MOST_BARS} longest of {len(tasks)} tasks are in the schedule.")
    if any(one.failed for one in tasks):
        notes.append("Red: failed.")
    for note in notes:
        top += 16
        body.append(text(MARGIN, top, note))
    top += 12
    x = MARGIN
    for rank in graph.files:  # the legend
        if x > width - 80:
            x, top = MARGIN, top + 18
        body.append(f'<rect class="node" x="{x}" y="{top}" width="14" height="12"'
                    f' fill="{colour(rank)}"/>\n' + text(x + 18, top + 10, f"rank {rank}"))
        x += 80
    top += 24
    for window, one in layers.items():
        if len(layers) > 1:
            body.append(text(MARGIN, top + 10, f"window {window}"))
            top += 16
        body += draw_edges(one, top, critical)
        body += draw_nodes(one, top, path)
        top += one.height + 12
    rows = {key: i for i, key in enumerate(sorted({(one.rank, one.row) for one in tasks}))}
    body += draw_schedule(graph, rows, round(top), width, path)
    top = round(top) + len(rows) * ROW + 24 + MARGIN
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{top:.0f}"'
           f' viewBox="0 0 {width:.0f} {top:.0f}">\n')
    yield STYLE
    yield '<rect width="100%" height="100%" fill="white"/>\n'
    yield from body
    yield "</svg>\n"

