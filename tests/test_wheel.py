"""The wheel holds the whole package, and works where nothing else is."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import magnetar
import pytest
from magnetar.compiled import MODULES

ROOT = Path(magnetar.__file__).parent
TOP_LEVEL = {"pyspark_magnetar", "pyspark_magnetar_pulsar"}
"""Packages beside ours; Spark finds them by their names."""
NOT_THE_PACKAGE = TOP_LEVEL | {"tests", "examples", "benchmarks", "docs", "build", "dist", "magnetar.egg-info"}


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


def has_compiler() -> bool:
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC")).split()[0]
    return shutil.which(compiler) is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_pure", [False, True])
def test_wheel_runs_in_an_empty_environment(tmp_path: Path, is_pure: bool) -> None:
    """Built from a copy, so that the build leaves nothing in the checkout; no index is asked for anything."""
    environ = {
        **os.environ, "MAGNETAR_PURE": "1" if is_pure else "", "MAGNETAR_HOME_URL": "https://example.org/magnetar",
    }  # fmt: skip
    is_compiled = has_compiler() and not is_pure
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(
        ".git", ".venv", ".types", ".demo", ".mypy_cache", ".ruff_cache", "__pycache__", "data"
    )
    shutil.copytree(ROOT, source, ignore=ignored)
    dist = tmp_path / "dist"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist), str(source)]
    subprocess.run(build, check=True, capture_output=True, text=True, env=environ)
    [wheel] = dist.glob("*.whl")

    names = zipfile.ZipFile(wheel).namelist()
    [metadata] = (name for name in names if name.endswith(".dist-info/METADATA"))
    about = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "Description-Content-Type: text/markdown" in about
    assert "(https://example.org/magnetar/blob/main/docs/functions.md)" in about
    assert "Project-URL: Changelog, https://example.org/magnetar/blob/main/CHANGELOG.md" in about
    assert "magnetar/cli/main.py" in names
    assert "magnetar/wire/pulsar_api.proto" in names
    assert "magnetar/py.typed" in names
    assert not [name for name in names if name.split("/")[1:2] in [[other] for other in NOT_THE_PACKAGE]]
    assert {f"{package}/__init__.py" for package in TOP_LEVEL} <= set(names)
    assert {"magnetar/" + module for module in MODULES} <= set(names), "their sources are there in any case"
    assert "magnetar/setup.py" not in names
    assert any(name.endswith((".so", ".pyd")) for name in names) == is_compiled

    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    # click alone is borrowed from here: --version needs nothing else, and a test must not need the package index.
    where = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        where,
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True, text=True)
    import click

    shutil.copytree(Path(click.__file__).parent, Path(where) / "click")
    for module, pure in itertools.product(("magnetar", "magnetar.cli"), ("", "1")):
        command = [str(python), "-m", module, "--version"]
        environ["MAGNETAR_PURE"] = pure
        shown = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env=environ)
        how = "compiled" if is_compiled and not pure else "pure Python"
        assert shown.stdout.strip() == f"magnetar, version {magnetar.__version__} ({how})"
