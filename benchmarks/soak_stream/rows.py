"""The rows of a stream soak, and the expected results, computed without Spark.

A row is ``number,amount,milliseconds``. Times increase with the numbers, but are out of order within `LATE_S`. The last
row, with the number -1, is so much later that all previous windows are complete.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

KEYS = 50
WINDOW_S = 10
LATE_S = 30
PER_ENTRY = 1000
START_S = 1_700_000_000
SPAN_S = 1000
"""Time span of all rows, regardless of their number."""
WATERMARK_S = 300
"""Watermark: must exceed the time span of one batch, as partitions are read concurrently."""
LAST = b"-1,0,%d" % ((START_S + 10 * SPAN_S) * 1000)


class Rows(NamedTuple):
    """All rows except the last one.

    Attributes:
        amounts: values by row number.
        times_ms: values by row number.
    """

    amounts: np.ndarray
    times_ms: np.ndarray

    @classmethod
    def by_chance(cls, count: int, seed: int) -> Rows:
        """Return random rows, reproducible with the same seed."""
        chance = np.random.default_rng(seed)
        on_time: np.ndarray = START_S * 1000 + np.arange(count, dtype=np.int64) * (SPAN_S * 1000) // count
        return cls(chance.integers(0, 1000, count), on_time - chance.integers(0, LATE_S * 1000, count))

    def entries(self, partition: int, partitions: int) -> Iterator[list[bytes]]:
        """Yield the values of a partition, one entry at a time; entries are distributed to the partitions in turn."""
        for first in range(partition * PER_ENTRY, len(self.amounts), partitions * PER_ENTRY):
            end = min(first + PER_ENTRY, len(self.amounts))
            numbers = range(first, end)
            yield [
                b"%d,%d,%d" % row
                for row in zip(
                    numbers, self.amounts[first:end].tolist(), self.times_ms[first:end].tolist(), strict=True
                )
            ]

    def totals(self) -> dict[str, tuple[int, int]]:
        """Return count and sum of the amounts by ``start of the window/key``, the keys used by the stream."""
        keys: np.ndarray = np.arange(len(self.amounts)) % KEYS
        windows: np.ndarray = self.times_ms // (WINDOW_S * 1000)
        first = int(windows.min())
        cells = (windows - first) * KEYS + keys
        counts = np.bincount(cells)
        sums = np.bincount(cells, weights=self.amounts)
        return {
            f"{(first + cell // KEYS) * WINDOW_S}/{cell % KEYS}": (int(counts[cell]), int(sums[cell]))
            for cell in map(int, np.flatnonzero(counts))
        }

    def differences(self, values: pa.Array) -> list[str]:
        """Return the errors in copies of all rows and the last one: missing, repeated or changed rows."""
        table = _parsed(values)
        numbers, amounts, times_ms = (table.column(index).to_numpy() for index in range(3))
        is_row = numbers >= 0
        copies = np.bincount(numbers[is_row], minlength=len(self.amounts))
        inside = numbers[is_row]
        changed = (self.amounts[inside] != amounts[is_row]) | (self.times_ms[inside] != times_ms[is_row])
        found = {
            "are missing": int((copies == 0).sum()),
            "are repeated": int((copies > 1).sum()),
            "are changed": int(changed.sum()),
        }
        wrong = [f"{count} of {len(self.amounts)} rows {what}" for what, count in found.items() if count]
        last = int((~is_row).sum())
        return wrong if last == 1 else [*wrong, f"the last row occurs {last} times"]


def _parsed(values: pa.Array) -> pa.Table:
    text = b"\n".join(value.as_buffer().to_pybytes() for value in values)
    names = ["number", "amount", "milliseconds"]
    return pyarrow.csv.read_csv(
        io.BytesIO(text),
        read_options=pyarrow.csv.ReadOptions(column_names=names),
        convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.int64())),
    )
