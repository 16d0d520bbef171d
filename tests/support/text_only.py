"""Check that a change affects only text: docstrings, comments and Markdown, and optionally string literals.

    python -m tests.support.text_only BASE [HEAD] [--strings]

Compares the syntax trees of all Python files that changed between commit BASE and commit HEAD, or the working tree if
HEAD is omitted. If BASE is a branch that has advanced, its newer commits are ignored. With `--strings`, string
literals may differ as well: error messages, log lines, help texts. The values in an f-string may then be reordered and
reformatted, but not replaced. The check cannot distinguish a message from a dictionary key, so read the diff. Any other
file that changed, including one that was added or deleted, fails the check.

Comments that configure tools, such as `noqa` and `type: ignore`, are not compared: ruff and mypy check them.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class _WithoutDocstrings(ast.NodeTransformer):
    """Removes docstrings, including those below attributes and constants."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return self.generic_visit(node)


class _WithoutStrings(ast.NodeTransformer):
    """Empties string literals, and replaces f-strings with a sorted list of their values."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        values = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        return ast.List(sorted(values, key=ast.dump), ast.Load()) if values else ast.Constant("")


def program(source: str, *, strings: bool = False) -> str:
    """Return a dump of a module's syntax tree without its text, for comparison with another version.

    Args:
        source: the source code of the module.
        strings: whether to treat string literals as text.

    Raises:
        SyntaxError: the source is not valid Python.
    """
    tree: ast.AST = _WithoutDocstrings().visit(ast.parse(source))
    if strings:
        tree = _WithoutStrings().visit(tree)
    return ast.dump(tree)


def with_other_changes(root: Path, base: str, head: str | None = None, *, strings: bool = False) -> list[str]:
    """Return the paths of all files in which more than text changed.

    Args:
        root: the checkout.
        base: the commit before the change.
        head: the commit after the change, or None for the working tree.
        strings: whether to treat string literals as text.

    Raises:
        subprocess.CalledProcessError: one of the commits does not exist, or they have no common ancestor.
    """
    base = _git(root, "merge-base", base, head or "HEAD").strip()
    ends = [base, head] if head else [base]
    status = _git(root, "diff", "--name-status", "--no-renames", "-z", *ends).split("\0")
    others: list[str] = []
    for kind, path in zip(status[::2], status[1::2], strict=False):  # the last field is empty
        if path.endswith(".md"):
            continue
        if kind != "M" or not path.endswith(".py"):
            others.append(path)
            continue
        before = _git(root, "show", f"{base}:{path}")
        after = _git(root, "show", f"{head}:{path}") if head else (root / path).read_text()
        if program(before, strings=strings) != program(after, strings=strings):
            others.append(path)
    return others


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the check and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.text_only", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("base", metavar="BASE", help="the commit before the change")
    parser.add_argument(
        "head", metavar="HEAD", nargs="?", help="the commit after the change (default: the working tree)"
    )
    parser.add_argument("--strings", action="store_true", help="allow changes of string literals")
    options = parser.parse_args(arguments)
    others = with_other_changes(root, options.base, options.head, strings=options.strings)
    for path in others:
        print(f"{path}: more than text changed", file=sys.stderr)
    if not others:
        print("only text changed")
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
