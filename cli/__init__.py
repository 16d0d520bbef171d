"""The command line: reads flags, files and the environment, and prints tables and JSON."""
