#!/usr/bin/env bash
# Installs the wheel into an empty environment, and trains, tests, infers and exports a demo in a folder outside of the clone.
# bash tests/wheel.sh [FILE.whl] [OPTION …]: the wheel, built here by default, and options of uv, such as --offline.
set -euo pipefail
wheel=""
if [[ "${1:-}" == *.whl ]]; then
  wheel="$(realpath "$1")"
  shift
fi
empty="$(mktemp -d)"
trap 'rm -rf "$empty"' EXIT
if [ -z "$wheel" ]; then
  uv build -q --wheel --out-dir "$empty" "$@" "$(dirname "$0")/.."
  wheel="$(echo "$empty"/mmlisa-*.whl)"
fi
if python3 -m zipfile -l "$wheel" | grep research; then
  echo "error: the wheel contains research"
  exit 1
fi
cd "$empty"
unset PYTHONPATH VIRTUAL_ENV UV_PROJECT_ENVIRONMENT
uv venv -q venv "$@"
# The pair that the tests run on; everything else as a user gets it.
uv pip install -q --python venv/bin/python torch==2.12.1 torchvision==0.27.1 "$wheel[onedl,demo,export]" "$@"
export PATH="$empty/venv/bin:$PATH"
config=mask_rcnn_hylisanet_demo.py checkpoint=work_dirs/mask_rcnn_hylisanet_demo/iter_20.pth
mmlisa check
mmlisa train $config --cfg-options train_cfg.max_iters=20 train_cfg.val_interval=20
mmlisa test $config $checkpoint
mmlisa infer $config $checkpoint data/demo/val/000000000001.jpg
mmlisa export $config $checkpoint model.onnx
echo "The wheel works."
