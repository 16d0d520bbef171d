"""Compiles the modules that work on each message, by mypyc, where there is a C compiler; else they stay Python.

Everything else is in pyproject.toml. An editable checkout is never compiled: a module that was compiled before would
stand in the way of its changed source. ``MAGNETAR_PURE=1`` goes without.

The description for a package index is the README with links that work there: those by path lead to the repository that
``MAGNETAR_HOME_URL`` names when a wheel is built, and are text without it.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from setuptools import setup
from setuptools.command.build_py import build_py

if TYPE_CHECKING:
    from setuptools import Extension

HOME = Path(__file__).parent
MODULES = runpy.run_path(str(HOME / "compiled.py"))["MODULES"]
MYPY = "mypy>=1.19"


def can_compile() -> bool:
    """Return whether nobody asked to go without, and compiler and headers are there."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include"), "Python.h")
    wants = os.environ.get("MAGNETAR_PURE", "") in ("", "0")
    return wants and shutil.which(compiler) is not None and headers.exists()


def extensions() -> list[Extension]:
    """Return the modules to compile."""
    from mypyc.build import mypycify

    # The repository's root is the package itself: mypy needs a directory of the package's name.
    directory = Path(tempfile.mkdtemp(prefix="magnetar-build-"))
    try:
        (directory / "magnetar").symlink_to(HOME, target_is_directory=True)
        os.environ["MYPYPATH"] = str(directory)
        found = mypycify(
            [str(directory / "magnetar" / module) for module in MODULES], opt_level="3", group_name="magnetar"
        )
        for extension in found:
            extension.optional = True
        return found
    finally:
        shutil.rmtree(directory)


class BuildPy(build_py):
    """Copies the package, which lies beside this file, without this file."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """See setuptools."""
        return [module for module in super().find_package_modules(package, package_dir) if module[1] != "setup"]


def description() -> dict[str, object]:
    """Return what a package index shows."""
    home_url = os.environ.get("MAGNETAR_HOME_URL", "")
    made = runpy.run_path(str(HOME / "docs" / "site" / "index_page.py"))
    return {
        "long_description": made["index_page"]((HOME / "README.md").read_text(encoding="utf-8"), home_url),
        "long_description_content_type": "text/markdown",
        "project_urls": made["project_urls"](home_url),
    }


# pip asks for what a wheel needs (by egg_info) before it has it built (by bdist_wheel).
arguments: dict[str, object] = {"cmdclass": {"build_py": BuildPy}, **description()}
if can_compile():
    if "bdist_wheel" in sys.argv:
        try:
            arguments["ext_modules"] = extensions()
        except (Exception, SystemExit) as error:  # noqa: BLE001  a package that is slower is better than none
            print(f"magnetar is not compiled, and works as pure Python: {error!r}", file=sys.stderr)
    elif "editable_wheel" not in sys.argv:
        arguments["setup_requires"] = [MYPY]
setup(**arguments)
