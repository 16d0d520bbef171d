"""What className may name, and what is refused."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import pytest
from magnetar.api import IdentitySerDe, JsonSerDe, PickleSerDe, SerDe
from magnetar.errors import FunctionLoadError
from magnetar.instance.loading.loader import SHOWN_AFTER_S, Loading, load_function, load_serde

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
        ("def f(): pass", "m.f", r"takes \(\); it must take the message"),
        ("def f(x, *, needed): pass", "m.f", r"takes \(x, needed\)"),
        ("def f(x):\n    yield x", "m.f", "generator function, which is not supported yet"),
        ("class F:\n    async def process(self, x, c): pass", "m.F", "async def function, which is not supported yet"),
        ("class F: pass", "m.F", "has no method process"),
        ("class Other: pass", "m.F", "module 'm' has no 'F'; it has Other"),
        ("", "m", "module 'm' has no 'process'; it defines no function or class"),
        ("", "nowhere.f", "names module 'nowhere', which the package does not have"),
        ("", "a.b.f", "names module 'a.b', which the package does not have"),
    ],
)
def test_what_cannot_be_called_is_refused(tmp_path: Any, code: str, class_name: str, expected: str) -> None:
    with pytest.raises(FunctionLoadError, match=expected):
        load(tmp_path, code, class_name)


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
        ("", "Json", "is not one of IdentitySerDe, JsonSerDe, PickleSerDe; a class of your own is module.Class"),
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
        with loading.step("making an object of class slow.C"):
            assert loading.trouble() == ""
        assert loading.trouble().startswith("importing module slow since 12 s; now at line ")
        assert "loader.py" in loading.trouble()
    assert loading.trouble() == ""
