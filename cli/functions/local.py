"""Preparation of `functions localrun`."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...config.conversion import read_function_config, to_details
from ...config.function_config import SPARK
from ...config.rules import check, with_defaults
from ...instance.examination.source import read_source
from ...runtime.local import LocalRun, unpacked
from ...worker.functions.code_check import check_once
from ...worker.functions.package_intake import question_of, source_question
from ..failure import Failure
from ..local_run import Surroundings
from .functions import REMOTE_PREFIXES


def local_function(content: dict[str, Any], around: Surroundings, first_instance: int = 0) -> LocalRun:
    """Return the settings of a function's local run.

    Args:
        content: its config, as sent to a worker.
        around: addresses, credentials and other surroundings.
        first_instance: number of the first instance.

    Raises:
        MagnetarError: the config or the package is rejected, as by `create`.
    """
    code = code_of(content)
    sent = read_function_config({key: value for key, value in content.items() if key not in _NAMES})
    names: dict[str, Any] = {name: str(content[name]) for name in _NAMES if content.get(name)}
    config = with_defaults(replace(sent, runtime_env=sent.runtime_env or "thread", **names))
    if config.runtime_env == SPARK:
        raise Failure(
            "localrun does not support runtimeEnv spark, which requires a worker: use create, or --runtime thread"
        )
    check(config)
    with tempfile.TemporaryDirectory(prefix="magnetar-localrun-") as directory:
        package = unpacked(code, Path(directory))
        found = read_source(source_question(package, config, finds_state_call=True))
        config = replace(config, class_name=found.class_name)
        local = LocalRun(
            details=to_details(config), package=code, service_url=around.service_url, admin_url=around.admin_url,
            state_url=around.state_url, state_call=found.state_call,
            first_instance=first_instance, secrets_provider=around.secrets_provider,
            secrets_config=around.secrets_config, security=around.security,
        )  # fmt: skip
        if not local.is_direct:  # a direct run loads the code immediately, and reports errors in it
            asyncio.run(check_once(question_of(package, config.class_name or "", config)))
    return local


_NAMES = ("tenant", "namespace", "name")


def code_of(content: dict[str, Any]) -> Path:
    """Return the path of a function's code.

    Raises:
        Failure: the config names no code on this machine.
    """
    if content.get("sql") is not None:
        raise Failure("localrun does not support sql, which requires Spark on a worker: use create")
    if not content.get("className"):
        raise Failure("No Function Classname specified: use --classname module.Class or module.function")
    package = str(content.get("py") or "")
    if not package:
        raise Failure("no code specified: add --py FILE (a .py, .zip or .whl file, or a directory of modules)")
    if package.startswith(REMOTE_PREFIXES):
        raise Failure(f"--py {package}: localrun only supports local files: download the package and use its path")
    return Path(package)
