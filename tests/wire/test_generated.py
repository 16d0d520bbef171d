"""The committed protobuf modules are what the .proto files compile to."""

import subprocess
import sys
from pathlib import Path

import pytest

WIRE = Path(__file__).parents[2] / "wire"


@pytest.mark.slow
def test_generated_modules_are_up_to_date(tmp_path: Path) -> None:
    script = WIRE / "generate.sh"
    subprocess.run([script, tmp_path], check=True, env={"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"})
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(made) == 6
    for name, text in made.items():
        assert (WIRE / name).read_text() == text, f"{name} is not what its .proto compiles to: run `make generate`"
