"""A sink that writes objects with an id and a text to an SQLite table; a later object replaces a row with the same id.

magnetar sinks create --archive examples/connectors/notes_sink.py --classname notes_sink.NotesSink \
    --name keep-notes --inputs notes --sink-config '{"database": "/tmp/notes.db"}'
"""

import json
import sqlite3
from dataclasses import dataclass

from magnetar.api import RecordRefused, Retry, Sink, option


@dataclass
class NotesConfig:
    database: str = option("SQLite file with the table notes (id INTEGER PRIMARY KEY, text TEXT).")


class NotesSink(Sink):
    config = NotesConfig

    def open(self, config, context):
        self.database = sqlite3.connect(config.database, timeout=1)

    def write_batch(self, records):
        rows = []
        for index, record in enumerate(records):
            try:
                note = json.loads(record.value)
                rows.append((note["id"], note["text"]))
            except (ValueError, KeyError, TypeError) as error:
                raise RecordRefused(f"invalid note: {error!r}", index) from error
        try:
            with self.database:  # one transaction
                self.database.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?)", rows)
        except sqlite3.OperationalError as error:
            raise Retry(f"cannot write notes: {error}") from error

    def close(self):
        self.database.close()
