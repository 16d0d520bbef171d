"""Module namespaces of functions that share a process."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pulsar
import pytest
from magnetar.api import Function, PickleSerDe
from magnetar.errors import FunctionLoadError
from magnetar.instance.loading.import_space import ImportSpace, SpacePickleSerDe, prefix_of

MakeSpace = Callable[..., ImportSpace]


@pytest.fixture
def make_space(tmp_path: Path) -> Iterator[MakeSpace]:
    spaces: list[ImportSpace] = []

    def make(name: str, files: dict[str, str]) -> ImportSpace:
        root = tmp_path / name
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        space = ImportSpace(f"t/n/{name}:0", root)
        space.install()
        spaces.append(space)
        return space

    before = set(sys.modules), list(sys.meta_path)
    yield make
    for space in spaces:
        space.remove()
    assert not [name for name in set(sys.modules) - before[0] if name.startswith("fn_")]
    assert sys.meta_path == before[1]


def test_each_function_has_its_own_util(make_space: MakeSpace) -> None:
    code = "import util\nfrom util import NAME\ndef process(x): return util.NAME + NAME"
    first = make_space("a", {"main.py": code, "util.py": "NAME = 'a'"})
    second = make_space("b", {"main.py": code, "util.py": "NAME = 'b'"})
    mains = [space.import_module("main") for space in (first, second)]
    assert [main.process("") for main in mains] == ["aa", "bb"]
    assert "util" not in sys.modules


def test_import_after_both_have_started(make_space: MakeSpace) -> None:
    """Late imports, in a call, from another thread, and a third module of the same name."""
    code = "def process(x):\n    import late\n    return late.NAME"
    spaces = [make_space(name, {"main.py": code, "late.py": f"NAME = {name!r}"}) for name in "abc"]
    mains = [space.import_module("main") for space in spaces]
    found: list[str] = []
    threads = [threading.Thread(target=lambda main=main: found.append(main.process(""))) for main in mains]
    for thread in threads:
        thread.start()
        thread.join()
    assert found == ["a", "b", "c"]


PACKAGE = {
    "main.py": "import lib.deep.leaf\nimport lib.deep.leaf as leaf\nfrom lib import deep\nfrom lib.deep import *\n"
    "def process(x): return lib.deep.leaf.VALUE, leaf.VALUE, deep.leaf.VALUE, STARRED",
    "lib/__init__.py": "from . import side\nfrom .side import SIDE",
    "lib/side.py": "SIDE = 1\nimport json\nJSON = json",
    "lib/deep/__init__.py": "from ..side import SIDE as STARRED\n__all__ = ['STARRED']",
    "lib/deep/leaf.py": "from .. import SIDE\nfrom lib.side import SIDE as AGAIN\nVALUE = SIDE + AGAIN",
}


def test_packages_and_relative_imports(make_space: MakeSpace) -> None:
    files = PACKAGE | {
        "lib/deep/leaf.py": "from .. import SIDE\nfrom lib.side import SIDE as AGAIN\nVALUE = SIDE + AGAIN"
    }
    space = make_space("a", files)
    assert space.import_module("main").process("") == (2, 2, 2, 1)
    assert space.import_module("lib.side").JSON is sys.modules["json"]
    assert f"{space.prefix}.lib.deep.leaf" in sys.modules


def test_name_of_the_package_wins_over_the_standard_library(make_space: MakeSpace) -> None:
    space = make_space("a", {"main.py": "import queue\nimport html", "queue.py": "MINE = 1", "html/readme.txt": ""})
    main = space.import_module("main")
    assert main.queue.MINE == 1
    assert main.html is sys.modules["html"]
    assert not hasattr(sys.modules["queue"], "MINE")


CLASSES = """
from __future__ import annotations
import dataclasses, enum, importlib, pickle, typing

@dataclasses.dataclass
class Point:
    x: int
    kind: typing.ClassVar[str] = "p"
    inner: Inner | None = None

@dataclasses.dataclass(frozen=True)
class Inner:
    color: Color

class Color(enum.Enum):
    RED = 1

class Pair(typing.NamedTuple):
    a: int

def process(x):
    point = Point(1, Inner(Color.RED))
    hints = typing.get_type_hints(Point)
    return (pickle.loads(pickle.dumps(point)) == point, pickle.loads(pickle.dumps(Pair(2))), hints["inner"],
            dataclasses.fields(Point)[0].name, importlib.import_module("util").NAME,
            importlib.import_module(".util", __package__ or None).NAME if __package__ else None)
"""


def test_dataclass_type_hints_pickle_and_import_module(make_space: MakeSpace) -> None:
    space = make_space("a", {"main.py": CLASSES, "util.py": "NAME = 'u'"})
    main = space.import_module("main")
    is_same, pair, hint, field, name, relative = main.process("")
    assert is_same
    assert pair == (2,)
    assert hint == main.Inner | None
    assert (field, name, relative) == ("x", "u", "u")


def test_pickles_travel_between_functions_and_processes(make_space: MakeSpace) -> None:
    files = {
        "main.py": "import shapes",
        "shapes.py": "import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int",
    }
    first, second = make_space("a", files), make_space("b", files)
    ours = first.import_module("shapes").P
    data = SpacePickleSerDe(first).serialize([ours(3), "text", ours])
    assert b"fn_" not in data
    point, _, kind = SpacePickleSerDe(second).deserialize(data)
    assert kind is second.import_module("shapes").P
    assert point == kind(3)
    # As a process has it, under its own name; and what plain pickle wrote inside a thread function.
    module = ModuleType("shapes")
    sys.modules["shapes"] = module
    try:
        exec(files["shapes.py"], vars(module))
        assert PickleSerDe().deserialize(data)[0] == module.P(3)
        elsewhere = PickleSerDe().serialize(module.P(4))
    finally:
        del sys.modules["shapes"]
    assert SpacePickleSerDe(first).deserialize(elsewhere) == ours(4)
    assert SpacePickleSerDe(second).deserialize(pickle.dumps(ours(5))) == kind(5)


def test_many_functions_ask_the_import_system_for_one_finder(make_space: MakeSpace) -> None:
    """Every import of the process asks each finder, so that one per function would make all of them slower."""
    make_space("first", {"main.py": ""}).import_module("main")
    before = len(sys.meta_path)
    mains = [make_space(f"f{number}", {"main.py": f"NAME = {number}"}).import_module("main") for number in range(5)]
    assert [main.NAME for main in mains] == list(range(5))
    assert len(sys.meta_path) == before


def test_missing_module_is_named_without_prefix(make_space: MakeSpace) -> None:
    space = make_space("a", {"main.py": "import nowhere"})
    with pytest.raises(ModuleNotFoundError, match="No module named 'nowhere'"):
        space.import_module("main")
    with pytest.raises(ModuleNotFoundError, match="No module named 'absent'") as raised:
        space.import_module("absent")
    assert raised.value.name == "absent"


def test_new_install_begins_with_no_modules(make_space: MakeSpace, tmp_path: Path) -> None:
    old = make_space("a", {"main.py": "VERSION = 1"}).import_module("main")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "main.py").write_text("VERSION = 2")
    space = ImportSpace("t/n/a:0", tmp_path / "new")
    space.install()
    assert space.import_module("main").VERSION == 2
    assert old.VERSION == 1
    space.remove()


def test_package_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FunctionLoadError, match="does not exist"):
        ImportSpace("k", tmp_path / "nothing").install()
    (tmp_path / "x.jar").touch()
    with pytest.raises(FunctionLoadError, match=r"neither a \.py file nor a directory"):
        ImportSpace("k", tmp_path / "x.jar").install()


def test_pulsar_is_the_facade_for_user_code_only(make_space: MakeSpace) -> None:
    code = "import pulsar, pulsar.functions.serde\nfrom pulsar import Function, IdentitySerDe\n"
    main = make_space("a", {"main.py": code}).import_module("main")
    assert main.Function is Function
    assert main.pulsar is not pulsar
    assert sys.modules["pulsar"] is pulsar
    assert main.pulsar.functions.serde.IdentitySerDe is main.IdentitySerDe
    assert main.pulsar.Client is pulsar.Client


def test_official_client_is_reached_through_the_facade(make_space: MakeSpace) -> None:
    code = "import pulsar.schema\nfrom pulsar.schema import Record\nimport pulsar"
    main = make_space("a", {"main.py": code}).import_module("main")
    assert main.Record is pulsar.schema.Record
    assert main.pulsar.schema is pulsar.schema


def test_prefixes_differ_where_names_only_look_alike() -> None:
    names = {prefix_of("a/b/c-d:0"), prefix_of("a/b/c_d:0"), prefix_of("a/b-c/d:0"), prefix_of("a/b/c-d:1")}
    assert len(names) == 4
    assert all(name.isidentifier() for name in names)
