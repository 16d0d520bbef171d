"""The documentation is true: its commands exist, its links lead somewhere, its tables are the code's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import magnetar
import pytest
from magnetar.cli.main import root
from magnetar.cli.servers.config_file import BROKER_KEYS, STANDALONE_KEYS, STATE_KEYS, WORKER_KEYS

from tests.support import settings_tables

ROOT = Path(magnetar.__file__).parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^( *)```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^]]*\]\(([^)#]+)[^)]*\)")
ANCHOR = re.compile(r"\[[^]]*\]\(([^)#\s]*)#([^)\s]+)\)")
PLACEHOLDERS = {"GROUP", "COMMAND"}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every line of a code block, and every code span, that calls magnetar."""
    for page in PAGES:
        text = page.read_text()
        lines = [line for block in BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
        spans = re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
        for line in (*lines, *spans):
            words = shlex.split(line.rstrip("& "), comments=True) if re.match(r"\s*magnetar ", line) else []
            if words and not PLACEHOLDERS.intersection(words):
                yield f"{page.name}: {' '.join(words)}"[:90], words[1:]


def alternatives(words: list[str]) -> Iterator[list[str]]:
    """The commands of a line such as `topics stats | unload`."""
    if "|" not in words:
        yield words
        return
    start = [words[0]]
    current: list[str] = []
    for word in [*words[1:], "|"]:
        if word == "|":
            yield start + current
            current = []
        else:
            current.append(word)


@pytest.mark.parametrize(("line", "words"), [pytest.param(*found, id=found[0]) for found in commands()])
def test_command_of_the_documentation_exists(line: str, words: list[str]) -> None:
    for call_words in alternatives(words):
        command: click.Command = root
        context = click.Context(root)
        flags = [word for word in call_words if word.lstrip("[").startswith("-")]
        rest = [word for word in call_words if word not in flags]
        for word in rest:
            if not isinstance(command, click.Group):
                break
            if word.startswith(("[", "…")) or re.match(r"http|pulsar:|json$|URL$", word):
                continue
            found = command.get_command(context, word)
            assert found is not None, f"{line}: no command {word!r}"
            command = found
        known = {name for one in (root, command) for option in one.params for name in option.opts} | {"--help", "-h"}
        for flag in flags:
            name = flag.strip("[]").split("=")[0]
            assert name in known, f"{line}: no flag {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    missing = [
        target
        for target in LINK.findall(page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not missing


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ +(.+?) *$", FENCED.sub("", page.read_text()), re.MULTILINE)
    texts = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w -]", "", text).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_anchors_of_links_are_headings(page: Path) -> None:
    missing = [
        f"{target}#{anchor}"
        for target, anchor in ANCHOR.findall(FENCED.sub("", page.read_text()))
        if "://" not in target and anchor not in anchors_of(page.parent / target if target else page)
    ]
    assert not missing


def test_every_key_of_the_config_file_is_documented() -> None:
    pages = [(ROOT / "docs" / "reference" / f"{name}-config.md").read_text() for name in ("server", "broker", "worker")]
    rows = re.findall(r"^\| (`.*?) \|", "\n".join(pages), re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    assert documented == set(BROKER_KEYS) | set(WORKER_KEYS) | set(STATE_KEYS)
    assert documented >= set(STANDALONE_KEYS)


def test_tables_of_client_settings_are_those_of_the_code() -> None:
    page = settings_tables.PAGE.read_text()
    assert settings_tables.written(page) == page, "run `python -m tests.support.settings_tables`"


@pytest.mark.parametrize("config", settings_tables.CONFIGS)
def test_every_client_setting_has_a_meaning_and_nothing_else_has(config: type[Any]) -> None:
    assert list(settings_tables.meanings(config)) == [one.name for one in fields(config)]


def test_function_of_the_readme_is_the_example() -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    example = (ROOT / "examples" / "sensors.py").read_text().split('"""', 2)[2]
    assert block[1].strip() == example.strip()
