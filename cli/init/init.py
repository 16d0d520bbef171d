"""``magnetar init NAME``: creates a function, its test, its config and a README in a new directory."""

from __future__ import annotations

import importlib.machinery
import keyword
import re
import sys
from pathlib import Path

import click

from ..failure import Failure
from .files import FILES

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,99}")
_OTHERS = ("magnetar", "pulsar", "pytest", "conftest")
_HINT = "use letters a to z, digits, - and _, starting with a letter, such as word-count"


@click.command("init", epilog="\b\nmagnetar init word-count && cd word-count && pytest")
@click.argument("name")
@click.option("--directory", metavar="DIR", help="Target directory (default: one with the project's name).")
def init(name: str, directory: str | None) -> None:
    """Create a project with a function, a passing test, a config to deploy it, and a README."""
    check_name(name)
    root = Path(directory or name)
    if root.exists() and not root.is_dir():
        raise Failure(f"{root} already exists and is not a directory: use another name or --directory")
    if root.is_dir() and any(root.iterdir()):
        raise Failure(f"directory {root} is not empty: use another --directory")
    module = module_of(name)
    try:
        root.mkdir(parents=True, exist_ok=True)
        for path, text in FILES.items():
            content = text.replace("{name}", name).replace("{module}", module)
            (root / path.replace("{module}", module)).write_text(content, encoding="utf-8")
    except OSError as error:
        raise Failure(f"{error.filename or root} cannot be written: {error.strerror}") from error
    click.echo(f"created {root} with the function {module}.py, its test and config; README.md describes the next steps")


def module_of(name: str) -> str:
    """Return the module name of a project's function."""
    return name.replace("-", "_")


def check_name(name: str) -> None:
    """Reject names that are not valid for functions and modules.

    Raises:
        Failure: the name is invalid; the message contains the reason.
    """
    if not _NAME.fullmatch(name):
        raise Failure(f"invalid project name {name[:100]!a}: {_HINT}")
    module = module_of(name)
    if keyword.iskeyword(module) or keyword.issoftkeyword(module):
        raise Failure(f"{name} is a reserved word in Python; {_HINT}")
    if module in sys.stdlib_module_names or module in _OTHERS or _is_installed(module):
        raise Failure(f"{name} would hide the existing Python module {module}; {_HINT}")


def _is_installed(module: str) -> bool:
    """Return whether a module of that name exists outside the current directory."""
    places = [place for place in sys.path if place and Path(place) != Path.cwd()]
    found = importlib.machinery.PathFinder.find_spec(module, places)
    return found is not None and found.origin is not None
