"""GROWTH.md: tables of cost against size, and plots of them."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from benchmarks import growth_report, report
from benchmarks.figure import Figure
from benchmarks.growth import grown
from benchmarks.results import Run

FIGURES = (
    grown("functions", 100, "create each", 10.0, "ms"),
    grown("functions", 10, "create each", 10.0, "ms"),
    grown("functions", 1000, "create each", 20.0, "ms"),
    grown("functions", 10, "start", 1.0, "s"),
    grown("functions", 100, "start", 100.0, "s"),
    grown("functions", 10, "idle CPU", 0.0, "% of a core"),
    grown("functions", 100, "idle CPU", 1.0, "% of a core"),
)


def run(*figures: Figure) -> dict[str, Run]:
    return {
        "growth": Run(
            group="growth-functions", command="make bench GROUP=growth-functions", revision="abc1234",
            date="2026-01-02", machine=("a processor",), repeats=1, seconds=1.0, figures=figures,
        )
    }  # fmt: skip


def test_a_table_has_a_row_for_each_size_and_the_exponent_of_the_last_step() -> None:
    lines = growth_report.text(run(*FIGURES)).splitlines()
    assert "| functions | create each, ms | start, s | idle CPU, % of a core |" in lines
    assert "| 10 | 10 | 1 | 0 |" in lines
    assert "| 100 | 10 | 100 | 1 |" in lines
    assert "| 1,000 | 20 |  |  |" in lines
    assert "| *exponent* | 0.30 | 2.00 |  |" in lines


def test_figures_with_a_size_stand_in_no_table_of_the_results() -> None:
    plain = Figure(name="idle memory", ours=1.0, unit="MiB")
    text = report.text(run(plain, *FIGURES))
    assert "idle memory" in text
    assert "create each" not in text
    assert growth_report.text(run(plain)) == ""
    assert growth_report.plots(run(plain)) == {}


@pytest.mark.parametrize("points", [[], [(10, 1.0)], [(10, 0.0), (100, 1.0)], [(10, 1.0), (100, 0.0)]])
def test_exponent_is_left_out_where_it_cannot_be_said(points: list[growth_report.Point]) -> None:
    assert growth_report.exponent(points) is None


def test_plot_is_well_formed_and_has_a_line_for_each_quantity() -> None:
    ((name, drawn),) = growth_report.plots(run(*FIGURES)).items()
    assert name == "growth-functions.svg"
    root = ElementTree.fromstring(drawn)
    lines = [
        one.get("points", "") for one in root.iter("{http://www.w3.org/2000/svg}polyline") if one.get("stroke-width")
    ]
    assert len(lines) == 3
    create = [tuple(map(float, point.split(","))) for point in lines[0].split()]
    assert create[0][1] == create[1][1] > create[2][1]  # as before, then more
    assert [x for x, _ in create] == sorted(x for x, _ in create)
    assert all(math.isfinite(value) for point in create for value in point)


@pytest.mark.parametrize(
    "values", [{}, {"a": [(1, 1.0)]}, {"a": [(5, 2.0)], "b": [(5, 0.0)]}, {"<&": [(1, 1e-9), (2, 1e9)]}]
)
def test_odd_values_can_be_plotted(values: dict[str, list[growth_report.Point]]) -> None:
    ElementTree.fromstring(growth_report.plot("things", values))
