"""uvicorn in our servers: no supervisors, until somebody asks for what they are needed for."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from magnetar.web import serve
import uvicorn.lifespan.off
assert not {name for name in sys.modules if name.startswith(("multiprocessing", "uvicorn.supervisors", "uvicorn.main"))}
import uvicorn
from uvicorn import Server, run
assert Server is serve.Server
assert run is uvicorn.run
assert uvicorn.__version__
assert not hasattr(uvicorn, "nothing")
"""


def test_the_package_is_complete_for_whoever_asks_for_it() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True)
