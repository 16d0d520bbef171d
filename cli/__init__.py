"""The command line: flags, files and the environment come in here, tables and JSON go out; nothing else decides."""
