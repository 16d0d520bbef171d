"""The command line: parses flags, files and environment variables, and prints tables and JSON."""
