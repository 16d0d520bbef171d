"""Type checkers see the package from anywhere, after what `make demo` installs."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import magnetar
import pytest

ROOT = Path(magnetar.__file__).parent
PTH = Path(sysconfig.get_path("purelib")) / "magnetar-types.pth"

pytestmark = pytest.mark.skipif(not PTH.exists(), reason="magnetar was not installed into this environment by make")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_mypy_follows_the_imports_of_a_users_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import magnetar\n"
        "from magnetar.client import ConsumerConfig\n"
        "from magnetar import spark\n"
        "reveal_type(magnetar.Client)\n"
        "reveal_type(ConsumerConfig().name)\n"
        "spark.open_session(1)\n"
        "magnetar.Nothing\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert "-> magnetar.client.blocking.client.Client" in lines[0], done.stdout
    assert 'Revealed type is "str | None"' in lines[1]
    assert 'incompatible type "int"; expected "SessionConfig"' in lines[2]
    assert "Module has no attribute" in lines[3]
    assert "Found 2 errors" in lines[4]


def test_python_itself_finds_the_modules_in_the_checkout(tmp_path: Path) -> None:
    code = "import magnetar.client; print(magnetar.client.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert Path(done.stdout.strip()) == ROOT / "client" / "__init__.py"
