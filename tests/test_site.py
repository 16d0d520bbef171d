"""The documentation as a site: every page is in its navigation, and links that leave `docs/` lead to copies."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import magnetar
import pytest

ROOT = Path(magnetar.__file__).parent.resolve()
HOOKS = runpy.run_path(str(ROOT / "docs" / "site" / "hooks.py"))


def test_the_navigation_has_every_page_of_docs_and_those_that_are_added() -> None:
    named = set(re.findall(r"([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2], re.MULTILINE))
    of_docs = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert of_docs <= named
    assert named - of_docs <= set(HOOKS["pages"]())


@pytest.mark.parametrize(
    ("origin", "text", "wanted"),
    [
        ("README.md", "[a](docs/cli.md#servers)", "[a](cli.md#servers)"),
        ("README.md", "[a](examples/sensors.py)", "[a](repository/examples/sensors.py)"),
        ("docs/client.md", "[a](../README.md) [b](cli.md)", "[a](index.md) [b](cli.md)"),
        ("docs/connectors/file.md", "[a](../../examples/)", "[a](../repository/examples/README.md)"),
        ("examples/README.md", "[a](../docs/state.md)", "[a](../../state.md)"),
        ("docs/cli.md", "[a](#here) [b](https://x.org/y.md)", "[a](#here) [b](https://x.org/y.md)"),
        ("docs/cli.md", "```\n[a](nowhere.md)\n```\n", "```\n[a](nowhere.md)\n```\n"),
    ],
)
def test_links_lead_to_the_same_things_in_the_site(origin: str, text: str, wanted: str) -> None:
    assert HOOKS["rewritten"](text, ROOT / origin)[0] == wanted


def test_a_link_that_leads_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match="does not exist"):
        HOOKS["rewritten"]("[a](nowhere.md)", ROOT / "docs" / "cli.md")


def test_the_page_of_a_package_index_has_no_link_by_path() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "site" / "index_page.py"))
    readme = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", made["index_page"](readme, "https://example.org/m/"))
    assert "https://example.org/m/blob/main/docs/functions.md" in links
    assert "https://example.org/m/raw/main/docs/pictures/architecture.svg" in links
    assert all(link.startswith("https://") for link in links)
    without = made["index_page"](readme, "")
    assert all("://" in link for link in re.findall(r"\]\(([^)]+)\)", without))
    assert "- Functions: how-to guides" in without
    assert "![" not in without
    assert made["project_urls"]("") == {}


def test_every_example_is_in_the_index() -> None:
    index = (ROOT / "examples" / "README.md").read_text()
    named = {(ROOT / "examples" / target).resolve() for target in re.findall(r"\]\(([^)]+)\)", index)}
    folders = {path.parent for path in named if path.name == "README.md"}
    missing = [
        path
        for path in (ROOT / "examples").rglob("*.py")
        if path.resolve() not in named and not folders.intersection(path.resolve().parents)
    ]
    assert not missing
