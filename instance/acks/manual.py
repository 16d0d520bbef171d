"""Manual: the function acknowledges its input itself, with ``context.ack``."""

from __future__ import annotations

from ..ports import Input
from ..unit import Acknowledgements
from .at_least_once import AtLeastOnce


class Manual(AtLeastOnce):
    """Acknowledges only what gives the function nothing to do; what fails is asked for again."""

    def _acknowledge(self, opened: Input, done: Acknowledgements) -> None:
        """Leave it to the function."""
