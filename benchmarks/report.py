"""RESULTS.md: the figures, what they were measured on, and how to measure them again."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from .figure import Table, table
from .growth_report import FILE_NAME as GROWTH_FILE
from .results import Run

FILE_NAME = "RESULTS.md"
PROFILES = Path(__file__).parent / "PROFILES.md"

HEAD = """\
# Results of the benchmarks

Written by the commands below, each of which replaces its own rows. Do not edit: run them again. Where a target is
missed, [PROFILES.md](PROFILES.md) says where the time goes.{growth}

{groups}
{machines}

What `pip install .` makes is measured; the lines above say whether it was compiled. Server, load and peer share these
cores. Figures are medians of {repeats} measurements, where no other number is given.
Peers were measured in the same run on the same machine, where nothing else is said. Targets that are no factors come
from measurements of Apache Pulsar 4.0.7 on a machine like this one, whatever this one's own speed is.

Figures of two runs cannot be compared, as machines differ from hour to hour: `make bench-against BASE=<commit>`
measures two commits in turn in one run, and reports which rows are slower
([benchmarks.md](../docs/development/benchmarks.md)).

*Plain* input is 100 equal bytes a message, *application* input is JSON of 40 to 110 bytes with a partition key, an
event time and a property; the official Python client has encoded both. *Own encoder* is input that our client has
encoded: lines of equal lengths without sequence ids. *JSON of 100 B* and *of 1024 B* are orders that the official
client has sent, for a function from dict to dict.

"Over the same loop on our client" is the rate of a function or command as a share of that of a bare loop, which takes,
does and sends the same in a process of its own, and neither counts nor logs nor restarts anything.
"""
GROWTH = f"""
What thousands of functions, topics, keys, partitions and consumers cost is in [{GROWTH_FILE}]({GROWTH_FILE})."""
ABOUT = {
    Table.PULSAR: """\
`make bench-pulsar PULSAR=<starter>` measures Apache Pulsar and us in turn. Functions: `input + '!'` in Python beside
Pulsar's ExclamationFunction in a JVM of its own, on the same entries. Publishing: the load generator of Pulsar's Go
client.
""",
    Table.KAFKA: """\
`make bench-kafka KAFKA=<starter>` measures Spark on Apache Kafka and on us in turn, in one session of Spark 4.0 on two
cores: Kafka's source has no build for 4.3 in reach. The rows are the same, in topics of two partitions, written by the
official Python client of each system in batches of 1,000. Spark 4.0 has no read limits for sources in Python, so a
backlog is one batch for both; the rate is that of its trigger. Of rates three rounds are left out first, in which the
JVM compiles. *By their schema* is a read with `useTopicSchema` beside Kafka's and `from_json` on the same values. *From
publish to row* is until `foreachBatch` has the row from Arrow, published in batches of 5 ms. Kafka confirms before data
is on disk, as is its default; we after.
""",
    Table.OFFICIAL: "What applications send.\n",
    Table.COMPILED: """\
One wheel in turn with its compiled modules and without (`MAGNETAR_PURE=1`); the names are those of `bench-against`.
""",
    Table.OWN: "The same with our own client's encoder, and publishing by our own client.\n",
}


def text(runs: Mapping[str, Run]) -> str:
    """Return RESULTS.md of all benchmarks; pure. Tables are in the order of `Table`, benchmarks in their own."""
    repeats = " or ".join(str(number) for number in sorted({run.repeats for run in runs.values()}))
    has_growth = any(figure.size is not None for run in runs.values() for figure in run.figures)
    growth = GROWTH if has_growth else ""
    parts = [HEAD.format(groups=_groups(runs), machines=_machines(runs), repeats=repeats, growth=growth)]
    for one in Table:
        figures = [
            figure for run in runs.values() for figure in run.figures if figure.table is one and figure.size is None
        ]
        if figures:
            parts.append(f"## {one.value}\n\n" + (ABOUT[one] + "\n" if one in ABOUT else "") + table(figures))
    return "\n".join(parts)


def _groups(runs: Mapping[str, Run]) -> str:
    lines = ["| group | command | revision | date | minutes |", "| --- | --- | --- | --- | --- |"]
    for group in dict.fromkeys(run.group for run in runs.values()):
        members = [run for run in runs.values() if run.group == group]
        cells = (
            group,
            ", ".join(f"`{command}`" for command in dict.fromkeys(run.command for run in members)),
            ", ".join(dict.fromkeys(run.revision for run in members)),
            ", ".join(dict.fromkeys(run.date for run in members)),
            f"{sum(run.seconds for run in members) / 60:.0f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _machines(runs: Mapping[str, Run]) -> str:
    """Each machine once, with the groups that ran on it where there are several."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for run in runs.values():
        of_machine = groups.setdefault(run.machine, [])
        if run.group not in of_machine:
            of_machine.append(run.group)
    if len(groups) == 1:
        (machine,) = groups
        return "\n".join(f"- {line}" for line in machine)
    return "\n".join(f"- {', '.join(names)}: {'; '.join(machine)}" for machine, names in groups.items())


def revision() -> str:
    """The short name of the commit that is checked out; empty if git does not say."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    return done.stdout.strip() if done.returncode == 0 else ""
