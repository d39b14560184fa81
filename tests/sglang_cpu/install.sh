#!/usr/bin/env bash
# Makes a virtual environment with a real SGLang 0.5.23 that runs without a GPU: about 2 GB, 2 minutes.
#   bash tests/sglang_cpu/install.sh DIR
# torch must be the CPU build; the packages are SGLang's own needs less the ones that only a GPU has (--no-deps).
set -euo pipefail
target=${1:?usage: install.sh DIR}
here=$(cd "$(dirname "$0")" && pwd)
python3.11 -m venv "$target"
"$target/bin/pip" install -q --no-compile -r "$here/requirements.txt"
"$target/bin/pip" install -q --no-compile --no-deps sglang==0.5.23 compressed-tensors==0.18.0 torchvision==0.28.0
