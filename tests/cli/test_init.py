"""`magnetar init` writes a project whose test passes and whose commands exist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from magnetar.cli.main import main

from tests.support.doc_reader import Reader


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_test_of_a_new_project_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "word-count"]) == 0
    project = tmp_path / "word-count"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(project)],
        cwd=project, env=environment, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


@pytest.mark.slow
def test_two_projects_are_tested_in_one_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("word-count", "greeter"):
        assert main(["init", name]) == 0
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_a_project_takes_the_options_of_the_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "word-count"]) == 0
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    ran = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", f"--import-mode={mode}",
            "--magnetar-service-url", "pulsar://127.0.0.1:1",
        ],
        cwd=tmp_path / "word-count", env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 test collected" in ran.stdout


def test_the_config_of_a_new_project_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from magnetar.cli.config_flags import read_config_file
    from magnetar.cli.functions.local import local_function
    from magnetar.cli.local_run import Surroundings

    assert main(["init", "word-count", "--directory", str(tmp_path)]) == 0
    monkeypatch.chdir(tmp_path)
    config = read_config_file("function.yaml") | {"tenant": "public", "namespace": "default"}
    local = local_function(config, Surroundings(service_url="pulsar://127.0.0.1:6650", admin_url=""))
    assert local.details.name == "word-count"
    assert local.details.className == "word_count.process"
    assert list(local.details.source.inputSpecs) == ["word-count-in"]


@pytest.mark.parametrize("name", ["null", "true", "no", "on", "y"])
def test_a_name_that_means_something_in_yaml_stays_a_name(tmp_path: Path, name: str) -> None:
    from magnetar.cli.config_flags import read_config_file

    assert main(["init", name, "--directory", str(tmp_path)]) == 0
    assert read_config_file(str(tmp_path / "function.yaml"))["name"] == name


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_commands_of_its_readme_run(tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        project = reader.directory / "word-count"
        assert main(["init", "word-count", "--directory", str(project)]) == 0
        reader.change_directory(project)
        reader.read(project / "README.md")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Word", "invalid project name"),
        ("1st", "invalid project name"),
        ("a/b", "invalid project name"),
        ("..", "invalid project name"),
        ("class", "is a reserved word in Python"),
        ("json", "would hide the existing Python module json"),
        ("click", "would hide the existing Python module click"),
        ("typing-extensions", "would hide the existing Python module typing_extensions"),
    ],
)
def test_names_that_no_module_can_have_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", name]) == 1
    assert why in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_something_in_it_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    assert main(["init", "mine"]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["mine"]
