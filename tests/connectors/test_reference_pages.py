"""The reference pages are those that the options make."""

from __future__ import annotations

from magnetar.connectors.register import BUILT_IN

from tests.support.connector_pages import DIRECTORY, pages


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
