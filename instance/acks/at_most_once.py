"""At most once: an input entry is acknowledged, and processed when that acknowledgement is durable."""

from __future__ import annotations

from ..ports import Input
from ..unit import Acknowledgements, Unit
from .at_least_once import AtLeastOnce


class AtMostOnce(AtLeastOnce):
    """Acknowledges first; nothing comes again."""

    claims_first = True

    def _acknowledge(self, opened: Input, done: Acknowledgements) -> None:
        """Do nothing: it is acknowledged."""

    def _ask_again(self, opened: Input, unit: Unit) -> None:
        """Do nothing: what failed is lost, as at most once allows."""
