"""Apache Pulsar's binary protocol without I/O: commands, frames, entries and names."""

from .. import late_module

# The pure Python implementation, which protobuf imports in addition to the C implementation in use, takes 0.6 MB.
late_module("google.protobuf.internal.python_message")
