"""Import of the required parts of uvicorn, without its command line.

The package imports its command line and supervisors, and with them multiprocessing, which takes 0.6 MB in every server.
The modules used here do not need them. The package itself is therefore executed only when one of its names is accessed,
for example by user code.
"""

from __future__ import annotations

import logging  # noqa: F401  so that it has `config`, see `late_module`
import sys
from importlib.util import find_spec, module_from_spec

from .. import late_module

_NAME = "uvicorn"


def _prepare() -> None:
    spec = find_spec(_NAME)
    if _NAME in sys.modules or spec is None or spec.loader is None:
        return
    package, loader = module_from_spec(spec), spec.loader

    def run_for(name: str) -> object:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(f"module {_NAME!r} has no attribute {name!r}")
        loader.exec_module(package)
        vars(package).pop("__getattr__", None)
        return getattr(package, name)

    vars(package)["__getattr__"] = run_for
    sys.modules[_NAME] = package


_prepare()
late_module("logging.config")  # its handlers and socket server are needed only for a log_config, which is not used here

from uvicorn.config import Config  # noqa: E402
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: E402
from uvicorn.server import Server  # noqa: E402

# names that uvicorn's own modules import from the package
vars(sys.modules[_NAME]).update(Config=Config, Server=Server)

__all__ = ["Config", "HttpToolsProtocol", "Server"]
