"""Programs on official clients: the commands that run them, with dependencies from Maven and Go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from functools import cache
from pathlib import Path

import pytest

from tests.connectors.servers import maven

HERE = Path(__file__).parent
PULSAR_VERSION = "4.0.7"
TOOLS_VERSION = "4.0.6"
"""Of pulsar-admin: Maven's repository lacks the tools of the version above."""
GROUP = "org.apache.pulsar"
BUILD_TIMEOUT_S = 600.0
CLIENTS = ("java", "go", "python")


@cache
def _java_jars() -> Path:
    artifacts = (
        f"{GROUP}:pulsar-client-original:{PULSAR_VERSION}",
        f"{GROUP}:pulsar-client-admin-original:{PULSAR_VERSION}",
        "com.google.protobuf:protobuf-java:3.25.5",
        "org.slf4j:slf4j-simple:2.0.13",
    )
    return maven.jars("pulsar-java-client", artifacts, versions_of=f"{GROUP}:pulsar:{PULSAR_VERSION}")


def java(name: str) -> tuple[str, ...]:
    """Return the command of ``java/NAME.java``; skip where Java or Maven are missing, fail where they must be here."""
    maven.require()
    return ("java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{_java_jars()}/*",
            str(HERE / "java" / f"{name}.java"))  # fmt: skip


@cache
def pulsar_admin() -> tuple[str, ...]:
    """Return the command of ``java/Admin.java``, which runs `pulsar-admin`; skips and fails as `java` does."""
    maven.require()
    artifacts = (f"{GROUP}:pulsar-client-tools:{TOOLS_VERSION}",)
    jars = maven.jars("pulsar-admin", artifacts, versions_of=f"{GROUP}:pulsar:{TOOLS_VERSION}")
    # The first compiler is enough for a program that runs for a minute.
    return ("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(HERE / "java" / "Admin.java"))


@cache
def go(package: str) -> tuple[str, ...]:
    """Return the command of the Go program in ``go/PACKAGE``; skip where Go is missing, fail where it must be here."""
    if shutil.which("go") is None:
        pytest.fail("no go on this machine") if os.environ.get("CI") else pytest.skip("no go on this machine")
    built = maven.CACHE / "go-scenarios" / uuid.uuid4().hex[:8]
    done = subprocess.run(
        ["go", "build", "-o", str(built), f"./{package}"], cwd=HERE / "go", capture_output=True, text=True,
        timeout=BUILD_TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, f"go build ended with {done.returncode}:\n{done.stderr[-2000:]}"
    return (str(built),)


def python(name: str) -> tuple[str, ...]:
    """Return the command of ``python_NAME.py``."""
    return (sys.executable, str(HERE / f"python_{name}.py"))


def of_client(client: str, name: str) -> tuple[str, ...]:
    """Return the command of the program ``name`` in a client's language; skips and fails as `java` and `go` do."""
    if client == "java":
        return java(name.capitalize())
    return go(name) if client == "go" else python(name)
