"""Draw the pictures of the documentation as SVG files in `docs/pictures`; `python docs/site/pictures.py` writes them.

Each picture has an opaque panel and follows the reader's light or dark theme, so it can be read on any page. Text stays
text. Widths of text are estimated, and a text that does not fit its box is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
CHARACTER_EM = 0.6
"""Average width of a character in a sans-serif font, in units of its size."""
STYLE = """
.panel { fill: #ffffff; stroke: #d0d7de }
.group { fill: #f6f8fa; stroke: #8c959f }
.box { fill: #ddf4ff; stroke: #0969da }
.user { fill: #dafbe1; stroke: #1a7f37 }
.disk { fill: #fff8c5; stroke: #9a6700 }
.crash { fill: none; stroke: #cf222e; stroke-width: 2.5 }
.line, .arrow { stroke: #57606a; stroke-width: 1.5; fill: none }
.life { stroke: #8c959f; stroke-dasharray: 4 4 }
.head { fill: #57606a }
text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.note { fill: #57606a }
.red { fill: #cf222e }
.bold { font-weight: 600 }
@media (prefers-color-scheme: dark) {
.panel { fill: #0d1117; stroke: #3d444d }
.group { fill: #151b23; stroke: #656c76 }
.box { fill: #0c2d6b; stroke: #58a6ff }
.user { fill: #04260f; stroke: #3fb950 }
.disk { fill: #341a00; stroke: #d29922 }
.crash { stroke: #f85149 }
.line, .arrow { stroke: #9198a1 }
.life { stroke: #656c76 }
.head { fill: #9198a1 }
text { fill: #f0f6fc }
.note { fill: #9198a1 }
.red { fill: #f85149 }
}
"""


class TextTooWide(ValueError):
    """A text does not fit its box."""


class Picture:
    """One picture: shapes are added in the order in which they cover each other."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size = (width, height)
        self._title = title
        self._parts = [f'<rect class="panel" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>']

    def text(
        self, at: tuple[float, float], words: str, kind: str = "", size: int = 14, anchor: str = "middle",
        room: float = 0,
    ) -> None:  # fmt: skip
        """Add one line of text, and check that it fits into the room, if there is a limit."""
        if room and len(words) * size * CHARACTER_EM > room:
            raise TextTooWide(f"{words!r} is wider than {room:g}")
        self._parts.append(
            f'<text class="{kind}" x="{at[0]:g}" y="{at[1]:g}" font-size="{size}" text-anchor="{anchor}">'
            f"{escape(words)}</text>"
        )

    def box(self, x: float, y: float, width: float, height: float, lines: list[str], kind: str = "box") -> None:
        """Add a box: the first line is its name, the others describe it."""
        self._parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>')
        top = y + height / 2 - (len(lines) - 1) * 9 + 5
        for number, words in enumerate(lines):
            self.text(
                (x + width / 2, top + 18 * number), words, "note" if number else "bold", 12 if number else 14,
                room=width - 8,
            )  # fmt: skip

    def group(self, x: float, y: float, width: float, height: float, name: str) -> None:
        """Add a frame for boxes, with a name at its top."""
        self._parts.append(f'<rect class="group" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8"/>')
        self.text((x + 12, y + 22), name, "bold", anchor="start", room=width - 20)

    def arrow(self, x1: float, y1: float, x2: float, y2: float, both: bool = False) -> None:
        """Add a straight arrow, with a head at its end, or at both ends."""
        start = ' marker-start="url(#head)"' if both else ""
        self._parts.append(
            f'<line class="arrow" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"{start} marker-end="url(#head)"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> None:
        """Add a line without heads."""
        self._parts.append(f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>')

    def svg(self) -> str:
        """Return the file."""
        width, height = self.size
        head = (
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
            ' orient="auto-start-reverse"><path class="head" d="M0 0L10 5L0 10z"/></marker></defs>'
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
                f' height="{height}" role="img">',
                f"<title>{escape(self._title)}</title>",
                f"<style>{STYLE}</style>",
                head,
                *self._parts,
                "</svg>\n",
            ]
        )


def architecture() -> Picture:
    """The processes, their parts, and what they send each other."""
    picture = Picture(
        920, 480, "Programs publish to the broker; workers run functions, sources and sinks on its topics."
    )
    picture.group(300, 24, 220, 332, "Broker")
    picture.group(640, 24, 256, 332, "Worker (one or several)")
    picture.box(24, 60, 180, 64, ["Command line, REST", "deploy and inspect"], "user")
    picture.box(24, 164, 180, 84, ["Your programs", "Pulsar's clients,", "magnetar.client"], "user")
    picture.box(316, 60, 188, 64, ["Admin REST", "port 8080"])
    picture.box(316, 164, 188, 84, ["Topics", "sessions and dispatch,", "port 6650"])
    picture.box(316, 276, 188, 64, ["Journal and ledgers", "synced before a receipt"], "disk")
    picture.box(656, 60, 224, 64, ["Manager, REST", "one worker leads, port 6750"])
    picture.box(656, 164, 104, 176, ["Functions", "processes", "or threads,", "Spark jobs"], "user")
    picture.box(776, 164, 104, 176, ["Connectors", "sources", "and sinks"])
    picture.box(636, 396, 144, 60, ["State store", "port 4181"], "disk")
    picture.box(796, 396, 100, 60, ["Other", "systems"], "user")

    picture.arrow(204, 92, 316, 92)
    picture.text((252, 84), "requests", "note", 12, room=90)
    picture.arrow(204, 206, 316, 206, both=True)
    picture.text((252, 198), "messages", "note", 12, room=90)
    picture.arrow(504, 92, 656, 92)
    picture.text((580, 68), "requests for", "note", 12, room=110)
    picture.text((580, 84), "functions", "note", 12, room=110)
    picture.arrow(504, 206, 656, 206, both=True)
    picture.text((580, 182), "inputs, outputs,", "note", 12, room=118)
    picture.text((580, 198), "and acks", "note", 12, room=118)
    picture.arrow(410, 248, 410, 276, both=True)
    picture.arrow(708, 124, 708, 164)
    picture.text((720, 149), "starts and restarts", "note", 12, anchor="start", room=160)
    picture.arrow(708, 340, 708, 396, both=True)
    picture.text((700, 378), "state", "note", 12, anchor="end", room=60)
    picture.arrow(828, 340, 828, 396, both=True)
    picture.text((836, 378), "records", "note", 12, anchor="start", room=60)
    picture.text((24, 404), "magnetar standalone starts broker, worker", "note", 13, anchor="start", room=560)
    picture.text((24, 424), "and state store together, on one machine.", "note", 13, anchor="start", room=560)
    return picture


def message() -> Picture:
    """The life of a message, step by step."""
    columns = {"Producer": 108, "Broker": 340, "Journal": 560, "Instance": 812}
    steps: list[tuple[str, str, str]] = [
        ("Producer", "Broker", "1  send a batch"),
        ("Broker", "Journal", "2  append and sync"),
        ("Broker", "Producer", "3  receipt"),
        ("Broker", "Instance", "4  dispatch the batch"),
        ("Instance", "Instance", "5  call the function"),
        ("Instance", "Broker", "6  send the outputs"),
        ("Broker", "Journal", "7  append and sync"),
        ("Broker", "Instance", "8  receipt"),
        ("Instance", "Broker", "9  acknowledge the inputs"),
        ("Broker", "Journal", "10  record within 50 ms"),
    ]
    pitch = 44
    bottom = 100 + pitch * len(steps)
    picture = Picture(
        920, bottom + 20, "Inputs and outputs are on disk before their receipts; then the input is acknowledged."
    )
    kinds = {"Producer": "user", "Journal": "disk"}
    names = {"Journal": "Journal on disk", "Instance": "Function instance"}
    for name, x in columns.items():
        picture.line(x, 66, x, bottom, "life")
        picture.box(x - 84, 22, 168, 44, [names.get(name, name)], kinds.get(name, "box"))
    for number, (source, target, words) in enumerate(steps):
        y = 112 + pitch * number
        if source == target:
            picture.box(columns[source] - 92, y - 20, 184, 34, [words])
            continue
        start, end = columns[source], columns[target]
        picture.arrow(start, y, end, y)
        near = {("Broker", "Instance"): 686, ("Instance", "Broker"): 686}  # beside the journal's line
        middle = near.get((source, target), (start + end) / 2)
        picture.text((middle, y - 7), words, size=13, room=240)
    return picture


def guarantees() -> Picture:
    """What a crash between two steps does under each guarantee."""
    rows: list[tuple[str, list[str], int, list[str]]] = [
        ("ATMOST_ONCE", ["acknowledge", "call function", "store output"], 1,
         ["A crash before the output is stored loses", "the message. It is never processed twice."]),
        ("ATLEAST_ONCE (default)", ["call function", "store output", "acknowledge"], 2,
         ["A crash before the acknowledgement repeats", "the message. Its output may appear twice,",
          "but nothing is lost."]),
        ("EFFECTIVELY_ONCE", ["call function", "commit results", "acknowledge"], 2,
         ["A crash before the acknowledgement repeats", "the message. The second result is dropped,",
          "so it counts exactly once."]),
    ]  # fmt: skip
    picture = Picture(920, 24 + 128 * len(rows), "What a crash does under each processing guarantee.")
    for number, (name, steps, crash, result) in enumerate(rows):
        y = 24 + 128 * number
        picture.text((24, y + 18), name, "bold", anchor="start", room=300)
        for place, words in enumerate(steps):
            x = 24 + 172 * place
            picture.box(x, y + 34, 132, 48, [words], "disk" if words in ("store output", "commit results") else "box")
            if place:
                picture.arrow(x - 40, y + 58, x, y + 58)
        x = 24 + 172 * crash - 20
        picture.line(x - 9, y + 49, x + 9, y + 67, "crash")
        picture.line(x - 9, y + 67, x + 9, y + 49, "crash")
        picture.text((x, y + 98), "crash", "red", 12, room=60)
        for line, words in enumerate(result):
            picture.text((524, y + 54 + 20 * line), words, size=13, anchor="start", room=360)
        if number:
            picture.line(24, y - 8, 896, y - 8, "life")
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    "architecture": architecture,
    "message": message,
    "guarantees": guarantees,
}
"""Name of the file without its suffix -> the function that draws it."""


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg())


if __name__ == "__main__":
    main()
