"""`python -m benchmarks.against COMMIT`: check whether this tree is slower than a commit, measuring both alternately.

A round measures each group of rows on both trees, one right after the other, the base first in every other round, so
that other load on the machine affects both equally. For each tree, the wheel that `pip install` builds is measured,
with the packages installed here and this tree's benchmarks (see `short_rows`). Uncommitted changes of this tree are
included. If pip's isolated build does not compile a commit's wheel, it is built with the tools installed here, so that
compiled code is compared with compiled code; `MAGNETAR_PURE=1` compares both as pure Python.

Exit code: 0 if no row is slower, 1 if one is, 2 if one could not be measured.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import machine
from .figure import number
from .ratios import PAIRS_MIN, SLOWER_BELOW, Ratio, compare
from .short_rows import ROWS, grouped

ROOT = Path(__file__).resolve().parent.parent
REPEATS_MIN = 7
GROUP_TIMEOUT_S = 600
NEW, BASE = "new", "base"
TREES = (NEW, BASE)

Figures = dict[str, dict[str, list[float | None]]]
"""Figures by row and tree: one for each round, None if it was not measured."""


def main() -> int:
    """Compare the trees, and print each row's ratio and interval."""
    arguments = _parse()
    rows = arguments.rows or list(ROWS)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="magnetar-against-", dir=arguments.directory) as text:
        directory = Path(text)
        commit = unpack(arguments.base, directory / BASE / "tree")
        trees = installed_trees(directory)
        variants = (f"{tree}: {'compiled' if is_compiled(path) else 'pure Python'}" for tree, path in trees.items())
        print("\n".join(machine.describe(directory, f"magnetar ({', '.join(variants)})")))
        print(f"base: {commit}; {arguments.repeats} rounds, {arguments.seconds:g} s each", flush=True)
        figures: Figures = {row: {tree: [] for tree in TREES} for row in rows}
        errors: dict[str, str] = {}
        for turn in range(arguments.repeats):
            for _, group in grouped(rows):
                for tree in TREES if turn % 2 else reversed(TREES):
                    found = _measure(group, trees[tree], arguments.seconds, directory / "data")
                    for row in group:
                        value = found.get(row)
                        figures[row][tree].append(value if isinstance(value, float) else None)
                        if isinstance(value, str):
                            errors.setdefault(row, f"{tree}: {value}")
            print(f"round {turn + 1} of {arguments.repeats} after {time.monotonic() - began:.0f} s", flush=True)
    lines, code = report(figures, errors)
    print("\n" + "\n".join(lines) + f"\n{time.monotonic() - began:.0f} s")
    return code


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("base", metavar="COMMIT", help="commit to compare this tree with")
    parser.add_argument(
        "--rows", type=_rows, default=[], metavar="NAME,…", help=f"rows to measure, of {', '.join(ROWS)} (default: all)"
    )
    parser.add_argument("--repeats", type=int, default=REPEATS_MIN, help=f"number of rounds, at least {REPEATS_MIN}")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of load per measurement")
    parser.add_argument("--directory", type=Path, help="directory for data and the base's tree (default: the system's)")
    arguments = parser.parse_args()
    if arguments.repeats < REPEATS_MIN:
        parser.error(
            f"--repeats {arguments.repeats} is too low: distinguishing changes from noise requires at least"
            f" {REPEATS_MIN} rounds"
        )
    return arguments


def _rows(text: str) -> list[str]:
    names = [name for name in text.replace(",", " ").split() if name]
    for name in names:
        if name not in ROWS:
            raise argparse.ArgumentTypeError(f"unknown row {name!r}: expected {', '.join(ROWS)}")
    return [name for name in ROWS if name in names]


def unpack(commit: str, target: Path) -> str:
    """Extract the files of a commit into a directory; return the commit's full hash.

    This uses an archive instead of a worktree, so that a killed process leaves nothing behind in the repository.
    """
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode:
        raise SystemExit(f"unknown commit {commit!r} in {ROOT}: expected a git revision")
    name = found.stdout.strip()
    archive = subprocess.run(["git", "archive", name], cwd=ROOT, capture_output=True, check=True).stdout
    target.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's Python 3.11.2 does not have it
        files.extractall(target)
    return name


WITHOUT_EDITABLE = """import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if getattr(finder, "__name__", "") != "_EditableFinder"]
"""
"""Code run whenever Python starts, as the environment's editable install would take precedence over PYTHONPATH."""


def installed_trees(directory: Path) -> dict[str, Path]:
    """Install both trees with `installed`, compiled if both can be compiled; return their directories."""
    tree = directory / BASE / "tree"
    trees = {NEW: installed(directory / NEW, ROOT), BASE: installed(directory / BASE, tree)}
    if is_compiled(trees[NEW]) and not is_compiled(trees[BASE]):
        trees[BASE] = installed(directory / BASE / "again", tree, "--no-build-isolation")
    return trees


def installed(directory: Path, tree: Path, *flags: str) -> Path:
    """Install a tree with pip, and return the directory for PYTHONPATH.

    Args:
        directory: directory for the installation.
        tree: source tree with a pyproject.toml.
        flags: flags for `pip wheel`.
    """
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *flags, "--wheel-dir", str(directory)]
    subprocess.run([*command, str(tree)], check=True)
    [wheel] = directory.glob("*.whl")
    path = directory / "path"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(path)
    (path / "sitecustomize.py").write_text(WITHOUT_EDITABLE)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(path)], check=False, stdout=subprocess.DEVNULL)
    return path


def is_compiled(path: Path) -> bool:
    """Return whether an installed tree has compiled modules."""
    return any(path.glob("magnetar__mypyc*.so"))


def _measure(rows: Sequence[str], path: Path, seconds: float, data: Path) -> Mapping[str, float | str]:
    """Measure rows on a tree in a separate process; return each row's figure or error."""
    data.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(path)}
    command = [
        sys.executable,
        "-m",
        "benchmarks.short_rows",
        "--seconds",
        f"{seconds:g}",
        "--directory",
        str(data),
        *rows,
    ]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=GROUP_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return dict.fromkeys(rows, f"no result within {GROUP_TIMEOUT_S} s")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    measured_tree = next((line["tree"] for line in lines if "tree" in line), None)
    if measured_tree != str((path / "magnetar").resolve()):
        why = done.stderr.strip().rpartition("\n")[2] or f"the wrong tree would be measured: {measured_tree}"
        return dict.fromkeys(rows, why)
    found = {line["row"]: line.get("value", line.get("error")) for line in lines if "row" in line}
    missing = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
    return {row: found.get(row, missing) for row in rows}


def report(figures: Figures, errors: Mapping[str, str]) -> tuple[list[str], int]:
    """Return a Markdown table of the comparison, and the exit code."""
    lines = [
        "| row | base | new | unit | new / base, 95 % interval | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    is_slower = is_missing = False
    for row, of_tree in figures.items():
        pairs = [(n, b) for n, b in zip(of_tree[NEW], of_tree[BASE], strict=True) if n is not None and b is not None]
        unit = ROWS[row].unit
        if len(pairs) < PAIRS_MIN:
            is_missing = True
            lines.append(f"| {row} |  |  | {unit} |  | not measured: {errors.get(row, 'no figures')} |")
            continue
        new, base = zip(*pairs, strict=True)
        ratio = compare(new, base, more_is_better=ROWS[row].more_is_better)
        is_slower |= ratio.is_slower
        note = f"; {len(of_tree[NEW]) - len(pairs)} rounds failed: {errors[row]}" if row in errors else ""
        shown = f"{number(_middle(base))} | {number(_middle(new))}"
        lines.append(f"| {row} | {shown} | {unit} | {ratio} | {_verdict(ratio)}{note} |")
    lines.append("\nA ratio above 1 is better, also for times and sizes. Base and new: medians.")
    return lines, 1 if is_slower else 2 if is_missing else 0


def _verdict(ratio: Ratio) -> str:
    if ratio.is_slower:
        return f"SLOWER: the interval is below {SLOWER_BELOW}"
    if ratio.low > 1 / SLOWER_BELOW:
        return "better"
    return "no slower" if ratio.low >= SLOWER_BELOW else "not significantly slower"


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    sys.exit(main())
