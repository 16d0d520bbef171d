"""What functions remember: the table service, its client, and the function's view of it."""

import os

# Before gRPC is loaded: of each connection that TLS fails for it would write a line to standard error, which may be a
# function's log. What is wrong is told by those who call it.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
