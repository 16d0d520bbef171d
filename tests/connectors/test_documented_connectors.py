"""The connectors in docs/connectors.md and docs/how-to/write-a-connector.md do what the pages say."""

from __future__ import annotations

import importlib
import json
import logging
import re
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import magnetar
import pytest
import yaml
from magnetar.api import Record
from magnetar.api.connector_config import read_config
from magnetar.cli.connectors.connectors import _EXAMPLES
from magnetar.connectors.register import find
from magnetar.errors import PackageError
from magnetar.instance.examination.connector_check import connector_class
from magnetar.instance.examination.source_check import Modules

DOCS = Path(magnetar.__file__).parent / "docs"
PAGE = (DOCS / "connectors.md").read_text(encoding="utf-8")
GUIDE = (DOCS / "how-to" / "write-a-connector.md").read_text(encoding="utf-8")


def block(name: str, language: str, directory: Path) -> Path:
    """The first code block behind a name, as that file."""
    found = re.search(rf"`{re.escape(name)}`.*?^```{language}\n(.*?)^```", PAGE + GUIDE, re.MULTILINE | re.DOTALL)
    assert found is not None
    (directory / name).write_text(found[1])
    return directory / name


def load(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.delitem(sys.modules, path.stem, raising=False)
    return getattr(importlib.import_module(path.stem), name)


def context(**attributes: Any) -> Any:
    return SimpleNamespace(position=None, logger=logging.getLogger(__name__), **attributes)


def test_the_source_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = block("ticker.py", "python", tmp_path)
    assert connector_class(Modules(path), "", "source") == "ticker.Ticker"
    ticker = load(path, "Ticker", monkeypatch)()
    ticker.open(read_config(type(ticker).config, {"rate": 1000}), context())
    assert [ticker.read().value for _ in range(2)] == ["tick 1", "tick 2"]
    again = type(ticker)()
    again.open(
        read_config(type(ticker).config, {}), SimpleNamespace(position=json.loads(json.dumps(ticker.snapshot())))
    )
    assert (again.number, again.pause_s) == (2, 1.0)


def test_a_package_of_the_other_kind_is_named(tmp_path: Path) -> None:
    path = block("ticker.py", "python", tmp_path)
    with pytest.raises(PackageError) as raised:
        connector_class(Modules(path), "", "sink")
    assert str(raised.value) == (
        "Sink class is not provided: set className to module.Class; the package has no subclass of Sink, but the source"
        " ticker.Ticker (`magnetar sources create`)"
    )


def test_the_sink_writes_each_key_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = block("rows.py", "python", tmp_path)
    assert connector_class(Modules(path), "", "sink") == "rows.Rows"
    rows = load(path, "Rows", monkeypatch)()
    rows.open(read_config(type(rows).config, {"path": str(tmp_path / "rows.db")}), context())
    for _ in range(2):
        rows.write_batch([Record(b"1", key="a"), Record("ü".encode(), key="b")])
    rows.close()
    with sqlite3.connect(tmp_path / "rows.db") as database:
        assert database.execute("SELECT * FROM rows ORDER BY key").fetchall() == [("a", "1"), ("b", "ü")]
    database.close()


def test_the_config_file_is_one_of_the_sink_file(tmp_path: Path) -> None:
    content = yaml.safe_load(block("archive.yml", "yaml", tmp_path).read_text())
    config = read_config(find("sink", "file").config, content)
    assert (config.output_directory, config.format, config.roll_seconds) == ("/tmp/archive", "lines", 1)


def texts_that_show_files() -> dict[str, str]:
    return {"connectors.md": PAGE} | {f"{kind} --help": text for kind, text in _EXAMPLES.items()}


@pytest.mark.parametrize("place", texts_that_show_files())
def test_shown_file_connectors_keep_files_and_take_lines(place: str, tmp_path: Path) -> None:
    text = texts_that_show_files()[place]
    shown = re.findall(r"(source|sink)s create [^`]*?-type file\b[^`]*?--s(?:ource|ink)-config '(\{.*?\})'", text)
    assert shown
    for kind, configs in shown:
        connector: Any = find(kind, "file")
        config = read_config(connector.config, json.loads(configs) | {"path": str(tmp_path)})
        if kind == "source":
            assert config.tail or connector().stored_defaults(config)["keepFile"]
            continue
        sink = connector()
        sink.open(config, context(name="public/default/file-lines", instance_id=0, parallelism=1))
        sink.write_batch([Record(b"a line of a log", topic="lines", message_id="1:1:-1")])
        sink.close()
        assert [path.read_text() for path in tmp_path.iterdir()] == ["a line of a log\n"]
