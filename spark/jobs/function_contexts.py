"""Contexts of Spark functions: of message functions in tasks, and of DataFrame functions in the driver.

Operations that cannot be performed exactly once in a task are rejected with an error that names an alternative. State
and publishing require a long-running instance, while a task may be retried on any machine.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NoReturn

from ...api.message_id import FunctionMessageId
from ...errors import InvalidConfig
from ...instance.function_context import FunctionContext, RecordedContext
from ...instance.publish_request import PublishRequest
from ...instance.spec import InstanceSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .run_inputs import RunInputs


def _refuse(what: str, remedy: str) -> NoReturn:
    raise InvalidConfig(f"{what} is not supported with runtimeEnv spark, where tasks may be retried: {remedy}")


class NothingOutside:
    """Rejects publishing and acknowledging in tasks."""

    def publish(self, request: PublishRequest) -> None:
        """Raise an error, as tasks cannot do this."""
        _refuse(f"publishing to {request.topic}", "return the output, or use runtimeEnv process")

    def acknowledge(self, message_id: FunctionMessageId, topic: str) -> None:
        """Raise an error, as tasks cannot do this."""
        _refuse("acknowledging a message", "the run acknowledges its input once its outputs are stored")


class MessageContext(FunctionContext):
    """Context of a message function in a task."""

    def _no_state(self, *_: object, **__: object) -> NoReturn:
        _refuse("state", "aggregate in a DataFrame function, or use runtimeEnv process")

    incr_counter = get_counter = del_counter = put_state = get_state = delete_state = _no_state


class DataFrameContext(RecordedContext):
    """Context of a DataFrame function.

    Attributes:
        spark: the function's own session, whose settings and temporary views are not shared.
        run_id: id of this run.
        run_number: sequential number of the run, unchanged if the run is repeated after a failure. To avoid duplicates,
            name your output after it and overwrite existing output.
    """

    def __init__(
        self, spec: InstanceSpec, spark: SparkSession, logger: logging.Logger, run: tuple[str, int], inputs: RunInputs
    ) -> None:
        """Create the context of one run."""
        super().__init__(spec, logger)
        self.spark = spark
        self._inputs = inputs
        self.run_id, self.run_number = run

    def table(self, topic: str) -> DataFrame:
        """Return the backlog of one input, with the same columns as the function's first parameter.

        Args:
            topic: full or short topic name of the input, or its SQL view name.

        Raises:
            InvalidConfig: the topic is not an input.
        """
        return self._inputs.table(topic)

    def __getattr__(self, name: str) -> Any:
        if hasattr(FunctionContext, name):
            raise AttributeError(
                f"{name} is not available in a DataFrame function, which does not process single "
                "messages: use spark, table, run_id, run_number, get_user_config_value, get_logger or the methods that"
                " return names"
            )
        raise AttributeError(f"the context of a DataFrame function has no {name}")
