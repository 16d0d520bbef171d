"""The demo's connectors: a file source sends the lines, a file sink stores the identifiers."""

from __future__ import annotations

import json
import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..failure import Failure
from ..rest import Admin
from .corpus import Corpus

SOURCE = "read-lines"
SINK = "keep-identifiers"
SINKS = "/admin/v3/sinks/public/default"
SOURCES = "/admin/v3/sources/public/default"
KEPT_TIMEOUT_S = 30.0


def lay_out(corpus: Corpus, directory: Path) -> None:
    """Fill a directory with links to the corpus files."""
    for path in corpus.paths:
        link = directory / path.relative_to(corpus.root)
        link.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(path, link)


def create_sink(rest: Admin, topic: str, directory: Path) -> str:
    """Create the sink that stores a topic's messages in files, and return the file format."""
    kind = "parquet" if find_spec("pyarrow") is not None else "json"
    configs = {"outputDirectory": str(directory.absolute()), "format": kind, "valueType": "text", "rollSeconds": 2}
    config = {
        "archive": "builtin://file",
        "inputs": [topic],
        "sourceSubscriptionPosition": "Earliest",
        "configs": configs,
    }
    rest.send_parts("POST", f"{SINKS}/{SINK}", _part("sinkConfig", config))
    return kind


def create_source(rest: Admin, topic: str, directory: Path) -> None:
    """Create the source that sends the lines of all files below a directory to a topic, keyed by file name."""
    configs = {
        "inputDirectory": str(directory.absolute()),
        "keepFile": True,
        "ignoreHiddenFiles": False,
        "fileFilter": ".*",
        "key": "path",
        "withProperties": False,
    }
    config = {"archive": "builtin://file", "topicName": topic, "configs": configs}
    rest.send_parts("POST", f"{SOURCES}/{SOURCE}", _part("sourceConfig", config))


def _part(name: str, config: dict[str, Any]) -> dict[str, tuple[str | None, str | bytes, str]]:
    return {name: (None, json.dumps(config), "application/json")}


def check_kept(directory: Path, expected: int) -> None:
    """Wait until the sink has completed its last file, and compare the number of rows with the number of messages.

    Raises:
        Failure: the numbers differ.
    """
    deadline_s = time.monotonic() + KEPT_TIMEOUT_S
    while (kept := _rows(directory)) != expected:
        if kept > expected or time.monotonic() > deadline_s:
            raise Failure(f"the sink stored {kept:,} rows for {expected:,} messages in {directory}")
        time.sleep(0.05)


def _rows(directory: Path) -> int:
    rows = 0
    for path in directory.glob("[!.]*"):
        if path.suffix == ".parquet":
            from pyarrow import parquet

            rows += parquet.read_metadata(path).num_rows
        else:
            with open(path, "rb") as file:
                rows += sum(1 for _ in file)
    return rows
