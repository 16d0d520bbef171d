#!/bin/sh
# Compiles the .proto files of this folder to the committed *_pb2 modules; `make generate` calls it.
# A stub line `None: …` (a value of Schema.Type) is not Python and is left out; code says `Schema.Type.Value("None")`.
set -eu
out=${1:-$(dirname "$0")}
out=$(cd "$out" && pwd)
cd "$(dirname "$0")"
"${PYTHON:-python3}" -m grpc_tools.protoc -I . --python_out="$out" --pyi_out="$out" pulsar_api.proto functions.proto state.proto
sed -i '/^ *None: /d' "$out/pulsar_api_pb2.pyi"
