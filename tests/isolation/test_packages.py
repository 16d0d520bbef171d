"""Packages under isolation: examined and installed by the tenant's user, with nothing in them that gives rights."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from magnetar.instance.system_user import SystemUser

from tests.support.isolated import Deployed, data_of
from tests.support.servers import Server

pytestmark = pytest.mark.slow

BACKEND = """
import json, os, zipfile

def _tell():
    with open({told!r}, "a") as file:
        file.write(json.dumps([os.getuid(), os.getgid(), os.getgroups(), dict(os.environ)]) + "\\n")

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _tell()
    name = "hostile-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:
        wheel.writestr("hostile.py", "NAME = 'installed'\\n")
        wheel.writestr("hostile-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: hostile\\nVersion: 1.0\\n")
        kind = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr("hostile-1.0.dist-info/WHEEL", kind)
        wheel.writestr("hostile-1.0.dist-info/RECORD", "")
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "hostile"
version = "1.0"
"""


def shared(open_directory: Path, name: str) -> Path:
    """A directory into which every user may write."""
    directory = open_directory / name
    directory.mkdir()
    directory.chmod(0o777)
    return directory


def test_package_is_examined_as_its_tenants_user(
    one: Deployed, open_directory: Path, users: tuple[SystemUser, SystemUser]
) -> None:
    told = shared(open_directory, "examined") / "told"
    code = f"""
import json, os
with open({str(told)!r}, "a") as file:
    names = sorted(name for name in os.environ)
    file.write(json.dumps([os.getresuid(), os.getgroups(), os.getpid(), "WORKERS_OWN" in os.environ]) + chr(10))
def process(input):
    return input
"""
    one.deploy("examined", code)
    loads = [json.loads(line) for line in told.read_text().splitlines()]
    assert len(loads) == 2, "once examined, once run"
    assert loads[0][2] != loads[1][2]
    assert all(load[:2] == [[users[0].uid] * 3, []] and not load[3] for load in loads)


def test_requirements_are_built_as_the_tenants_user_and_cannot_be_changed(
    one: Deployed, open_directory: Path, isolated: Server, users: tuple[SystemUser, SystemUser]
) -> None:
    told = shared(open_directory, "built") / "told"
    source = io.BytesIO()
    with tarfile.open(fileobj=source, mode="w:gz") as archive:
        for name, text in (("pyproject.toml", PROJECT), ("backend.py", BACKEND.format(told=str(told)))):
            entry = tarfile.TarInfo(f"hostile-1.0/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as zipped:
        zipped.writestr(
            "needs.py", "import hostile, os\ndef process(input):\n    return hostile.NAME + hostile.__file__\n"
        )
        zipped.writestr("requirements.txt", "hostile==1.0\n")
        zipped.writestr("deps/hostile-1.0.tar.gz", source.getvalue())
    one.deploy("needs", package.getvalue(), "needs.zip")
    answer = one.trigger("needs", "x")
    assert answer.startswith("installed")
    uid, gid, groups, environment = json.loads(told.read_text().splitlines()[0])
    assert (uid, gid, groups) == (users[0].uid, users[0].gid, [])
    assert "WORKERS_OWN" not in environment
    module = Path(answer.removeprefix("installed"))
    assert module.is_relative_to(data_of(isolated) / "worker" / "users" / str(uid) / "requirements")
    made = [module, *(above for above in module.parents if above.is_relative_to(data_of(isolated)))]
    assert {path.stat().st_uid for path in made} == {0}
    assert not [path for path in made if path.stat().st_mode & 0o022]


def test_archive_with_rights_and_links_gives_neither(one: Deployed, isolated: Server) -> None:
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as zipped:
        entry = zipfile.ZipInfo("tool")
        entry.external_attr = 0o104755 << 16
        zipped.writestr(entry, "#!/bin/sh\nid\n")
        zipped.writestr("rights.py", "def process(input):\n    return input\n")
    one.deploy("rights", package.getvalue(), "rights.zip")
    tools = list(data_of(isolated).rglob("tool"))
    assert len(tools) == 2
    assert not [tool for tool in tools if tool.stat().st_mode & 0o7022]
    linking = io.BytesIO()
    with zipfile.ZipFile(linking, "w") as zipped:
        entry = zipfile.ZipInfo("passwords")
        entry.external_attr = 0o120777 << 16
        zipped.writestr(entry, "/etc/shadow")
        zipped.writestr("links.py", "def process(input):\n    return input\n")
    answer = one.create("links", linking.getvalue(), "links.zip")
    assert answer.status_code == 400
    assert "contains a symbolic link ('passwords')" in answer.json()["reason"]


def test_same_package_of_two_tenants_is_stored_once(
    one: Deployed, two: Deployed, isolated: Server, users: tuple[SystemUser, SystemUser]
) -> None:
    code = "def process(input):\n    return 'shared by content'\n"
    for deployed in (one, two):
        deployed.deploy("both", code)
        assert deployed.trigger("both", "x") == "shared by content"
    files = list(data_of(isolated).rglob("both.py"))
    assert len({file.stat().st_ino for file in files}) == 1
    assert os.stat(files[0]).st_nlink == 3
