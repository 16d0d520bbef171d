"""A library that is not installed is named, with what to install."""

from __future__ import annotations

import json
import re
import sys

import pytest
from magnetar.connectors.libraries import need
from magnetar.errors import InvalidConfig


def test_need_imports_a_module() -> None:
    assert need("none", "json") is json


def test_need_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("paho", "paho.mqtt", "paho.mqtt.client"):
        monkeypatch.setitem(sys.modules, module, None)
    text = "the connector mqtt needs paho-mqtt: pip install 'magnetar[mqtt]'"
    with pytest.raises(InvalidConfig, match=re.escape(text)):
        need("mqtt", "paho.mqtt.client")
    text = "the connector jdbc-poll needs no_such_module_at_all: pip install 'magnetar[jdbc]'"
    with pytest.raises(InvalidConfig, match=re.escape(text)):
        need("jdbc", "no_such_module_at_all", "jdbc-poll")


def test_need_says_why_a_module_that_is_there_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("modules")
    (directory / "broken_for_need.py").write_text("raise ImportError('libpq is missing')\n")
    monkeypatch.syspath_prepend(directory)
    with pytest.raises(InvalidConfig, match=r"needs broken_for_need \(libpq is missing\): pip install"):
        need("jdbc", "broken_for_need")
