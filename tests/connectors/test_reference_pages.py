"""The reference pages are made from the options of the connectors, and their commands run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from magnetar.connectors.register import BUILT_IN

from tests.connectors.guides import GUIDES
from tests.support.connector_pages import DIRECTORY, EXAMPLES, KINDS, example_name, pages
from tests.support.doc_reader import Reader


def test_pages_are_current() -> None:
    written = {file.name: file.read_text(encoding="utf-8") for file in DIRECTORY.glob("*.md")}
    made = pages()
    assert written.keys() == made.keys(), "run `make docs-connectors`"
    assert [name for name in made if written[name] != made[name]] == [], "run `make docs-connectors`"


def test_every_connector_has_a_page_with_its_fields() -> None:
    made = pages()
    assert {f"{name}.md" for name in BUILT_IN} == made.keys() - {"README.md"}
    assert "| `jdbcUrl`" in made["jdbc.md"]
    for name, built in BUILT_IN.items():
        assert f"[{name}]({name}.md)" in made["README.md"]
        assert ("**Not verified**" in made[f"{name}.md"]) == bool(built.unverified)


def test_examples_are_of_connectors_that_exist() -> None:
    assert [key for key in EXAMPLES if not getattr(BUILT_IN[key[0]], key[1])] == []


def test_page_of_a_batch_source_says_how_it_discovers() -> None:
    made = pages()
    assert [name for name, text in made.items() if "--batch-source-config '{" in text] == ["s3.md"]
    assert "It is a batch source" in made["s3.md"]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """One server for all pages: each command has names of its own."""
    with Reader(tmp_path_factory.mktemp("pages")) as it:
        yield it


def page_of(name: str) -> object:
    """Return a page for a test; with a driver that `make test` does not install, only in `make test-connectors`."""
    return pytest.param(name, id=name, marks=[pytest.mark.connectors] if BUILT_IN[name].extra else [])


@pytest.mark.slow
@pytest.mark.parametrize("name", [page_of(name) for name in BUILT_IN])
def test_commands_of_the_page_create_it(reader: Reader, name: str) -> None:
    reader.read(DIRECTORY / f"{name}.md")
    for kind in (kind for kind in KINDS if getattr(BUILT_IN[name], kind)):
        address = f"{reader.admin_url}/admin/v3/{kind}s/public/default/{example_name(name, kind)}"
        assert httpx.delete(address, timeout=60).raise_for_status()


@pytest.mark.slow
@pytest.mark.connectors
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_commands_of_the_guide_run(page: Path, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        reader.read(page)
