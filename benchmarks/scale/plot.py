#!/usr/bin/env python3
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""plot.py FIGURES.csv PLOT.svg: draws what bench_scale --csv has counted. Needs nothing but Python."""

import csv
import math
import sys

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 30, 45
COLOURS = {"first": "#1f77b4", "cached": "#2ca02c", "shutdown": "#d62728"}
DASHES = {"in": "", "out": ' stroke-dasharray="6 4"'}


def panel(rows, top, title, columns, logarithmic):
    """Lines over the number of ranks: one for each event and column of the table."""
    lines = {}
    for row in rows:
        for name, column in columns.items():
            lines.setdefault((row["event"], name), []).append((int(row["ranks"]), int(row[column])))
    ranks = sorted({int(row["ranks"]) for row in rows})
    most = max(y for points in lines.values() for _, y in points)
    least = min(y for points in lines.values() for _, y in points)
    low, high = (math.log10(least), math.log10(most)) if logarithmic else (0, most)
    low, high = math.floor(low), math.ceil(high)
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x_of(value):
        first, last = math.log2(ranks[0]), math.log2(ranks[-1])
        return LEFT + inner_width * (math.log2(value) - first) / (last - first)

    def y_of(value):
        value = math.log10(value) if logarithmic else value
        return top + TOP + inner_height * (1 - (value - low) / (high - low))

    out = [f'<text x="{LEFT}" y="{top + 18}" font-weight="bold">{title}</text>']
    ticks = [10**i for i in range(low, high + 1)] if logarithmic else range(0, high + 1, 5)
    for tick in ticks:
        y = y_of(tick)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:,}</text>')
    for value in ranks:
        x, y = x_of(value), top + HEIGHT - BOTTOM
        out.append(f'<text x="{x:.1f}" y="{y + 18}" text-anchor="middle">{value}</text>')
    out.append(f'<text x="{LEFT + inner_width / 2}" y="{top + HEIGHT - 8}" '
               'text-anchor="middle">ranks</text>')
    for i, ((event, name), points) in enumerate(sorted(lines.items())):
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
        style = f'fill="none" stroke="{COLOURS[event]}" stroke-width="2"{DASHES.get(name, "")}'
        out.append(f'<polyline points="{path}" {style}/>')
        y = top + TOP + 10 + 18 * i
        x = WIDTH - RIGHT + 12
        out.append(f'<line x1="{x}" x2="{x + 28}" y1="{y}" y2="{y}" {style}/>')
        out.append(f'<text x="{x + 34}" y="{y + 4}">{event} {name}</text>')
    return out


def main():
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{3 * HEIGHT}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{3 * HEIGHT}" fill="white"/>']
    out += panel(rows, 0, "Bytes at rank 0", {"in": "bytes_in", "out": "bytes_out"}, True)
    out += panel(rows, HEIGHT, "Messages at rank 0", {"in": "messages_in", "out": "messages_out"},
                 False)
    out += panel(rows, 2 * HEIGHT, "Laps until nothing moves", {"": "laps"}, False)
    out.append("</svg>")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
