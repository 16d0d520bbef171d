"""The contexts of Spark functions: of a message function in a task, of a DataFrame function in the driver.

Operations that cannot be done exactly once from a task are rejected, with an alternative: state and publishing belong
to instances that keep running, while a task may be retried anywhere.
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
    raise InvalidConfig(f"{what} is not possible with runtimeEnv spark, where a task may be tried again; {remedy}")


class NothingOutside:
    """Rejects publishing and acknowledging from a task."""

    def publish(self, request: PublishRequest) -> None:
        """Reject."""
        _refuse(f"publishing to {request.topic}", "return the output, or use runtimeEnv process")

    def acknowledge(self, message_id: FunctionMessageId, topic: str) -> None:
        """Reject."""
        _refuse("acknowledging a message", "the run acknowledges its input when its outputs are stored")


class MessageContext(FunctionContext):
    """The context of a message function in a task."""

    def _no_state(self, *_: object, **__: object) -> NoReturn:
        _refuse("state", "aggregate in a DataFrame function, or use runtimeEnv process")

    incr_counter = get_counter = del_counter = put_state = get_state = delete_state = _no_state


class DataFrameContext(RecordedContext):
    """The context of a DataFrame function.

    Attributes:
        spark: the function's own session: its settings and temporary views are not shared.
        run_id: id of this run.
        run_number: counts the runs of the function; the same if a run is repeated after a failure. Name your output
            after it and overwrite existing output, so that a repeated run writes nothing twice.
    """

    def __init__(
        self, spec: InstanceSpec, spark: SparkSession, logger: logging.Logger, run: tuple[str, int], inputs: RunInputs
    ) -> None:
        """Prepare for one run, with its id and number."""
        super().__init__(spec, logger)
        self.spark = spark
        self._inputs = inputs
        self.run_id, self.run_number = run

    def table(self, topic: str) -> DataFrame:
        """Return the backlog of one input, with the columns of the function's first parameter.

        Args:
            topic: an input, by its full or short name, or by the name of its SQL view.

        Raises:
            InvalidConfig: the topic is not an input.
        """
        return self._inputs.table(topic)

    def __getattr__(self, name: str) -> Any:
        if hasattr(FunctionContext, name):
            raise AttributeError(
                f"{name} is not possible in a DataFrame function, which has no message at hand; it has"
                " spark, table, run_id, run_number, get_user_config_value, get_logger and the names"
            )
        raise AttributeError(f"the context of a DataFrame function has no {name}")
