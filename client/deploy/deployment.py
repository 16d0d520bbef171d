"""Builds a deployment: the config from keyword arguments, and the package from the function."""

from __future__ import annotations

import inspect
import io
import json
import keyword
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...api import pickled_function
from ...config.conversion import read_function_config
from ...errors import InvalidConfig, PackageError
from .pickling import pickle_function

_ZIP_DATE = (1980, 1, 1, 0, 0, 0)
"""Fixed date of every file, so that the same function yields the same package, which the cluster stores once."""
_OTHER_NAMES = {"runtime": "runtimeEnv", "subscription": "subName"}
_OUR_FIELDS = ("className", "fqfn", "functionType", "go", "jar", "py", "tenant", "namespace", "name")
"""Fields that are derived from the function, or have separate parameters."""


@dataclass(frozen=True)
class Package:
    """A function as a zip file.

    Attributes:
        class_name: name under which instances look up the function.
        content: the zip file.
    """

    class_name: str
    content: bytes


def own_name(function: Any) -> str | None:
    """Return a function's name, or None if it has none, such as a lambda."""
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) and name.isidentifier() else None


def pack(function: Any, shown: str = "") -> Package:
    """Return the package of a function: its pickle, and the module through which instances load it.

    Args:
        function: a function, a class or object with ``process(self, input, context)``, or a callable object.
        shown: the function's name in error messages.

    Raises:
        PackageError: the object cannot process messages.
        UnpicklableFunction: the function refers to an object that cannot be pickled; the message names it.
    """
    name = own_name(function)
    shown = shown or name or repr(function)[:80]
    process = getattr(function, "process", None)
    if inspect.isclass(function):
        if not callable(process):
            raise PackageError(f"class {shown} has no process method: add process(self, input, context)")
    elif callable(process) and not inspect.isroutine(function):
        function = process
    elif not callable(function) or inspect.ismodule(function):
        raise PackageError(f"invalid function {shown}: expected a function or class, got {type(function).__name__}")
    # A name with an underscore could collide with the module's own names.
    attribute = name if name and not name.startswith("_") and not keyword.iskeyword(name) else "function"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    source = Path(pickled_function.__file__).read_text(encoding="utf-8")
    files: dict[str, str | bytes] = {
        f"{pickled_function.MODULE}.py": f"{source}\n\n{attribute} = _load({version!r})\n",
        pickled_function.VERSION_FILE: version,
        pickled_function.PICKLE_FILE: pickle_function(function, shown),
    }
    return Package(f"{pickled_function.MODULE}.{attribute}", _zipped(files))


def _zipped(files: Mapping[str, str | bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _ZIP_DATE), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def function_config(inputs: str | Sequence[str] | None, output: str | None, settings: Mapping[str, Any]) -> str:
    """Return the JSON of a FunctionConfig, validated as by a worker.

    Args:
        inputs: input topics.
        output: output topic.
        settings: the other fields, with Python names (``processing_guarantees``) or JSON names.

    Raises:
        InvalidConfig: a field is unknown, or a value has the wrong type.
    """
    config: dict[str, Any] = {}
    for key, value in settings.items():
        field = _OTHER_NAMES.get(key) or _camel_case(key)
        if field in _OUR_FIELDS:
            raise InvalidConfig(f"{key} is derived from the function: omit it")
        if field in config:
            raise InvalidConfig(f"duplicate setting {key!r}: {field} is already set")
        config[field] = list(value) if isinstance(value, tuple | set | frozenset) else value
    if inputs is not None:
        config["inputs"] = [inputs] if isinstance(inputs, str) else list(inputs)
    if output is not None:
        config["output"] = output
    config["runtime"] = "PYTHON"
    config = {field: value for field, value in config.items() if value is not None}
    try:
        text = json.dumps(config, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"settings are not serializable as JSON: {error}") from error
    read_function_config(json.loads(text))
    return text


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)
