#!/usr/bin/env bash
# Everything that needs a real GPU, in one go: the tests marked gpu (corpus, solutions, proof, timing, every emulated instruction form
# against the chip), then the readings of docs/measured/h200.md. Run from the repository root with a Python that has what the package
# needs, a CUDA build of torch and pytest; prints a readable result. `QUICK=1` leaves the readings out.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1 PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}."
echo "date     $(date -u +%FT%TZ)"
nvidia-smi --query-gpu=name,driver_version,temperature.gpu,clocks.sm --format=csv,noheader | sed 's/^/gpu      /'
status=0
step() {
  echo "--- $*"
  "$@" || status=$?
}
step "$python" -m tests.sandbox.semantics.hardware
# Our own pytest settings name plugins that a GPU machine need not have.
step "$python" -m pytest -q -c /dev/null --rootdir . -p no:cacheprovider -m gpu tests
if [ -z "${QUICK:-}" ]; then
  step "$python" -m benchmarks.devices
  step "$python" -m benchmarks.repeatability --task gemm_bf16_async --full
  step "$python" -m tests.hostile --count 2000 --processes 4 --seconds 500
fi
exit "$status"
