"""What className may name, and what is refused."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from magnetar.api import IdentitySerDe, JsonSerDe, PickleSerDe, SerDe, batch_function
from magnetar.errors import FunctionLoadError
from magnetar.instance.loading.kinds import Kind
from magnetar.instance.loading.loader import SHOWN_AFTER_S, Loading, ProcessHome, load_function, load_serde

from tests.support.instances import spec_maker


class TextHome:
    """A package of one module that is written here."""

    def __init__(self, code: str) -> None:
        self.loading = Loading()
        self.module = ModuleType("m")
        exec(code, vars(self.module))

    def enter_thread(self) -> None: ...

    def leave_thread(self) -> None: ...

    def import_module(self, name: str) -> ModuleType:
        if name != "m":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return self.module

    def pickle_serde(self) -> SerDe:
        return PickleSerDe()


def load(tmp_path: Any, code: str, class_name: str) -> Any:
    return load_function(spec_maker("", tmp_path, "t")(class_name=class_name), TextHome(code))


@pytest.mark.parametrize(
    ("code", "class_name", "takes_context"),
    [
        ("def f(x): return x", "m.f", False),
        ("def f(x, context): return x", "m.f", True),
        ("def f(x, y): return x", "m.f", True),
        ("def f(x, context=None): return x", "m.f", True),
        ("def f(x, times=2): return x", "m.f", False),
        ("def f(*args): return args[0]", "m.f", True),
        ("def f(x, **more): return x", "m.f", False),
        ("f = lambda x: x", "m.f", False),
        ("f = len", "m.f", False),
        ("def process(x): return x", "m", False),
        ("class F:\n    def process(self, input, context): return input", "m.F", True),
        ("class F:\n    def process(self, input): return input", "m.F", False),
        ("class F:\n    @staticmethod\n    def process(input, context): return input", "m.F", True),
        ("class F:\n    def __call__(self, x): return x\nf = F()", "m.f", False),
        ("class Context: pass\ndef f(x, it: Context = None): return x", "m.f", True),
        ("def f(x, it: 'pulsar.Context | None' = None): return x", "m.f", True),
    ],
)
def test_kinds_of_functions(tmp_path: Any, code: str, class_name: str, takes_context: bool) -> None:
    loaded = load(tmp_path, code, class_name)
    assert loaded.takes_context is takes_context
    arguments = ("x", None) if takes_context else ("x",)
    assert callable(functools.partial(loaded.call, *arguments))


@pytest.mark.parametrize(
    ("code", "class_name", "expected"),
    [
        ("x = 7", "m.x", "names a int, not a class or function"),
        ("def f(): pass", "m.f", r"takes \(\): it must accept the message"),
        ("def f(x, *, needed): pass", "m.f", r"takes \(x, needed\)"),
        ("def f(x, y, z): return x", "m.f", r"takes \(x, y, z\): it must accept the message"),
        ("async def f(): pass", "m.f", r"takes \(\): it must accept the message"),
        ("class F:\n    async def process(self): pass", "m.F", r"takes \(\): it must accept the message"),
        ("class F: pass", "m.F", "has no method process"),
        ("class Other: pass", "m.F", "module 'm' has no 'F'; it defines Other"),
        ("", "m", "module 'm' has no 'process'; it defines no function or class"),
        ("", "nowhere.f", "the package has no module 'nowhere'"),
        ("", "a.b.f", "the package has no module 'a.b'"),
    ],
)
def test_what_cannot_be_called_is_refused(tmp_path: Any, code: str, class_name: str, expected: str) -> None:
    with pytest.raises(FunctionLoadError, match=expected):
        load(tmp_path, code, class_name)


KINDS = """
import functools, time
from magnetar import batch_function

def plain(x): return x
def generator(x): yield x
async def coroutine(x): return x
async def stream(x): yield x
@batch_function
def batch(xs): return xs
@batch_function(max_messages=7)
def small(xs, context): return xs

def timed(function):
    @functools.wraps(function)
    def timed_function(*args):
        began = time.time()
        return function(*args)
    return timed_function

timed_generator, timed_coroutine, timed_batch = timed(generator), timed(timed(coroutine)), timed(batch)
partial = functools.partial(lambda extra, x: x, 1)
partial_stream = functools.partial(timed(stream))

class Process:
    async def process(self, input, context): return input
class Generating:
    def process(self, input, context): yield input
class Together:
    @batch_function
    def process(self, inputs, context): return inputs
class Called:
    async def __call__(self, x): return x
called = Called()
class Chosen:
    def __init__(self): self.process = coroutine
"""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("plain", Kind.PLAIN), ("generator", Kind.GENERATOR), ("coroutine", Kind.ASYNC),
        ("stream", Kind.ASYNC_GENERATOR), ("batch", Kind.BATCH), ("small", Kind.BATCH),
        ("timed_generator", Kind.GENERATOR),
        ("timed_coroutine", Kind.ASYNC), ("timed_batch", Kind.BATCH), ("partial", Kind.PLAIN),
        ("partial_stream", Kind.ASYNC_GENERATOR), ("Process", Kind.ASYNC), ("Generating", Kind.GENERATOR),
        ("Together", Kind.BATCH), ("called", Kind.ASYNC), ("Chosen", Kind.ASYNC),
    ],
)  # fmt: skip
def test_the_kind_is_found_behind_methods_partials_and_decorators(tmp_path: Any, name: str, kind: Kind) -> None:
    loaded = load(tmp_path, KINDS, f"m.{name}")
    assert loaded.kind is kind
    assert loaded.batch_size == (7 if name == "small" else 1000 if kind is Kind.BATCH else 1)
    assert (loaded.loop is not None) is kind.is_async
    if loaded.loop is not None:
        loaded.loop.close()


def test_an_object_with_an_async_method_is_made_while_its_loop_runs(tmp_path: Any) -> None:
    code = "import asyncio\nclass F:\n    def __init__(self): self.loop = asyncio.get_running_loop()\n"
    loaded = load(tmp_path, code + "    async def process(self, input): return input", "m.F")
    assert loaded.call.__self__.loop is loaded.loop
    loaded.loop.close()


@pytest.mark.parametrize("code", ["async def f(xs): return xs", "def f(xs): yield xs"])
def test_a_batch_function_of_another_kind_too_is_refused(tmp_path: Any, code: str) -> None:
    with pytest.raises(FunctionLoadError, match="decorated with batch_function but is a"):
        load(tmp_path, f"from magnetar import batch_function\n@batch_function\n{code}", "m.f")


@pytest.mark.parametrize("number", [0, -1, 1001, 2.5, True, "x"])
def test_the_size_of_a_batch_has_limits(number: Any) -> None:
    with pytest.raises(ValueError, match="of batch_function: expected 1 to 1000"):
        batch_function(max_messages=number)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("", IdentitySerDe),
        ("IdentitySerDe", IdentitySerDe),
        ("serde.IdentitySerDe", IdentitySerDe),
        ("JsonSerDe", JsonSerDe),
        ("pulsar.JsonSerDe", JsonSerDe),
        ("pulsar.PickleSerDe", PickleSerDe),
        ("magnetar.api.serde.PickleSerDe", PickleSerDe),
    ],
)
def test_our_serdes_by_their_many_names(name: str, kind: type) -> None:
    assert type(load_serde(TextHome(""), name)) is kind


@pytest.mark.parametrize(
    ("code", "name", "expected"),
    [
        ("", "Json", "expected one of IdentitySerDe, JsonSerDe, PickleSerDe, or module.Class for your own class"),
        ("", "m.Json", "module 'm' has no 'Json'"),
        ("Json = 7", "m.Json", "names a int, not a class"),
        ("class Json:\n    def serialize(self, x): pass", "m.Json", "has no method deserialize"),
    ],
)
def test_serdes_that_are_none_are_refused(code: str, name: str, expected: str) -> None:
    with pytest.raises(FunctionLoadError, match=expected):
        load_serde(TextHome(code), name)


def test_step_that_takes_long_says_what_it_is_since_when_and_where() -> None:
    now_s = 100.0
    loading = Loading(lambda: now_s)
    assert loading.trouble() == ""
    with loading.step("importing module slow"):
        now_s += SHOWN_AFTER_S - 1
        assert loading.trouble() == ""
        now_s += 8
        with loading.step("creating an instance of class slow.C"):
            assert loading.trouble() == ""
        assert loading.trouble().startswith("importing module slow for 12 s; now at line ")
        assert "loader.py" in loading.trouble()
    assert loading.trouble() == ""


def test_files_beside_a_single_file_are_no_part_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Functions of the same content share a directory; with thousands of files a look at each would take long."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("asyncio.py", "lone_function.py"):
        (tmp_path / name).write_text("def process(x): return x")
    try:
        assert ProcessHome(tmp_path / "lone_function.py").import_module("lone_function").process(1) == 1
    finally:
        sys.modules.pop("lone_function", None)
    assert capfd.readouterr().err == ""  # else: that asyncio has the name of a standard library module
