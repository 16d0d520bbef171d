"""Java programs from Maven repositories: artifacts and their dependencies, downloaded once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

CACHE = Path(os.environ.get("MAGNETAR_TEST_CACHE") or f"/var/tmp/magnetar-test-cache-{os.getuid()}")
"""Where downloads stay. Whoever servers run as must be able to read it, which is not so below a user's home."""
TIMEOUT_S = 900.0


class DownloadFailed(AssertionError):
    """Maven failed to download the artifacts; the message contains the end of its output."""


def is_there() -> bool:
    """Return whether Java programs can be downloaded and run here."""
    return all(shutil.which(program) for program in ("java", "mvn"))


def require() -> None:
    """Skip the test unless `is_there`; fail where all programs are required."""
    if is_there():
        return
    reason = "no java or no mvn on this machine: apt-get install openjdk-17-jre-headless maven"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def jars(name: str, artifacts: Sequence[str], repositories: Sequence[str] = (), versions_of: str = "") -> Path:
    """Return the directory with the jars of artifacts and their dependencies.

    What is there already is returned at once. Processes that ask at the same time wait for the one that downloads.

    Args:
        name: of the directory, which also depends on the list: a list that changed is downloaded anew.
        artifacts: each ``group:artifact:version``.
        repositories: addresses of others than Maven's central one.
        versions_of: a project, ``group:artifact:version``, whose versions of the artifacts' own needs are taken, where
            Maven's choice does not fit.

    Raises:
        DownloadFailed: Maven ended with an error, or took longer than `TIMEOUT_S`.
    """
    project = _project(artifacts, repositories, versions_of)
    place = CACHE / f"{name}-{hashlib.sha256(project.encode()).hexdigest()[:12]}"
    if place.is_dir():
        return place
    CACHE.mkdir(parents=True, exist_ok=True)
    CACHE.chmod(0o755)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            _download(project, place)
    return place


def _download(project: str, place: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=CACHE) as temporary:
        work = Path(temporary)
        (work / "pom.xml").write_text(project)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"]
        command = ["mvn", "--quiet", "--batch-mode", *goal]
        try:
            done = subprocess.run(
                command, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired as error:
            raise DownloadFailed(f"{place.name} was not there after {TIMEOUT_S:g} s") from error
        if done.returncode:
            raise DownloadFailed(
                f"{place.name}: mvn ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}"
            )
        for file in (work / "jars").iterdir():
            file.chmod(0o644)
        (work / "jars").chmod(0o755)
        (work / "jars").rename(place)  # whole, or not there


def _project(artifacts: Sequence[str], repositories: Sequence[str], versions_of: str) -> str:
    dependencies = "".join(map(_dependency, artifacts))
    others = "".join(
        f"<repository><id>r{number}</id><url>{escape(url)}</url></repository>"
        for number, url in enumerate(repositories)
    )
    imported = _dependency(versions_of, "<type>pom</type><scope>import</scope>") if versions_of else ""
    managed = (
        f"<dependencyManagement><dependencies>{imported}</dependencies></dependencyManagement>" if imported else ""
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>local</groupId><artifactId>servers</artifactId><version>1</version>"
        f"<repositories>{others}</repositories>{managed}<dependencies>{dependencies}</dependencies></project>"
    )


def _dependency(artifact: str, more: str = "") -> str:
    names = zip(("groupId", "artifactId", "version"), artifact.split(":"), strict=True)
    return f"<dependency>{''.join(f'<{tag}>{escape(name)}</{tag}>' for tag, name in names)}{more}</dependency>"
