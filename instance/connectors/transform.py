"""Apply a connector's transform function to every record, before a sink or after a source.

The function receives a record's value and returns a new value, or a `Record` to change key and properties too. None
drops the record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...api.connector import Record
from ...api.serde import IdentitySerDe
from ...config.connector_conversion import IDENTITY
from ..batch_call import BatchCall, Failure
from ..function_context import Equipment, FunctionContext, Outside, instance_logger
from ..loading.kinds import Kind
from ..loading.loader import Home, load_function, load_serde
from ..secrets import ClearTextSecretsProvider, Secrets
from ..spec import InstanceSpec
from ..state.session import StateSession
from ..stats import InstanceStats
from ..unit import Unit
from .records import Placed


class Transform:
    """A transform function; called on the connector's thread."""

    def __init__(self, function: Callable[..., Any], context: FunctionContext | None) -> None:
        """Wrap a transform function.

        Args:
            function: function of a value, and of the context if there is one.
            context: context passed to the function; None if it takes none.
        """
        self._calls = BatchCall(function, context, IdentitySerDe())
        self._context = context

    def records(self, records: list[Placed], unit: Unit, failures: list[Failure]) -> list[Placed]:
        """Transform the records of a unit for a sink; failed ones are added to ``failures``."""
        if self._context is not None:
            self._context.enter(self._calls.place, unit, 0)
        later: list[Failure] = []
        order = [placed.position for placed in records]
        outputs = self._calls.call([placed.record.value for placed in records], order, later)
        if self._context is not None:
            self._context.stay()
        failures += [Failure(order[failure.position], failure.error, failure.blame) for failure in later]
        return [
            Placed(placed.position, _changed(placed.record, output))
            for placed, output in zip(records, outputs, strict=True)
            if output is not None
        ]

    def outputs(self, records: Sequence[Record], failures: list[Failure]) -> list[Record | None]:
        """Transform a source's records, with None for dropped or failed ones."""
        outputs = self._calls.call([record.value for record in records], range(len(records)), failures)
        return [
            None if output is None else _changed(record, output)
            for record, output in zip(records, outputs, strict=True)
        ]


def _changed(record: Record, output: Any) -> Record:
    if not isinstance(output, Record):
        record.value = output
        return record
    return replace(
        record, value=output.value, key=output.key, properties=output.properties, event_time_ms=output.event_time_ms
    )


def load_transform(
    spec: InstanceSpec, home: Home, stats: InstanceStats, outside: Outside, state: StateSession | None
) -> Transform | None:
    """Return the transform function of a connector, or None.

    Raises:
        FunctionLoadError: the function does not exist in the package.
        Exception: raised by the package on import.
    """
    if spec.details.className in ("", IDENTITY):
        return None
    loaded = load_function(spec, home).only((Kind.PLAIN,), "the transform function of a connector")
    context: FunctionContext | None = None
    if loaded.takes_context:
        logger = instance_logger(spec)
        stored = json.loads(spec.details.secretsMap) if spec.details.secretsMap else {}
        secrets = Secrets(stored, ClearTextSecretsProvider(), lambda given: None)  # the connector already hides them
        make_serde, equipment = partial(load_serde, home), Equipment(secrets=secrets)
        context = FunctionContext(spec, stats, outside, logger, make_serde, state)
        context.equip(equipment)
        context.stay()
    return Transform(loaded.call, context)
