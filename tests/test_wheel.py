"""The source distribution has all files; the wheel made of it is compiled, or says why not, and runs by itself.

The build sees setuptools and mypy and nothing else, as in pip's isolated build; no test needs the package index.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import magnetar
import pytest
from magnetar.compiled import MODULES, REASON_FILE, variant, why_pure

ROOT = Path(magnetar.__file__).parent
TOP_LEVEL = {"pyspark_magnetar", "pyspark_magnetar_pulsar"}
"""Packages beside ours; Spark finds them by their names."""
NOT_THE_PACKAGE = TOP_LEVEL | {"tests", "examples", "benchmarks", "docs", "build", "dist", "magnetar.egg-info"}
HOME_URL = "https://example.org/magnetar"


def folders() -> set[str]:
    """Every folder with Python files in it, as a package name."""
    found = {path.parent.relative_to(ROOT) for path in ROOT.rglob("*.py")}
    return {
        ".".join(("magnetar", *folder.parts))
        for folder in found
        if not folder.parts or (folder.parts[0] not in NOT_THE_PACKAGE and not folder.parts[0].startswith("."))
    }


def test_packages_of_pyproject_are_the_folders() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["setuptools"]["packages"]) == folders() | TOP_LEVEL


def test_every_folder_says_what_it_is() -> None:
    missing = [name for name in folders() if not (ROOT.joinpath(*name.split(".")[1:]) / "__init__.py").exists()]
    assert not missing


def test_source_tree_says_that_it_is_never_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAGNETAR_PURE", raising=False)
    assert why_pure(tmp_path) == "source trees are never compiled"


def test_installed_package_gives_the_recorded_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAGNETAR_PURE", raising=False)
    (tmp_path / REASON_FILE).write_text("no C compiler was found at build time\n")
    assert why_pure(tmp_path) == "no C compiler was found at build time"


def test_variable_that_turns_compiled_modules_off_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGNETAR_PURE", "1")
    assert variant() == "pure Python: MAGNETAR_PURE is set"


def missing_for_compiling() -> str:
    """Return the reason that a wheel built on this machine records, empty if it is compiled."""
    chosen = os.environ.get("CC")
    if chosen and shutil.which(chosen.split()[0]) is None:
        return f"the C compiler CC={chosen!r} was not found at build time"
    usual = ((sysconfig.get_config_var("CC") or "cc").split()[0], "cc", "gcc", "clang")
    if not chosen and not any(map(shutil.which, usual)):
        return "no C compiler was found at build time"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python.h (on Debian: python3-dev) was not found at build time"
    return ""


NEEDS_COMPILER = pytest.mark.skipif(bool(missing_for_compiling()), reason="needs a C compiler and Python.h")


def purelib_of(python: Path) -> Path:
    command = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def environment_of(directory: Path, *names: str) -> Path:
    """Make an environment of some distributions that are installed here, with what they need; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    python = directory / "bin" / "python"
    site, wanted, linked = purelib_of(python), list(names), set[str]()
    while wanted:
        name = wanted.pop()
        try:
            found = distribution(name)
        except PackageNotFoundError:  # needed by other versions of Python
            continue
        linked.add(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(Path(str(found.locate_file(top))))
        needed = {re.split(r"[^\w.-]", line)[0] for line in found.requires or () if "extra ==" not in line}
        wanted += needed - linked - set(wanted)
    return python


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment like that of pip's isolated build."""
    return environment_of(tmp_path_factory.mktemp("builder") / "environment", "setuptools", "mypy")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, builder: Path) -> Path:
    """A source distribution, unpacked; built from a copy of the checkout."""
    directory = tmp_path_factory.mktemp("source")
    copy = directory / "copy"
    ignored = shutil.ignore_patterns(
        ".git", ".venv", ".types", ".demo", ".compiled*", ".*_cache", ".hypothesis", "__pycache__", "build", "dist",
        "*.egg-info",
    )  # fmt: skip
    shutil.copytree(ROOT, copy, ignore=ignored)
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(directory)!r})"
    subprocess.run([str(builder), "-c", code], check=True, capture_output=True, text=True, cwd=copy)
    [archive] = directory.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's Python 3.11.2 has none
        files.extractall(directory)
    shutil.rmtree(copy)
    return directory / archive.name.removesuffix(".tar.gz")


def built(builder: Path, source: Path, dist: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Build a wheel as pip does, but with the tools of an environment instead of the index's."""
    clean = {name: value for name, value in os.environ.items() if name not in ("MAGNETAR_PURE", "MAGNETAR_COMPILED")}
    command = [
        sys.executable, "-m", "pip", "--python", str(builder), "wheel", "--verbose", "--no-index", "--no-deps",
        "--no-build-isolation", "--wheel-dir", str(dist), str(source),
    ]  # fmt: skip
    return subprocess.run(command, check=False, capture_output=True, text=True, env={**clean, **environ})


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_source_distribution_has_all_files_of_the_repository(source: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git repository")
    assert [name for name in listed.stdout.splitlines() if not (source / name).exists()] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_pure", [False, True])
def test_wheel_runs_in_an_empty_environment(tmp_path: Path, builder: Path, source: Path, is_pure: bool) -> None:
    variables = {"MAGNETAR_HOME_URL": HOME_URL, "MAGNETAR_PURE": "1"} if is_pure else {"MAGNETAR_HOME_URL": HOME_URL}
    missing = "MAGNETAR_PURE was set at build time" if is_pure else missing_for_compiling()
    done = built(builder, source, tmp_path, variables)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = tmp_path.glob("*.whl")

    names = zipfile.ZipFile(wheel).namelist()
    [metadata] = (name for name in names if name.endswith(".dist-info/METADATA"))
    about = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "Description-Content-Type: text/markdown" in about
    assert f"({HOME_URL}/blob/main/docs/functions.md)" in about
    assert f"Project-URL: Changelog, {HOME_URL}/blob/main/CHANGELOG.md" in about
    assert "magnetar/cli/main.py" in names
    assert "magnetar/wire/pulsar_api.proto" in names
    assert "magnetar/py.typed" in names
    assert not [name for name in names if name.split("/")[1:2] in [[other] for other in NOT_THE_PACKAGE]]
    assert {f"{package}/__init__.py" for package in TOP_LEVEL} <= set(names)
    assert {"magnetar/" + module for module in MODULES} <= set(names), "their sources are there in any case"
    assert "magnetar/setup.py" not in names
    assert any(name.endswith((".so", ".pyd")) for name in names) == (not missing)

    # click alone is borrowed from here: --version needs nothing else.
    python = environment_of(tmp_path / "environment", "click")
    zipfile.ZipFile(wheel).extractall(purelib_of(python))
    built_as = f"pure Python: {missing}" if missing else "compiled"
    for module, pure in itertools.product(("magnetar", "magnetar.cli"), ("", "1")):
        command = [str(python), "-m", module, "--version"]
        environ = {**os.environ, "MAGNETAR_PURE": pure}
        shown = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env=environ)
        how = "pure Python: MAGNETAR_PURE is set" if pure else built_as
        assert shown.stdout.strip() == f"magnetar, version {magnetar.__version__} ({how})"


def why_not_compiled(wheel_directory: Path) -> str:
    [wheel] = wheel_directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".so")]
        return archive.read(f"magnetar/{REASON_FILE}").decode()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        ("no-such-cc", "the C compiler CC='no-such-cc' was not found at build time\n"),
        pytest.param(
            "false", "the C compiler failed at build time: run pip install -v for details\n", marks=NEEDS_COMPILER
        ),
    ],
)
def test_build_without_a_working_compiler_says_so_at_its_end_and_in_the_wheel(
    tmp_path: Path, builder: Path, source: Path, compiler: str, reason: str
) -> None:
    done = built(builder, source, tmp_path, {"CC": compiler})
    assert done.returncode == 0, done.stdout + done.stderr
    assert why_not_compiled(tmp_path) == reason
    assert f"magnetar was built as pure Python: {reason.strip()}" in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_build_that_must_compile_fails_with_the_reason(tmp_path: Path, builder: Path, source: Path) -> None:
    done = built(builder, source, tmp_path, {"CC": "no-such-cc", "MAGNETAR_COMPILED": "1"})
    assert done.returncode != 0
    assert "MAGNETAR_COMPILED is set, but magnetar cannot be compiled: the C compiler CC" in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
@NEEDS_COMPILER
def test_module_that_mypyc_rejects_is_named_in_the_wheel(tmp_path: Path, builder: Path, source: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    with (copy / "wire" / "runs.py").open("a") as module:
        module.write("\nWRONG: int = 'text'\n")
    done = built(builder, copy, tmp_path, {})
    assert done.returncode == 0, done.stdout + done.stderr
    reason = why_not_compiled(tmp_path)
    assert reason.startswith("mypyc failed at build time: magnetar/wire/runs.py:"), reason
    assert "Incompatible types in assignment" in reason
