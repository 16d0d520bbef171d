"""The contexts of Spark functions: of a message function in a task, of a DataFrame function in the driver.

What cannot be done exactly once from a task is refused, with the alternative: state and publishing belong to instances
that keep running, while a task may be tried again anywhere.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, NoReturn

from ...api.message_id import FunctionMessageId
from ...errors import InvalidConfig
from ...instance.function_context import FunctionContext
from ...instance.publish_request import PublishRequest
from ...instance.spec import InstanceSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _refuse(what: str, remedy: str) -> NoReturn:
    raise InvalidConfig(f"{what} is not possible with runtimeEnv spark, where a task may be tried again; {remedy}")


class NothingOutside:
    """Refuses publishing and acknowledging from a task."""

    def publish(self, request: PublishRequest) -> None:
        """Refuse."""
        _refuse(f"publishing to {request.topic}", "return the output, or use runtimeEnv process")

    def acknowledge(self, message_id: FunctionMessageId, topic: str) -> None:
        """Refuse."""
        _refuse("acknowledging a message", "the run acknowledges its input when its outputs are stored")


class MessageContext(FunctionContext):
    """The context of a message function in a task."""

    def _no_state(self, *_: object, **__: object) -> NoReturn:
        _refuse("state", "aggregate in a DataFrame function, or use runtimeEnv process")

    incr_counter = get_counter = del_counter = put_state = get_state = delete_state = _no_state


class DataFrameContext:
    """The context of a DataFrame function.

    Attributes:
        spark: the session, one of the function's own: its settings and temporary views are nobody else's.
        run_id: of the run that asked for this.
        run_number: counts the runs of the function; the same when a run is repeated after a failure. Name what you
            write after it, and overwrite it, and a repeated run writes nothing twice.
    """

    def __init__(self, spec: InstanceSpec, spark: SparkSession, logger: logging.Logger, run: tuple[str, int]) -> None:
        """Prepare for one run, of an id and a number."""
        self.spark = spark
        self.run_id, self.run_number = run
        self._spec = spec
        self._logger = logger
        text = spec.details.userConfig
        self._user_config: dict[str, Any] = json.loads(text) if text else {}

    def get_user_config_value(self, key: str) -> Any:
        """Return a value of the function's userConfig, None if it has none."""
        return self._user_config.get(key)

    def get_user_config_map(self) -> dict[str, Any]:
        """Return the function's userConfig."""
        return self._user_config

    def get_logger(self) -> logging.Logger:
        """Return a logger that writes into the function's log."""
        return self._logger

    def get_function_tenant(self) -> str:
        """Return the tenant."""
        return self._spec.details.tenant

    def get_function_namespace(self) -> str:
        """Return the namespace."""
        return self._spec.details.namespace

    def get_function_name(self) -> str:
        """Return the name."""
        return self._spec.details.name

    def get_function_version(self) -> str:
        """Return the version of the function's record."""
        return str(self._spec.metadata.version)

    def get_input_topics(self) -> list[str]:
        """Return the input topics."""
        return list(self._spec.details.source.inputSpecs)

    def get_output_topic(self) -> str:
        """Return the output topic, empty if there is none."""
        return self._spec.details.sink.topic

    def __getattr__(self, name: str) -> Any:
        if hasattr(FunctionContext, name):
            raise AttributeError(
                f"{name} is not possible in a DataFrame function, which has no message at hand; it has"
                " spark, run_id, run_number, get_user_config_value, get_logger and the names"
            )
        raise AttributeError(f"the context of a DataFrame function has no {name}")
