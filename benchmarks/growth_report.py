"""GROWTH.md and its plots: what each quantity costs at each size; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from xml.sax.saxutils import escape

from .figure import Figure, number
from .results import Run

FILE_NAME = "GROWTH.md"
PLOTS = "plots"
HEAD = """\
# Cost against size

Written by `make bench GROUP=growth-… ARGS=--write`, as [RESULTS.md](RESULTS.md) is. Do not edit: run it again.

The last row of a table is the exponent of the last step: 0 where a quantity does not depend on the size, 1 where it
grows as the size does, more where it grows faster. Figures *each* are of one thing while there are about so many, so
theirs should be 0. In the plots everything is relative to its value at the smallest size, on logarithmic scales.

"""

Point = tuple[int, float]
Series = Mapping[str, Sequence[Point]]

WIDTH, HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 260, 20, 40
_COLORS = ("#1b6ca8", "#c8553d", "#2e8b57", "#8e44ad", "#b8860b", "#4d4d4d", "#d63384", "#0aa2c0")


def text(runs: Mapping[str, Run]) -> str:
    """Return GROWTH.md of all benchmarks; empty if none of them has a size."""
    parts = []
    for counted, figures in _by_counted(runs).items():
        parts.append(f"## {counted.capitalize()}\n\n{_table(counted, figures)}\n![]({PLOTS}/{_file_name(counted)})\n")
    if not parts:
        return ""
    origins = {
        f"- `{run.command}` at {run.revision or 'an unknown revision'}, {run.date}: {'; '.join(run.machine)}"
        for run in runs.values()
        if any(figure.size is not None for figure in run.figures)
    }
    return HEAD + "\n".join(sorted(origins)) + "\n\n" + "\n".join(parts)


def plots(runs: Mapping[str, Run]) -> dict[str, str]:
    """Return the plots by file name, as SVG."""
    return {_file_name(counted): plot(counted, series(figures)) for counted, figures in _by_counted(runs).items()}


def _file_name(counted: str) -> str:
    return f"growth-{counted.replace(' ', '-')}.svg"


def _by_counted(runs: Mapping[str, Run]) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    for run in runs.values():
        for figure in run.figures:
            if figure.size is not None:
                found.setdefault(figure.counted, []).append(figure)
    return found


def series(figures: Iterable[Figure]) -> dict[str, list[Point]]:
    """Return sizes and values of each quantity, smallest size first."""
    found: dict[str, list[Point]] = {}
    for figure in figures:
        if figure.size is not None:
            found.setdefault(f"{figure.name}, {figure.unit}", []).append((figure.size, figure.ours))
    return {name: sorted(points) for name, points in found.items()}


def exponent(points: Sequence[Point]) -> float | None:
    """Return by which power of the size a quantity grew in the last step; None where that cannot be said."""
    if len(points) < 2 or points[-1][1] <= 0 or points[-2][1] <= 0:
        return None
    (before, low), (after, high) = points[-2:]
    return math.log(high / low) / math.log(after / before)


def _table(counted: str, figures: Sequence[Figure]) -> str:
    found = series(figures)
    sizes = sorted({size for points in found.values() for size, _ in points})
    rows = [[counted, *found], ["---"] * (len(found) + 1)]
    for size in sizes:
        values = (dict(points).get(size) for points in found.values())
        rows.append([f"{size:,}", *("" if value is None else number(value) for value in values)])
    grown = (exponent(points) for points in found.values())
    rows.append(["*exponent*", *("" if one is None else f"{one:.2f}" for one in grown)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def plot(counted: str, found: Series) -> str:
    """Return a plot of quantities relative to their value at the smallest size, beside what is proportional."""
    positive = {name: [(size, value) for size, value in points if value > 0] for name, points in found.items()}
    relative = {
        name: [(size, value / points[0][1]) for size, value in points] for name, points in positive.items() if points
    }
    sizes = [size for points in relative.values() for size, _ in points] or [1, 10]
    smallest, largest = min(sizes), max(*sizes, min(sizes) + 1)
    values = [value for points in relative.values() for _, value in points] or [1.0]
    x_range = math.log10(smallest), math.log10(largest)
    y_range = math.floor(math.log10(min(1.0, *values))), max(1, math.ceil(math.log10(max(1.0, *values))))

    def place(size: float, value: float) -> str:
        x = _LEFT + (math.log10(size) - x_range[0]) / (x_range[1] - x_range[0]) * (WIDTH - _LEFT - _RIGHT)
        y = HEIGHT - _BOTTOM - (math.log10(value) - y_range[0]) / (y_range[1] - y_range[0]) * (HEIGHT - _TOP - _BOTTOM)
        return f"{x:.1f},{y:.1f}"

    shapes = []
    for power in range(y_range[0], y_range[1] + 1):
        (left, y), right = place(smallest, 10**power).split(","), place(largest, 10**power)
        shapes.append(f'<polyline points="{left},{y} {right}" stroke="#ddd"/>')
        shapes.append(f'<text x="{_LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{10**power:g}×</text>')
    for size in sorted(set(sizes)):
        x = place(size, 1).split(",")[0]
        shapes.append(f'<text x="{x}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle">{size:,}</text>')
    top = min(largest / smallest, 10 ** y_range[1])
    ideal = f"{place(smallest, 1)} {place(smallest * top, top)}"
    shapes.append(f'<polyline points="{ideal}" fill="none" stroke="#999" stroke-dasharray="4 4"/>')
    for index, (name, points) in enumerate(relative.items()):
        color = _COLORS[index % len(_COLORS)]
        line = " ".join(place(size, value) for size, value in points)
        shapes.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        row = _TOP + 16 * index + 10
        shapes.append(f'<text x="{WIDTH - _RIGHT + 12}" y="{row}" fill="{color}">{escape(name)}</text>')
    row = _TOP + 16 * len(relative) + 10
    shapes.append(f'<text x="{WIDTH - _RIGHT + 12}" y="{row}" fill="#777">- - proportional to {escape(counted)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    return "\n".join([f'{head} font-size="11">', '<rect width="100%" height="100%" fill="#fff"/>', *shapes, "</svg>\n"])
