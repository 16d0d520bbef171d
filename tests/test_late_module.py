"""Modules that are imported when somebody asks for a name of them."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_late_module_is_imported_with_its_first_name_and_only_once() -> None:
    run("""
import sys, magnetar
import logging
magnetar.late_module("logging.config")
import logging.config
assert isinstance(logging.config, magnetar.LateModule)
assert "socketserver" not in sys.modules
held = logging.config
assert held.dictConfig.__module__ == "logging.config"
import logging.config
assert not isinstance(logging.config, magnetar.LateModule)
assert held.dictConfig is logging.config.dictConfig
""")


def test_names_are_imported_from_a_late_module_as_from_any() -> None:
    run("""
import magnetar
magnetar.late_module("idna")
from idna import IDNAError, encode
import idna
assert encode("bücher.example") == b"xn--bcher-kva.example"
assert idna.IDNAError is IDNAError
""")


def test_modules_of_a_late_package_are_those_of_the_real_one() -> None:
    run("""
import importlib.util, magnetar
magnetar.late_module("idna")
assert importlib.util.find_spec("idna").loader is not None
from idna.core import IDNAError
import idna
assert idna.IDNAError is IDNAError
assert "encode" in dir(idna)
""")


@pytest.mark.parametrize("name", ["no_such_module_anywhere", "json"])
def test_a_module_that_is_missing_or_imported_gets_no_late_one(name: str) -> None:
    run(f"""
import json, sys, magnetar
magnetar.late_module({name!r})
assert not isinstance(sys.modules.get({name!r}), magnetar.LateModule)
""")


def test_threads_that_ask_at_once_get_the_same_module() -> None:
    run("""
import logging, magnetar, threading
magnetar.late_module("logging.config")
import logging.config
late, gate, found = logging.config, threading.Barrier(8), []
def ask():
    gate.wait()
    found.append(late.DictConfigurator)
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == 8 and len(set(map(id, found))) == 1
""")


def test_protobuf_works_without_its_python_part_and_has_it_for_who_asks() -> None:
    run("""
import sys
from magnetar.wire import pulsar_api_pb2 as pb
assert "google.protobuf.text_format" not in sys.modules
message = pb.MessageIdData(ledgerId=1, entryId=2)
from google.protobuf import json_format, text_format
assert text_format.MessageToString(message).split() == ["ledgerId:", "1", "entryId:", "2"]
assert json_format.MessageToDict(message) == {"ledgerId": "1", "entryId": "2"}
from google.protobuf.internal import python_message
assert python_message.GeneratedProtocolMessageType.__name__ == "GeneratedProtocolMessageType"
""")
