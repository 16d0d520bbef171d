"""A source that reads the rows of an SQLite table, including rows added later.

magnetar sources create --archive examples/connectors/notes_source.py --classname notes_source.NotesSource \
    --name read-notes --destination-topic-name notes --source-config '{"database": "/tmp/notes.db"}'
"""

import sqlite3
from dataclasses import dataclass

from magnetar.api import Record, Retry, Source, option

QUERY = "SELECT id, text FROM notes WHERE id > ? ORDER BY id LIMIT 1000"


@dataclass
class NotesConfig:
    database: str = option("SQLite file with the table notes (id INTEGER PRIMARY KEY, text TEXT).")


class NotesSource(Source):
    config = NotesConfig

    def open(self, config, context):
        self.database = sqlite3.connect(config.database, timeout=1)
        self.last = -1 if context.position is None else context.position

    def read(self):
        try:
            rows = self.database.execute(QUERY, [self.last]).fetchall()
        except sqlite3.OperationalError as error:
            raise Retry(f"cannot read notes: {error}") from error
        self.last = rows[-1][0] if rows else self.last
        return [Record(text, key=str(number)) for number, text in rows]

    def snapshot(self):
        return self.last

    def close(self):
        self.database.close()
