"""Conversion of messages for a function: types by annotation, SerDe or schema, and the schemas of its topics."""
