#!/bin/sh
# Compiles the .proto files of this folder to the committed *_pb2 modules; `make generate` calls it.
# protoc names modules absolutely; inside the package we import relatively, which only the type stubs of
# nested packages would need, so the files import nothing of ours and stay as generated.
set -eu
out=${1:-$(dirname "$0")}
cd "$(dirname "$0")"
"${PYTHON:-python3}" -m grpc_tools.protoc -I . --python_out="$out" --pyi_out="$out" pulsar_api.proto functions.proto
