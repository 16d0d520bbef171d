"""Import paths of earlier versions, which stored packages, pickles and configs name, go on working."""

import importlib
import pickle
import subprocess
import sys

import pytest
from magnetar.api import moved_modules
from magnetar.client.config import ConsumerConfig
from magnetar.client.consumers.received import Message

NEEDS_SPARK = ("runtime.spark.columns", "runtime.spark.source", "runtime.spark.writer")
"""Tested where the extra is, in `tests/spark`."""


@pytest.mark.parametrize("name", [name for name in moved_modules._MOVED if name not in NEEDS_SPARK])
def test_module_is_found_under_its_former_name(name: str) -> None:
    check_former_name(name)


def check_former_name(name: str) -> None:
    today = importlib.import_module(f"magnetar.{moved_modules._MOVED[name]}")
    before = importlib.import_module(f"magnetar.{name}")
    assert before.__name__ == f"magnetar.{name}"
    classes = {key: value for key, value in vars(today).items() if isinstance(value, type)}
    assert classes
    assert {key: vars(before)[key] for key in classes} == classes


def test_pickle_that_names_a_moved_module_is_read() -> None:
    pickled = pickle.dumps(Message, protocol=0).replace(
        b"magnetar.client.consumers.received", b"magnetar.client.received"
    )
    assert pickle.loads(pickled) is Message
    assert pickle.loads(pickle.dumps(ConsumerConfig)) is ConsumerConfig


def test_module_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'magnetar\.client\.nothing'"):
        importlib.import_module("magnetar.client.nothing")


def test_the_table_is_not_read_before_it_is_needed() -> None:
    code = "import magnetar.client, sys; print('magnetar.api.moved_modules' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"
