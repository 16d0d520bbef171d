"""Functions that use their state: found in the source, and refused or stopped where there is no state store."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from magnetar.instance.examination.source_check import Modules
from magnetar.instance.examination.state_calls import NODES_MAX, find_state_call

from tests.support.eventually import eventually

from .conftest import Cluster

DIRECT = "def process(text, context):\n    context.incr_counter('n', 1)\n"
HELPER = """
def process(text, ctx):
    return count(ctx, text)

def count(context, text):
    if text:
        context.put_state(text, text)
"""
METHODS = """
class F:
    def process(self, text, context):
        return self.count(text, to=context)

    def count(self, text, to):
        to.del_counter(text)
"""
KEPT = """
class F:
    def count(self):
        return self.context.get_counter("n")

    def process(self, text, context):
        self.context = context
        return self.count()
"""
SOURCE = """
class F:
    def read(self):
        return self._context.get_state("at")

    def open(self, config, context):
        self._context = context
"""
OTHER_OBJECT = "def process(text, context):\n    return machine.get_state(text)\n"
UNREACHED = "def process(text, context):\n    return text\n\ndef other(text, context):\n    context.get_state(text)\n"
HANDLED = """
def process(text, context):
    try:
        context.incr_counter("n", 1)
    except StateUnavailable:
        pass
"""
HANDLED_AS_ANYTHING = HANDLED.replace("StateUnavailable", "Exception")
SET_UP_ELSEWHERE = """
class F:
    def process(self, text, context):
        self.prepare(context)
        return self.context.get_state(text)

    def prepare(self, context):
        self.context = context
"""
DEEP = "def process(i, c):\n f0(c)\n" + "".join(f"def f{n}(c):\n f{n + 1}(c)\n" for n in range(2000))
DEEP += "def f2000(c):\n c.get_state('k')\n"
RECURSIVE = "def process(text, context):\n    return process(text, context)\n"


@pytest.mark.parametrize(
    ("source", "class_name", "found"),
    [
        (DIRECT, "m.process", "incr_counter on line 2 of m.py"),
        (DIRECT, "m", "incr_counter on line 2 of m.py"),
        (DIRECT.replace("def", "async def"), "m.process", "incr_counter on line 2 of m.py"),
        (HELPER, "m.process", "put_state on line 7 of m.py"),
        (METHODS, "m.F", "del_counter on line 7 of m.py"),
        (KEPT, "m.F", "get_counter on line 4 of m.py"),
        (SOURCE, "m.F", "get_state on line 4 of m.py"),
        (SET_UP_ELSEWHERE, "m.F", "get_state on line 5 of m.py"),
        (DEEP, "m.process", "get_state on line 4004 of m.py"),
        (HANDLED_AS_ANYTHING, "m.process", "incr_counter on line 4 of m.py"),
        (OTHER_OBJECT, "m.process", ""),
        (UNREACHED, "m.process", ""),
        (HANDLED, "m.process", ""),
        (RECURSIVE, "m.process", ""),
        ("from other import process\n", "m.process", ""),
    ],
)
def test_state_calls_are_found_where_they_are_certain(tmp_path: Path, source: str, class_name: str, found: str) -> None:
    for package in (tmp_path / "m.py", tmp_path):
        (tmp_path / "m.py").write_text(source)
        assert find_state_call(Modules(package), class_name) == found


@pytest.mark.parametrize(
    "source",
    [
        "def process(i, c):\n" + " g(c)\n" * 4000 + "".join(f"def g{n}(c): 0\n" for n in range(3000)),
        "def process(i, c):\n" + " g(c)\n" * 4000 + "def g(c): 0\n" * 3000,
        "def process(i, c):\n g(" + ",".join(f"k{n}=c" for n in range(3000)) + ")\ndef g(**k):\n" + " a(1)\n" * 3000,
        "def process(i, c):\n try:\n" + "  0\n" * 10_000 + " except MagnetarError: 0\n",
    ],
    ids=["calls and functions", "one name", "keywords", "guarded"],
)
def test_the_work_of_a_search_is_bounded(tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    visits = 0

    def counted(node: ast.AST) -> Iterator[ast.AST]:
        nonlocal visits
        for child in iter_child_nodes(node):
            visits += 1
            yield child

    iter_child_nodes = ast.iter_child_nodes
    (tmp_path / "m.py").write_text(source)
    monkeypatch.setattr(ast, "iter_child_nodes", counted)
    assert find_state_call(Modules(tmp_path / "m.py"), "m.process") == ""
    assert visits < 2 * NODES_MAX


@pytest.mark.slow
async def test_a_function_with_a_state_call_is_not_created_without_a_state_store(cluster: Cluster) -> None:
    answer = await cluster.create("counts", DIRECT, inputs=[cluster.topic("in")])
    assert answer.status_code == 400
    assert answer.json()["reason"] == (
        "className counts.process calls incr_counter on line 2 of counts.py, and no state store is configured: set"
        " stateStorageServiceUrl in the worker configuration, or pass --state-storage-service-url to localrun, with the"
        " address of a `magnetar state-store`, as bk://host:port"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "def process(text, context):\n    getattr(context, 'incr_counter')('n', 1)\n",
        "async def process(text, context):\n    getattr(context, 'put_state')('n', b'1')\n",
        "def process(text, context):\n    yield getattr(context, 'get_state')('n')\n",
    ],
    ids=["function", "async", "generator"],
)
async def test_the_first_state_call_stops_the_instance_without_a_state_store(cluster: Cluster, source: str) -> None:
    topic = cluster.topic("hidden-in")
    answer = await cluster.create("hidden", source, inputs=[topic], output=cluster.topic("hidden-out"))
    assert answer.status_code == 204, answer.text
    await (await cluster.client.create_producer(topic)).send(b"one")

    async def reason() -> str:
        status = (await cluster.get("hidden/status"))["instances"][0]["status"]
        assert status["numUserExceptions"] == 0
        return str(status["error"])

    text = await eventually(reason, "reason in the status")
    assert "'n': no state store is configured: set stateStorageServiceUrl" in text
    assert len(text.splitlines()) == 1
