"""Function state: the table service, its client and the API that functions use."""

import os

# This must be set before gRPC is loaded. Otherwise gRPC writes a line to standard error, which may be a function's log,
# for each failed TLS connection. The callers report these failures themselves.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
