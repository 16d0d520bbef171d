"""Apache Pulsar's binary protocol without input and output: commands, frames, entries, names."""

from .. import late_module

# protobuf in plain Python, which protobuf's own modules import beside the one in C that does the work: 0.6 MB.
late_module("google.protobuf.internal.python_message")
