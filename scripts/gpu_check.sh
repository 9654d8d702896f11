#!/usr/bin/env bash
# Everything that needs a real GPU, in one go: the tests marked gpu, and the comparison of every emulated instruction form
# with the chip. Run from the repository root with a Python that has NumPy, cuda-python and pytest; prints a readable result.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
echo "date     $(date -u +%FT%TZ)"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sed 's/^/gpu      /'
"$python" -m tests.sandbox.semantics.hardware
status=$?
# Our own pytest settings name plugins that a GPU machine need not have.
"$python" -m pytest -q -c /dev/null --rootdir . -p no:cacheprovider -m gpu tests/sandbox/semantics/test_hardware.py || status=$?
exit "$status"
