"""Every command block of the documentation runs, page by page and in order, as if a reader pasted it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doc_blocks import PAGES, ROOT, blocks_of
from tests.support.doc_reader import Reader, is_client

pytestmark = pytest.mark.slow

ELSEWHERE = {
    *ROOT.glob("docs/connectors/*.md"),  # tests/connectors/test_reference_pages.py
    ROOT / "docs" / "spark.md",  # tests/spark/test_spark_page.py
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def runs(page: Path) -> bool:
    return any(not block.not_run and (block.language == "sh" or is_client(block)) for block in blocks_of(page))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE and runs(page)], ids=name_of)
def test_commands_of_the_page_run(page: Path, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        reader.read(page)
