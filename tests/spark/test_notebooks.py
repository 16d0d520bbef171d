"""The notebooks of examples/spark: that their files are as Jupyter takes them, and what their cells print.

The one that needs Delta runs in test_lakes.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.notebooks import FOLDER, give_session, notebook, printed
from tests.support.servers import Server, running

if TYPE_CHECKING:
    from magnetar.spark.session import Session

NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
CELL = {
    "markdown": {"cell_type", "id", "metadata", "source"},
    "code": {"cell_type", "id", "metadata", "source", "execution_count", "outputs"},
}
"""The fields of cells of format 4.5: all of them are needed, and others are not allowed."""
RESULTS = {
    "sessions": [
        "ann: 4 pages in 30 minutes",
        "ann: 1 pages in 0 minutes",
        "bob: 1 pages in 0 minutes",
        "bob: 2 pages in 5 minutes",
        "ann, session 0: 3 pages, the last is paid",
        "ann, session 1: 1 pages, the last is home",
        "ann, session 2: 1 pages, the last is home",
        "bob, session 0: 1 pages, the last is home",
        "bob, session 1: 2 pages, the last is paid",
    ],
    "join": [
        'hats {"pieces":4,"cents":10000}',
        'shoes {"pieces":3,"cents":17000}',
        'unknown {"pieces":1}',
    ],
    "scoring": [
        'delivery 0 {"minutes":9.0}',
        'delivery 1 {"minutes":31.0}',
        'delivery 2 {"minutes":83.0}',
    ],
}


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_of_format_4_and_holds_no_results(name: str) -> None:
    found = notebook(name)
    assert set(found) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    assert found["metadata"]["kernelspec"]["name"] == "python3"
    assert found["metadata"]["language_info"] == {"name": "python"}
    ids = [cell["id"] for cell in found["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one) for one in ids)
    for cell in found["cells"]:
        assert set(cell) == CELL[cell["cell_type"]]
        assert cell["metadata"] == {}
        assert all(isinstance(line, str) for line in cell["source"])
        assert [line.endswith("\n") for line in cell["source"]] == [True] * (len(cell["source"]) - 1) + [False]
        if cell["cell_type"] == "code":
            assert (cell["execution_count"], cell["outputs"]) == (None, [])


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_begins_with_how_to_start(name: str) -> None:
    first, where = notebook(name)["cells"][:2]
    assert first["cell_type"] == "markdown"
    text = "".join(first["source"])
    for words in ("# ", "magnetar standalone\n", "`ready:`", "`MAGNETAR_SERVICE_URL`", "`MAGNETAR_EXAMPLES`"):
        assert words in text
    read = set(re.findall(r'environ\.get\("(\w+)"', "".join(where["source"])))
    assert {"MAGNETAR_SERVICE_URL", "MAGNETAR_EXAMPLES"} <= read
    assert all(f"`{variable}`" in text for variable in read)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", list(RESULTS))
def test_the_cells_of_a_notebook_give_its_result(
    name: str, session: Session, cluster: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGNETAR_SERVICE_URL", cluster.service_url)
    monkeypatch.setenv("MAGNETAR_EXAMPLES", str(tmp_path))
    give_session(monkeypatch, session)
    assert printed(name) == RESULTS[name]


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Server]:
    config = tmp_path / "functions_worker.yml"
    config.write_text("sparkMaster: local[2]\nsparkDriverMemory: 512m\n")
    with running("standalone", tmp_path / "server", "--config", str(config)) as it:
        yield it


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_notebook_of_functions_deploys_and_runs_them(
    standalone: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGNETAR_SERVICE_URL", standalone.service_url)
    monkeypatch.setenv("MAGNETAR_ADMIN_URL", standalone.web_url)
    monkeypatch.setenv("MAGNETAR_EXAMPLES", str(tmp_path))
    assert [line.rstrip() for line in printed("functions")] == [
        "bronze done 6 rows",
        "silver done 6 rows",
        "gold done 4 rows",
        "Bronze: 6 messages",
        "cellar {'readings': 1, 'celsius': 9.0}",
        "roof {'readings': 2, 'celsius': 22.0}",
    ]
