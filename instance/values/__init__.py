"""Convert messages for a function: by annotation, SerDe or schema, and with the schemas of its topics."""
