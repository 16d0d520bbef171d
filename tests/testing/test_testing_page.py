"""The code blocks of docs/testing.md do what it says, and the plugin has its fixture and option."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import magnetar
import pytest

PAGE = (Path(magnetar.__file__).parent / "docs" / "testing.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", [block for block in BLOCKS if "with " in block])
def test_a_block_does_what_it_says(block: str) -> None:
    exec(compile(block, "docs/testing.md", "exec"), {"__name__": "page"})


@pytest.mark.slow
def test_the_plugin_gives_fixture_and_option(tmp_path: Path) -> None:
    conftest = re.search(r"^pytest_plugins = .*$", PAGE, re.MULTILINE)
    assert conftest is not None
    (tmp_path / "conftest.py").write_text(conftest[0])
    blocks = [block for block in BLOCKS if "magnetar_function" in block]
    assert len(blocks) == 1
    (tmp_path / "test_page.py").write_text(blocks[0])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
