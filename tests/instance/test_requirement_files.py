"""What decides what a requirements.txt installs, and so with whom its installation is shared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from magnetar.instance.loading.requirement_files import Origin, origin_of
from magnetar.instance.loading.requirements import Installer, digest_of

PINNED = "numpy==2.0 --hash=sha256:abc"


def requirements(directory: Path, text: str, **files: str) -> Path:
    for name, content in {"requirements.txt": text, **files}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content)
    return directory / "requirements.txt"


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("", Origin.HASHES),
        ("# nothing\n\n", Origin.HASHES),
        (PINNED, Origin.HASHES),
        ("numpy==2.0 \\\n    --hash=sha256:abc \\\n    --hash=sha256:def\n", Origin.HASHES),
        (f"--require-hashes\n--index-url https://i/simple\n{PINNED}", Origin.HASHES),
        (f"{PINNED}\nrequests", Origin.INDEX),
        ("requests >= 2, < 3 ; python_version >= '3.11'  # why", Origin.INDEX),
        ("requests[socks]~=2.0", Origin.INDEX),
        ("zope.interface", Origin.INDEX),
        ("x @ https://example.org/x-1.0-py3-none-any.whl", Origin.INDEX),
        ("-r more.txt", Origin.INDEX),
        ("--constraint=more.txt\n" + PINNED, Origin.INDEX),
        ("./lib", Origin.PACKAGE),
        ("lib", Origin.PACKAGE),
        ("lib/part", Origin.PACKAGE),
        ("-e .", Origin.PACKAGE),
        ("--editable ./lib", Origin.PACKAGE),
        ("x-1.0-py3-none-any.whl", Origin.PACKAGE),
        ("x @ file:///lib", Origin.PACKAGE),
        ("file:lib", Origin.PACKAGE),
        ("git+https://example.org/x.git", Origin.PACKAGE),
        ("-r reqs/base.txt", Origin.PACKAGE),
        ("-r ../other.txt", Origin.PACKAGE),
        ("-r local.txt", Origin.PACKAGE),
        ("--find-links wheels\nx", Origin.PACKAGE),
        ("-r requirements.txt\nrequests", Origin.INDEX),
        ("-r absent.txt", Origin.PACKAGE),
    ],
)
def test_the_lines_say_what_decides(tmp_path: Path, text: str, origin: Origin) -> None:
    more = {"more.txt": "six\n", "local.txt": "./lib\n", "lib/setup.py": "", "reqs/base.txt": ""}
    assert origin_of(requirements(tmp_path, text, **more)) is origin


@pytest.mark.parametrize("text", ["./lib", "-r reqs/base.txt"])
def test_what_is_named_belongs_to_what_was_asked_for(tmp_path: Path, text: str) -> None:
    both = [
        requirements(tmp_path / name, text, **{"lib/setup.py": f"# {name}", "reqs/base.txt": f"six=={name}"})
        for name in ("1", "2")
    ]
    assert digest_of(both[0]) != digest_of(both[1])
    again = requirements(tmp_path / "3", text, **{"lib/setup.py": "# 1", "reqs/base.txt": "six==1"})
    assert digest_of(both[0]) == digest_of(again)


@pytest.mark.parametrize(("text", "is_shared"), [(PINNED, True), ("six", False), ("./lib", False)])
def test_tenants_share_only_what_the_text_decides(tmp_path: Path, text: str, is_shared: bool) -> None:
    file = requirements(tmp_path, text)
    targets = {Installer(tmp_path, tenant=tenant).target_of(file) for tenant in ("a", "b")}
    assert (len(targets) == 1) == is_shared


def test_what_an_earlier_version_has_installed_is_used_and_kept(tmp_path: Path) -> None:
    file = requirements(tmp_path / "package", "six")
    (tmp_path / "installed" / digest_of(file)).mkdir(parents=True)
    installer = Installer(tmp_path / "installed", tenant="a")
    found = installer.find(file)
    assert found is not None
    found.release()
    installer.remove_others([digest_of(file)])
    assert os.listdir(tmp_path / "installed") == [digest_of(file)]
    installer.remove_others([])
    assert os.listdir(tmp_path / "installed") == []
