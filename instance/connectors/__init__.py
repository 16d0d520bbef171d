"""Sources and sinks that run in an instance."""
