"""Function state: the table service, its client, and the function's view of it."""

import os

# Set before gRPC is loaded: it would write a line to standard error, which may be a function's log, for each failed TLS
# connection. The callers report these failures.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
