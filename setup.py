"""Compiles the modules that run for every message with mypyc, or records why this is impossible.

All other build settings are in pyproject.toml. Only wheels are compiled: in an editable installation, the compiled code
would hide changes to the sources. Environment variables:

- ``MAGNETAR_PURE=1`` builds a wheel without compiled modules.
- ``MAGNETAR_COMPILED=1`` fails the build, with the reason, instead of falling back to pure Python.
- ``MAGNETAR_HOME_URL`` is the repository for relative links in the README; without it, they become plain text.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import BaseError, CCompilerError

if TYPE_CHECKING:
    from setuptools import Extension

HOME = Path(__file__).resolve().parent
COMPILED = runpy.run_path(str(HOME / "compiled.py"))
MYPY = "mypy>=1.19,<3"
COMPILERS = ("cc", "gcc", "clang")
REASON_CHARS_MAX = 300
# The types of other packages are ignored, so that the compiled code does not depend on installed packages. Modules of
# this package are followed, as their types make the code faster, except for the two that import nearly all others.
MYPY_CONFIG = """\
[mypy]
mypy_path = {directory}
cache_dir = {directory}/cache
no_site_packages = True
ignore_missing_imports = True
follow_imports = silent

[mypy-magnetar,magnetar.client]
follow_imports = skip

[mypy-magnetar.wire.pulsar_api_pb2]
ignore_errors = True
"""


def is_set(variable: str) -> bool:
    """Return whether an environment variable is set to something other than 0."""
    return os.environ.get(variable, "") not in ("", "0")


def why_not() -> str:
    """Select the compiler; return the reason why modules cannot be compiled here, or an empty string."""
    if is_set("MAGNETAR_PURE"):
        return "MAGNETAR_PURE was set at build time"
    configured = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(configured.split()[0]) is None:
        if os.environ.get("CC"):
            return f"the C compiler CC={configured!r} was not found at build time"
        other = next(filter(shutil.which, COMPILERS), None)
        if other is None:
            return "no C compiler was found at build time"
        os.environ["CC"] = other
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python.h (on Debian: python3-dev) was not found at build time"
    return ""


def compiled_extensions() -> list[Extension]:
    """Translate the modules to C extensions.

    Raises:
        CCompilerError: mypyc is missing or failed; the message contains the reason.
    """
    try:
        from mypyc.build import mypycify
    except ImportError:
        raise CCompilerError(f"{MYPY} was not installed at build time") from None

    printed = io.StringIO()
    directory = Path(tempfile.mkdtemp(prefix="magnetar-build-"))
    try:
        # The repository's root is the package, but mypy needs a directory with the package's name. Tracebacks show
        # paths relative to that directory.
        (directory / "magnetar").symlink_to(HOME, target_is_directory=True)
        config = directory / "mypy.ini"
        config.write_text(MYPY_CONFIG.format(directory=directory), encoding="utf-8")
        sources = [f"magnetar/{module}" for module in COMPILED["MODULES"]]
        with contextlib.chdir(directory), contextlib.redirect_stdout(printed):
            found = mypycify(
                [f"--config-file={config}", *sources], group_name="magnetar", target_dir=str(HOME / "build")
            )
    except (Exception, SystemExit) as error:
        lines = [line for line in printed.getvalue().splitlines() if "error:" in line] or [repr(error)]
        raise CCompilerError(f"mypyc failed at build time: {lines[0]}") from error
    finally:
        print(printed.getvalue(), end="", file=sys.stderr)
        shutil.rmtree(directory)
    for extension in found:
        extension.sources = [os.path.relpath(source, HOME) for source in extension.sources]
        extension.depends = [os.path.relpath(path, HOME) for path in extension.depends]
    return found


class Reason:
    """The reason why the wheel has no compiled modules, or empty."""

    def __init__(self, text: str = "") -> None:
        self.text = text

    def note(self, error: object) -> None:
        """Store a reason on one line.

        Raises:
            BaseError: compiled modules are required.
        """
        self.text = " ".join(str(error).split())[:REASON_CHARS_MAX]
        if is_set("MAGNETAR_COMPILED"):
            raise BaseError(f"MAGNETAR_COMPILED is set, but magnetar cannot be compiled: {self.text}")

    def write(self, build_lib: str) -> None:
        """Write the reason into the package, for ``magnetar --version``."""
        Path(build_lib, "magnetar", COMPILED["REASON_FILE"]).write_text(f"{self.text}\n", encoding="utf-8")


REASON = Reason()


class BuildPy(build_py):
    """Copies the package without this file, which is in the same directory."""

    def run(self) -> None:
        """Build from a clean directory, because leftovers of an earlier build would end up in the wheel."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if not self.editable_mode and REASON.text:
            REASON.write(self.build_lib)

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Return the modules of a package, without this file."""
        return [module for module in super().find_package_modules(package, package_dir) if module[1] != "setup"]


class BuildExt(build_ext):
    """Continues without compiled modules if the C compiler fails."""

    def run(self) -> None:
        """Compile the extensions, or record the reason for a failure."""
        try:
            super().run()
        except (CCompilerError, BaseError, OSError) as error:
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            print(error, file=sys.stderr)  # a complete command line, which is too long for the reason
            REASON.note("the C compiler failed at build time: run pip install -v for details")
            REASON.write(self.build_lib)


def description() -> dict[str, object]:
    """Return the metadata that a package index shows."""
    home_url = os.environ.get("MAGNETAR_HOME_URL", "")
    made = runpy.run_path(str(HOME / "docs" / "site" / "index_page.py"))
    return {
        "long_description": made["index_page"]((HOME / "README.md").read_text(encoding="utf-8"), home_url),
        "long_description_content_type": "text/markdown",
        "project_urls": made["project_urls"](home_url),
    }


def main() -> None:
    """Run the build commands on the command line."""
    arguments: dict[str, object] = {"cmdclass": {"build_ext": BuildExt, "build_py": BuildPy}, **description()}
    is_wheel = "bdist_wheel" in sys.argv
    reason = why_not()
    if is_wheel and reason:
        REASON.note(reason)
    elif is_wheel:
        try:
            arguments["ext_modules"] = compiled_extensions()
        except CCompilerError as error:
            REASON.note(error)
    elif not reason and "editable_wheel" not in sys.argv:
        # pip runs egg_info to find the requirements of the build before it runs bdist_wheel.
        arguments["setup_requires"] = [MYPY]
    setup(**arguments)
    if is_wheel and REASON.text:
        print(
            f"magnetar was built as pure Python: {REASON.text}. Functions will run slower: see README.md.",
            file=sys.stderr,
        )


main()
