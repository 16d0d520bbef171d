"""Every command block of the documentation runs, page by page and in order, as if a reader pasted it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.guides import GUIDES
from tests.support.doc_blocks import PAGES, ROOT, Block, blocks_of, commands_of
from tests.support.doc_reader import PageBroken, Reader, is_client, missing_line

pytestmark = pytest.mark.slow

ELSEWHERE = {
    *ROOT.glob("docs/connectors/*.md"),  # tests/connectors/test_reference_pages.py
    *GUIDES,  # the same
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def runs(page: Path) -> bool:
    return any(not block.not_run and (block.language == "sh" or is_client(block)) for block in blocks_of(page))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE and runs(page)], ids=name_of)
def test_commands_of_the_page_run(page: Path, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        reader.read(page)


def read(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with Reader(tmp_path / "reader") as reader:
        reader.read(page)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("```sh\ntrue\necho before && false\n```\n", "page.md:3: exit code 1\n$ echo before && false\nbefore\n"),
        ("```sh\necho one\n```\n\n```output\ntwo\n```\n", "page.md:2: the page shows in line 6 that it prints 'two'"),
        ("```sh\nmagnetar standalone\necho never\n```\n", "page.md:2: holds up what follows"),
        ("```sh\ntrue    # until Ctrl-C\n```\n", "page.md:2: ended with 0 before Ctrl-C"),
    ],
    ids=["exit-code", "output", "server-in-front", "ended-before-ctrl-c"],
)
def test_a_broken_page_is_named_with_line_command_and_output(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(PageBroken) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(what)


def test_a_page_is_read_as_a_reader_does(tmp_path: Path) -> None:
    text = """
Save this as `names/first.txt`:

```text
ada
```

```sh
cd names
NAME=$(cat first.txt)
cat > /tmp/greeting <<'END'
hello, it is 6650
END
```

<!-- not run: fails -->
```sh
false
```

```sh
echo "$NAME" \\
    says; cat /tmp/greeting
```

```output
ada says
hello,   it … 6650
```
"""
    read(tmp_path, text)


@pytest.mark.parametrize(
    ("shown", "printed", "missing"),
    [
        (["a b", "c"], "x a   b y\nz\nc", None),
        (["c", "a"], "a\nc", "a"),
        (["{…: 1}"], '{"n": 1}', None),
        (["a.c"], "abc", "a.c"),
        ([" ", ""], "", None),
    ],
)
def test_shown_lines_are_looked_for_in_their_order(shown: list[str], printed: str, missing: str | None) -> None:
    assert missing_line(shown, printed) == missing


def test_commands_are_told_apart() -> None:
    code = "a 'x\ny'\n\n# nothing\nb \\\n  --c  # who's there\ncat <<END\nd\nEND\ne\n"
    found = list(commands_of(Block(Path("page.md"), 10, "sh", code)))
    assert found == [(10, "a 'x\ny'"), (14, "b \\\n  --c  # who's there"), (16, "cat <<END\nd\nEND"), (19, "e")]
