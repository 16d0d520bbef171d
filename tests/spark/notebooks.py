"""Reads the notebooks in examples/spark and runs their cells in order, without Jupyter."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import magnetar
import pytest

if TYPE_CHECKING:
    from magnetar.spark.session import Session

FOLDER = Path(magnetar.__file__).parent / "examples" / "spark"


def notebook(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.ipynb").read_text())
    return found


def printed(name: str) -> list[str]:
    """Run the cells of a notebook in this process and return the printed lines."""
    # Like a kernel's: functions of `__main__` are sent to tasks whole.
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()) as output:
        for cell in notebook(name)["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{name}.ipynb, {cell['id']}", "exec"), names)
    return output.getvalue().splitlines()


def give_session(monkeypatch: pytest.MonkeyPatch, session: Session) -> None:
    """Make `open_session` return an already open session, which the notebook's last cell does not stop."""
    import magnetar.spark

    shared = SimpleNamespace(spark=session.spark, context=session.context, stop=lambda: None)
    monkeypatch.setattr(magnetar.spark, "open_session", lambda config: shared, raising=False)
