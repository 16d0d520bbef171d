"""The pictures of the documentation are those that docs/site/pictures.py draws, and pages show them."""

from __future__ import annotations

import runpy
from pathlib import Path
from xml.etree import ElementTree

import magnetar
import pytest

ROOT = Path(magnetar.__file__).parent.resolve()
DRAWN = runpy.run_path(str(ROOT / "docs" / "site" / "pictures.py"))
FOLDER = ROOT / "docs" / "pictures"


def test_committed_pictures_are_what_the_script_draws() -> None:
    drawn = {f"{name}.svg": draw().svg() for name, draw in DRAWN["PICTURES"].items()}
    committed = {file.name: file.read_text() for file in FOLDER.iterdir()}
    assert committed == drawn, "run `python docs/site/pictures.py`"


@pytest.mark.parametrize("name", DRAWN["PICTURES"])
def test_picture_is_well_formed_and_shown_on_a_page(name: str) -> None:
    ElementTree.fromstring((FOLDER / f"{name}.svg").read_text())
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(f"pictures/{name}.svg)" in page.read_text() for page in pages)


def test_text_wider_than_its_box_is_rejected() -> None:
    picture = DRAWN["Picture"](200, 100, "title")
    with pytest.raises(DRAWN["TextTooWide"], match="'a very long name'"):
        picture.box(0, 0, 60, 40, ["a very long name"])
