#!/usr/bin/env bash
# Installs the wheel into an empty environment, and trains, tests, infers and exports a demo in a folder outside of the clone.
# bash tests/wheel.sh [FILE.whl] [OPTION …]: the wheel, built here by default, and options of uv, such as --offline.
set -euo pipefail
clone="$(realpath "$(dirname "$0")/..")"
wheel=""
if [[ "${1:-}" == *.whl ]]; then
  wheel="$(realpath "$1")"
  shift
fi
empty="$(mktemp -d)"
trap 'rm -rf "$empty"' EXIT
unset PYTHONPATH VIRTUAL_ENV
if [ -z "$wheel" ]; then
  # From the source distribution: setuptools would also put what an earlier build left in build/ into the wheel.
  uv build -q --out-dir "$empty" "$@" "$clone"
  wheel="$(echo "$empty"/mmlisa-*.whl)"
fi
if python3 -m zipfile -l "$wheel" | grep research; then
  echo "error: the wheel contains research"
  exit 1
fi
# The versions that the tests run on, from uv's lock file and cache, and nothing that only developers install.
export UV_PROJECT_ENVIRONMENT="$empty/venv"
uv sync -q --project "$clone" --no-install-project --no-default-groups --extra onedl --extra demo --extra export "$@"
uv pip install -q --python "$empty/venv/bin/python" --no-deps "$wheel" "$@"
mkdir "$empty/elsewhere"
cd "$empty/elsewhere"
export PATH="$empty/venv/bin:$PATH"
python - "$empty/venv" << 'END'
import sys

import mmlisa

if not mmlisa.__file__.startswith(sys.argv[1]):
    sys.exit(f"error: {mmlisa.__file__} is imported, not the wheel")
END
config=mask_rcnn_hylisanet_demo.py checkpoint=work_dirs/mask_rcnn_hylisanet_demo/iter_20.pth
image=data/demo/val/000000000001.jpg
mmlisa check
mmlisa demo
mmlisa train $config --cfg-options train_cfg.max_iters=20 train_cfg.val_interval=20
mmlisa test $config $checkpoint
mmlisa infer $config $checkpoint $image
mmlisa export $config $checkpoint model.onnx
python -c "import mmlisa.runtime, sys; print(mmlisa.runtime.load('model.onnx').predict(sys.argv[1]))" $image
echo "The wheel works."
