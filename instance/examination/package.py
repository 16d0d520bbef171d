"""Check a package's code by importing it, in a process created for that purpose.

Only errors that occur on every worker are reported. A module that is not installed here may be installed elsewhere, and
an exception may be due to a missing file or service; such errors are left to the instance. The only exception is a
class named in the config: it must be in the package, its requirements or the environment of all workers.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .values import ExaminedHome, called, value_refusal

_REASON_CHARACTERS_MAX = 500


class Question(NamedTuple):
    """A question about a package; equal questions have equal answers.

    Attributes:
        package: a .py file or the directory of an extracted archive; its path contains the hash of the content.
        class_name: object to load: ``module.name``, or a module with a function `process`.
        is_called: whether it is a function, or a class with the method `process`, that takes messages.
        settings: settings of the function's values (`value_settings`) to check; empty for a connector.
        tenant: the package's tenant; under isolation the tenant's system user loads it.
    """

    package: Path
    class_name: str
    is_called: bool
    settings: bytes = b""
    tenant: str = ""

    def to_json(self) -> dict[str, Any]:
        """Serialise the question for `from_json`."""
        settings = base64.b64encode(self.settings).decode()
        return {**self._asdict(), "package": str(self.package), "settings": settings}

    @classmethod
    def from_json(cls, question: Mapping[str, Any]) -> Question:
        """Parse a question written by `to_json`."""
        settings = base64.b64decode(question["settings"])
        package, tenant = Path(question["package"]), question.get("tenant", "")
        return cls(package, question["class_name"], question["is_called"], settings, tenant)


def examine(question: Question) -> str:
    """Return why a package cannot work on any worker, on one line; empty if no reason was found."""
    package, class_name, is_called, settings, _ = question
    home = ExaminedHome(package)
    root = home.root
    module_name, _, attribute = class_name.rpartition(".")
    if not module_name or not _is_module(root, module_name):
        module_name, attribute = class_name, "process"
    try:
        found = getattr(home.import_module(module_name), attribute, None)
        reason = _call_refusal(found) if is_called and callable(found) else ""
        if reason:
            reason = f"className {class_name}: {reason}"
        elif settings and callable(found):
            reason = value_refusal(found, home, class_name, settings)
    except (ImportError, SyntaxError) as error:
        reason = _import_refusal(error, root)
    except BaseException:  # noqa: BLE001  the error may not occur where the instance runs
        return ""
    return reason[:_REASON_CHARACTERS_MAX]


def _is_module(root: Path, name: str) -> bool:
    place = root.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or place.is_dir()


def _import_refusal(error: ImportError | SyntaxError, root: Path) -> str:
    if isinstance(error, SyntaxError):
        file = Path(error.filename or "")
        if not file.is_relative_to(root):
            return ""
        return f"{file.relative_to(root)} has a syntax error on line {error.lineno}: {error.msg}"
    if isinstance(error, ModuleNotFoundError):
        name = error.name or ""
        if name and "." in name and _is_module(root, name.partition(".")[0]) and not _is_module(root, name):
            return f"the package has no module {name}, which its code imports"
        return ""
    if str(error).startswith("attempted relative import"):
        return f"an import in the package fails: {error}; import the module by its full name"
    if error.name and _is_module(root, error.name.partition(".")[0]) and str(error).startswith("cannot import name"):
        return f"an import in the package fails: {str(error).split(' (/')[0]}"
    return ""


def _call_refusal(found: Any) -> str:
    if not inspect.isclass(found):
        return _arity_refusal(found, found.__name__ if hasattr(found, "__name__") else type(found).__name__)
    if inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        return f"class {found.__name__} is abstract: define {missing}"
    if not _binds(found):
        return f"class {found.__name__} is created without arguments, but __init__ requires some: add default values"
    method = called(found)
    return "" if method is None else _arity_refusal(method, f"{found.__name__}.process")


def _arity_refusal(function: Any, name: str) -> str:
    if _binds(function, None) or _binds(function, None, None):
        return ""
    return f"{name}{inspect.signature(function)} must accept the message, or the message and a context"


def _binds(function: Any, *arguments: Any) -> bool:
    """Return whether a call with these arguments is possible, or cannot be checked."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True
