"""Functions become packages: what is sent by value, what by name, and what is refused by its name."""

from __future__ import annotations

import functools
import importlib
import io
import json
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import magnetar
import pytest
from magnetar.api.pickled_function import MODULE, PICKLE_FILE, VERSION_FILE, version_refusal
from magnetar.client.deploy.deployment import function_config, pack
from magnetar.errors import InvalidConfig, PackageError, UnpicklableFunction

LOCK = threading.Lock()
RATES = {"pear": 2}


def rated(name: str) -> int:
    return RATES[name]


def locked(text: str) -> str:
    with LOCK:
        return text


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """Writes modules of the user's own and imports the last one; afterwards they are forgotten."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(**sources: str) -> ModuleType:
        for name, source in sources.items():
            path = tmp_path.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(source)
        importlib.invalidate_caches()
        return importlib.import_module(list(sources)[-1].replace("__", "."))

    yield write
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def run(function: Any, value: object, directory: Path) -> Any:
    """What a function returns in a process that has none of this one's modules, in JSON."""
    package = pack(function)
    zipfile.ZipFile(io.BytesIO(package.content)).extractall(directory)
    module, attribute = package.class_name.split(".")
    code = f"import json, {module}; print(json.dumps({module}.{attribute}({value!r})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    return directory


def refusal(function: Any) -> str:
    with pytest.raises(UnpicklableFunction) as caught:
        pack(function)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.slow
def test_function_brings_its_globals_from_a_module_that_is_not_installed(elsewhere: Path) -> None:
    assert run(rated, "pear", elsewhere) == 2


@pytest.mark.slow
def test_closures_lambdas_and_partials_are_sent(elsewhere: Path) -> None:
    for number, function in enumerate((lambda value: value * rated("pear"), functools.partial(pow, 3))):
        (directory := elsewhere / str(number)).mkdir()
        assert run(function, 2, directory) == (4, 9)[number]


@pytest.mark.slow
def test_modules_that_import_each_other_are_sent(home: Callable[..., ModuleType], elsewhere: Path) -> None:
    module = home(
        sent_left="import sent_right\nFACTOR = 3\n",
        sent_right="import sent_left\ndef times(value): return value * sent_left.FACTOR\n",
        sent_top="import sent_right\ndef go(value): return sent_right.times(value)\n",
    )
    assert run(module.go, 5, elsewhere) == 15


@pytest.mark.slow
def test_modules_imported_in_the_body_are_sent(home: Callable[..., ModuleType], elsewhere: Path) -> None:
    module = home(
        sent_late="def back(text): return text[::-1]\n",
        sent_pack____init__="",
        sent_pack__near="from . import far\n",
        sent_pack__far="import sent_late\ndef twice(text): return sent_late.back(text) * 2\n",
        sent_pack__go="def go(text):\n    from .far import twice\n    import sent_pack.near, json\n"
        "    return json.dumps([twice(text), sent_pack.near.far.__name__])\n",
    )
    for name in ("near", "far"):
        assert f"sent_pack.{name}" not in sys.modules
    assert json.loads(run(module.go, "ab", elsewhere)) == ["baba", "sent_pack.far"]


@pytest.mark.slow
def test_a_class_is_not_shared_by_two_who_restore_it(tmp_path: Path) -> None:
    """In a worker, two thread functions deployed from one session must not meet in it."""

    class Counter(magnetar.Function):
        seen = 0

        def process(self, input: Any, context: Any) -> int:  # noqa: A002
            return self.seen

    zipfile.ZipFile(io.BytesIO(pack(Counter).content)).extractall(tmp_path)
    code = (tmp_path / f"{MODULE}.py").read_text()
    spaces: list[dict[str, Any]] = []
    for _ in range(2):
        spaces.append({"__file__": str(tmp_path / f"{MODULE}.py"), "__name__": MODULE})
        exec(code, spaces[-1])
    first, second = (space["Counter"] for space in spaces)
    first.seen = 1
    assert second.seen == Counter.seen == 0
    assert first().process("", None) == 1


def test_same_function_makes_the_same_package() -> None:
    assert pack(rated) == pack(rated)
    assert pack(rated).class_name == f"{MODULE}.rated"


def test_installed_packages_are_sent_by_name() -> None:
    stream = zipfile.ZipFile(io.BytesIO(pack(lambda value: pytest.approx(value)).content)).read(PICKLE_FILE)
    assert len(stream) < 3000


def test_cloudpickle_is_left_as_it_was() -> None:
    import cloudpickle

    pack(rated)
    with pytest.raises(UnpicklableFunction):
        pack(locked)
    assert not cloudpickle.list_registry_pickle_by_value()


def test_hindering_global_is_named() -> None:
    assert "global variable LOCK of locked has type _thread.lock" in refusal(locked)
    assert refusal(locked).startswith("cannot pickle function locked: ")


def test_hindering_global_of_a_called_function_is_named() -> None:
    assert "global variable LOCK of locked has type _thread.lock" in refusal(lambda text: locked(text))


def test_hindering_closure_variables_are_named(tmp_path: Path) -> None:
    numbers = (number for number in range(3))
    file = (tmp_path / "note").open("w+")
    with file, socket.socket() as connection:
        holder = {"peers": [connection]}
        assert "closure variable numbers of " in refusal(lambda value: next(numbers))
        assert "closure variable file of " in refusal(lambda value: file.read())
        text = refusal(lambda value: holder)
        assert "closure variable holder['peers'][0] of " in text
        assert "has type socket.socket" in text


def test_hindering_attributes_defaults_and_arguments_are_named() -> None:
    class Shop:
        def __init__(self) -> None:
            self.door = threading.Lock()

        def process(self, value: str, context: object) -> str:
            return value

    assert "object Shop" not in refusal(Shop())  # the object is not it, its door is
    assert ".door" in refusal(Shop())

    def with_default(value: str, by: Any = threading.Event()) -> None:  # noqa: B008
        """Nothing."""

    assert "default value of argument by of " in refusal(with_default)
    assert "argument 0 of the partial has type _thread.lock" in refusal(functools.partial(print, LOCK))


def test_object_that_refuses_for_its_own_reasons_is_named_with_them() -> None:
    class SparkContext:
        def __getnewargs__(self) -> None:
            raise RuntimeError("it belongs to\nthe driver")

    context = SparkContext()
    text = refusal(lambda value: context)
    assert "closure variable context of " in text
    assert "SparkContext (it belongs to the driver)" in text


async def test_clients_cannot_be_pickled() -> None:
    async with magnetar.AsyncClient("pulsar://127.0.0.1:1") as client:
        assert "closure variable client of " in refusal(lambda value: client)
    assert "a client cannot be pickled" in refusal(lambda value: client)


def test_variable_of_a_local_module_is_named(home: Callable[..., ModuleType]) -> None:
    module = home(
        sent_lock="import threading\nLOCK = threading.Lock()\n",
        sent_in="import sent_lock\ndef go(value): return sent_lock\n"
        "def late(value):\n    import sent_lock\n    return sent_lock\n",
    )
    for function in (module.go, module.late):
        assert "variable LOCK of module sent_lock has type _thread.lock" in refusal(function)


def test_what_cannot_process_is_refused() -> None:
    with pytest.raises(PackageError, match=r"class Path has no process method: add process\(self, input, context\)"):
        pack(Path)
    with pytest.raises(PackageError, match=r"^invalid function 7: expected a function or class, got int"):
        pack(7)
    with pytest.raises(PackageError, match="expected a function or class, got module"):
        pack(json)


def test_python_of_another_version_is_refused_with_the_remedy() -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert version_refusal(here) == ""
    assert f"deployed from Python 3.2, but the workers run Python {here}" in version_refusal("3.2")
    assert zipfile.ZipFile(io.BytesIO(pack(rated).content)).read(VERSION_FILE).decode() == here


def test_settings_become_a_function_config() -> None:
    settings = {"runtime": "thread", "subscription": "mine", "processing_guarantees": "ATMOST_ONCE", "user_config": {}}
    assert json.loads(function_config("a", "b", {**settings, "log_topic": None})) == {
        "inputs": ["a"],
        "output": "b",
        "runtime": "PYTHON",
        "runtimeEnv": "thread",
        "subName": "mine",
        "processingGuarantees": "ATMOST_ONCE",
        "userConfig": {},
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"paralelism": 2}, "unknown field paralelism: did you mean parallelism?"),
        ({"parallelism": "2"}, "parallelism must be a whole number"),
        ({"runtime": "threads"}, "invalid runtimeEnv 'threads': expected one of process, thread"),
        ({"class_name": "a.b"}, "class_name is derived from the function: omit it"),
        ({"runtime": "thread", "runtime_env": "process"}, "duplicate setting 'runtime_env': runtimeEnv is already set"),
        ({"user_config": {"a": {1}}}, "settings are not serializable as JSON: Object of type set"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        function_config("a", None, settings)
    assert message in str(caught.value)


ANNOTATED = """
from __future__ import annotations
import dataclasses, enum, functools
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from nowhere import Context
class Kind(enum.Enum):
    TEA = 1
@dataclasses.dataclass
class Part:
    name: str
@dataclasses.dataclass
class Line(Part):
    kind: Kind
    lines: list[Line]
    more: int = 4
def loud(function):
    @functools.wraps(function)
    def call(value):
        return function(value)
    return call
def first(line: Line, context: Context) -> dict[str, Line]: ...
@loud
def wrapped(line: Line) -> Part: ...
class Process:
    def process(self, input: list[Line], context: Context) -> NotThere: ...
"""


def test_annotations_mean_the_same_where_a_function_is_restored(
    home: Callable[..., ModuleType], elsewhere: Path
) -> None:
    module = home(annotated_shop=ANNOTATED)
    assert module.first.__annotations__["line"] == "Line"
    show = (
        "import json, inspect, sys, typing; from {0} import {1} as it; it = getattr(it, 'process', it);"
        "a = {{n: v if isinstance(v, str) else repr(v) for n, v in inspect.unwrap(it).__annotations__.items()}};"
        "import dataclasses; kinds = [x for x in map(inspect.unwrap(it).__annotations__.get, ('line', 'input')) if x];"
        "line = (typing.get_args(kinds[0]) or kinds)[0];"
        "print(json.dumps([a, {{n: repr(v) for n, v in typing.get_type_hints(line).items()}},"
        " [typing.get_args(line.__annotations__['lines'])[0] is line, len(dataclasses.fields(line)),"
        " dataclasses.fields(line)[0].default is dataclasses.MISSING], 'annotated_shop' in sys.modules]))"
    )
    fields = {"name": "<class 'str'>", "kind": "<enum 'Kind'>", "lines": "list[annotated_shop.Line]"}
    fields["more"] = "<class 'int'>"
    expected = {
        "first": {
            "line": "<class 'annotated_shop.Line'>", "context": "Context", "return": "dict[str, annotated_shop.Line]",
        },
        "wrapped": {"line": "<class 'annotated_shop.Line'>", "return": "<class 'annotated_shop.Part'>"},
        "Process": {"input": "list[annotated_shop.Line]", "context": "Context", "return": "NotThere"},
    }  # fmt: skip
    for name, meant in expected.items():
        package = pack(getattr(module, name))
        directory = elsewhere / name
        zipfile.ZipFile(io.BytesIO(package.content)).extractall(directory)
        code = show.format(*package.class_name.split("."))
        done = subprocess.run([sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [meant, fields, [True, 4, True], False]
    assert module.first.__annotations__["line"] == "Line"


KINDS = """
import asyncio
from magnetar import batch_function

@batch_function(max_messages=7)
def together(texts):
    return [text + "!" for text in texts]

class Together:
    @batch_function
    def process(self, texts, context):
        return texts

def words(text):
    yield from text.split()

async def wait(text):
    return text
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("together", ["BATCH", 7, False]),
        ("Together", ["BATCH", 1000, True]),
        ("words", ["GENERATOR", 1, False]),
        ("wait", ["ASYNC", 1, False]),
    ],
)
def test_a_function_is_of_the_same_kind_where_it_is_restored(
    home: Callable[..., ModuleType], elsewhere: Path, name: str, expected: list[Any]
) -> None:
    package = pack(getattr(home(shop_of_kinds=KINDS), name))
    zipfile.ZipFile(io.BytesIO(package.content)).extractall(elsewhere)
    code = f"""
import json
from types import SimpleNamespace
from pathlib import Path
from magnetar.instance.loading.loader import ProcessHome, load_function
spec = SimpleNamespace(details=SimpleNamespace(className={package.class_name!r}))
loaded = load_function(spec, ProcessHome(Path({str(elsewhere)!r})))
print(json.dumps([loaded.kind.name, loaded.batch_size, loaded.takes_context]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=elsewhere, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected
