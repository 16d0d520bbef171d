"""What is found in a package by its source alone."""

from pathlib import Path

import pytest
from magnetar.config.function_config import FunctionConfig
from magnetar.errors import PackageError
from magnetar.instance.examination.connector_check import connector_class
from magnetar.instance.examination.source import read_source
from magnetar.instance.examination.source_check import Modules, check_package
from magnetar.wire.functions_pb2 import PackageLocationMetaData
from magnetar.worker.functions.package_intake import package_id, package_name, source_question


def file_package(directory: Path, source: str, name: str = "m.py") -> Path:
    path = directory / name
    path.write_text(source)
    return path


@pytest.mark.parametrize(
    ("source", "class_name"),
    [
        ("def f(x): pass", "m.f"),
        ("def process(x): pass", "m"),
        ("async def f(x): pass", "m.f"),
        ("f = lambda x: x", "m.f"),
        ("f: object = print", "m.f"),
        ("from somewhere import f", "m.f"),
        ("from somewhere import g as f", "m.f"),
        ("from somewhere import *", "m.f"),
        ("if True:\n    def f(x): pass", "m.f"),
        ("try:\n    import x\nexcept ImportError:\n    f = None", "m.f"),
        ("with open('x') as f: pass", "m.f"),
        ("for f in []: pass", "m.f"),
        ("def __getattr__(name): ...", "m.f"),
        ("globals()['f'] = 1", "m.f"),
        ("class F:\n    def process(self, input, context): pass", "m.F"),
        ("class F:\n    process = None", "m.F"),
        ("class F(Base): pass", "m.F"),
        ("class F(x.Function):\n    def process(self, i, c): pass", "m.F"),
        ("@decorate\nclass F: pass", "m.F"),
        ("class F(metaclass=M): pass", "m.F"),
    ],
)
def test_what_a_module_defines_is_found(tmp_path: Path, source: str, class_name: str) -> None:
    check_package(Modules(file_package(tmp_path, source)), class_name)


@pytest.mark.parametrize(
    ("source", "class_name", "reason"),
    [
        ("def g(x): pass", "m.f", "className m.f: module m has no f; it defines g"),
        ("def g(x):\n    def f(): pass", "m.f", "className m.f: module m has no f; it defines g"),
        ("class F: pass", "m.F", "className m.F: class F has no method process(self, input, context)"),
        ("class F(Function): pass", "m.F", "className m.F: class F has no method process(self, input, context)"),
        ("def f(x): pass", "m", "className m: module m has no function process"),
        ("def f(x): pass", "other.f", "className other.f: the package has no module other; it has m"),
        ("def f(x): pass", "other", "className other: the package has no module other; it has m"),
        ("x = (", "m.f", "m.py has a syntax error on line 1: '(' was never closed"),
        ("return 1", "m.f", "m.py has a syntax error on line 1: 'return' outside function"),
        ("def f(x): pass", "m..f", "invalid className 'm..f': expected module.Class or module.function"),
        ("def f(x): pass", "", "invalid className '': expected module.Class or module.function"),
        ("def f(x): pass", "m-n.f", "invalid className 'm-n.f': expected module.Class or module.function"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, source: str, class_name: str, reason: str) -> None:
    with pytest.raises(PackageError) as caught:
        check_package(Modules(file_package(tmp_path, source)), class_name)
    assert str(caught.value) == reason


def test_packages_of_modules_are_searched(tmp_path: Path) -> None:
    (tmp_path / "app" / "inner").mkdir(parents=True)
    (tmp_path / "app" / "__init__.py").write_text("def process(x): pass")
    (tmp_path / "app" / "inner" / "work.py").write_text("def go(x): pass")
    check_package(Modules(tmp_path), "app.inner.work.go")
    check_package(Modules(tmp_path), "app")
    check_package(Modules(tmp_path), "app.process")
    with pytest.raises(PackageError, match=r"the package has no module other; it has app, app\.inner\.work$"):
        check_package(Modules(tmp_path), "other.go")


def test_requirements_are_refused_where_nothing_installs_them(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy")
    (tmp_path / "src").mkdir()
    file_package(tmp_path / "src", "def f(x): pass")
    with pytest.raises(PackageError, match=r"requirements\.txt, which is installed for functions only"):
        check_package(Modules(tmp_path / "src"), "m.f")
    check_package(Modules(tmp_path / "src"), "m.f", installs=True)
    for runtime in (None, "process", "spark", "thread"):
        assert (
            read_source(
                source_question(tmp_path / "src", FunctionConfig(class_name="m.f", runtime_env=runtime))
            ).class_name
            == "m.f"
        )


def test_text_that_is_no_source_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(b"# -*- coding: nonsense -*-\nx = 1\n")
    with pytest.raises(PackageError, match=r"^m\.py has a syntax error: unknown encoding: nonsense$"):
        check_package(Modules(path), "m.f")
    path.write_bytes("x = '\udc80'".encode("utf-8", "surrogatepass"))
    with pytest.raises(PackageError, match=r"^m\.py "):
        check_package(Modules(path), "m.f")
    path.write_text("-" * 200_000 + "1")
    with pytest.raises(PackageError, match=r"^m\.py "):
        check_package(Modules(path), "m.f")


@pytest.mark.parametrize(
    "path", ["package-" + "z" * 64, "package-" + "A" * 64, "package-../" + "a" * 61, "package-", "a" * 64]
)
def test_a_package_path_that_is_no_digest_is_refused(path: str) -> None:
    with pytest.raises(PackageError, match="is not of the form package-<sha256>"):
        package_id(PackageLocationMetaData(packagePath=path))


def test_a_package_path_holds_the_digest() -> None:
    assert package_id(PackageLocationMetaData(packagePath="package-" + "0f" * 32)) == "0f" * 32


@pytest.mark.parametrize("name", ["../f.py", "a/f.py", "/f.py", "..\\f.py", "f.sh", "", ".py/", "f\x1b.py"])
def test_a_file_name_that_is_no_bare_name_is_refused(name: str) -> None:
    with pytest.raises(PackageError, match=r"expected a \.py, \.zip, \.whl file without directories"):
        package_name(PackageLocationMetaData(originalFileName=name))
    assert package_name(PackageLocationMetaData(originalFileName="f.py")) == "f.py"


@pytest.mark.parametrize(
    ("source", "class_name", "kind", "found"),
    [
        ("class S(Source): pass", "m.S", "source", "m.S"),
        ("class S(Source): pass", "S", "source", "m.S"),
        ("class S(Source): pass\nclass C: pass", "", "source", "m.S"),
        ("class S(magnetar.api.BatchSource): pass\nclass K(Sink): pass", "", "source", "m.S"),
        ("class Base(Sink): pass\nclass K(Base): pass", "", "sink", "m.K"),
        ("class K(Sink[int]): pass\nclass _K(Sink): pass", "", "sink", "m.K"),
        ("class K(Elsewhere): pass", "m.K", "sink", "m.K"),
        ("from elsewhere import K", "m.K", "sink", "m.K"),
        ("K = make()", "m.K", "sink", "m.K"),
    ],
)
def test_the_class_of_a_connector_is_found(tmp_path: Path, source: str, class_name: str, kind: str, found: str) -> None:
    assert connector_class(Modules(file_package(tmp_path, source)), class_name, kind) == found


@pytest.mark.parametrize(
    ("source", "class_name", "kind", "reason"),
    [
        ("", "m.S", "source", "Source class m.S not found in class loader: module m has no S; it defines nothing"),
        ("", "a.K", "sink", "Sink class a.K not found: the package has no module a; it has m"),
        ("", "m..K", "sink", "Sink class m..K not found: the name is not of the form module.Class"),
        ("class K(Source): pass", "m.K", "sink",
         "Sink class m.K does not implement the correct interface: make it a Sink"),
        ("class K: pass", "K", "sink", "Sink class m.K does not implement the correct interface: make it a Sink"),
        ("def S(): pass", "S", "source",
         "Source class m.S does not implement the correct interface: make it a Source or BatchSource"),
        ("class A(Sink): pass\nclass B(Sink): pass", "", "sink",
         "Sink class is not provided: set className to module.Class; the package has m.A, m.B"),
        ("class A(", "", "sink", "m.py has a syntax error on line 1: '(' was never closed"),
    ],
)  # fmt: skip
def test_what_is_no_connector_is_named(tmp_path: Path, source: str, class_name: str, kind: str, reason: str) -> None:
    with pytest.raises(PackageError) as caught:
        connector_class(Modules(file_package(tmp_path, source)), class_name, kind)
    assert str(caught.value) == reason
