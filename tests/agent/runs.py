"""Runs as processes of their own, for tests that kill them: `python -m tests.agent.runs` forks one for each line it reads.

Such a process begins the run, or continues it when it is there. It starts at once, since the imports are done before
the fork. The model is OpenAI's own SDK against a server on loopback.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from agent.config import RunConfig
from agent.episodes import plan
from agent.models.factory import ModelOptions, make_model
from agent.models.retry import Policy
from agent.runner import Parts, resume, run
from tests.agent.doubles import TOOLS, Inline

TURNS = 4
SAMPLES = 3


def config(base_url: str) -> RunConfig:
    """Six episodes, three at once, that fail differently turn by turn and are right at the last."""
    return RunConfig(
        model="openai:scripted",
        options=ModelOptions(base_url=base_url, api="chat"),
        tasks=("affine", "vector_add"),
        samples=SAMPLES,
        turns=TURNS,
        parallel=3,
        seed=7,
    )


def main(root: Path, name: str, base_url: str) -> int:
    """0 when every episode ended."""
    parts = Parts(tools=TOOLS, judge=Inline(delay=0.002), policy=Policy(first_wait=0.01))
    path = root / name
    begun = (path / "run.json").exists()
    summary = resume(path, parts=parts) if begun else run(config(base_url), root, name=name, parts=parts)
    return 0 if summary.ended == summary.episodes else 3


def serve() -> None:
    """Fork a process for each line `ROOT NAME URL`; say its id, wait for it, say its exit code."""
    importlib.import_module("openai")
    importlib.import_module("agent.checkpoints")
    importlib.import_module("agent.graph")
    make_model("openai:scripted", ModelOptions(base_url="http://127.0.0.1:9/v1", api="chat"))
    plan(config("http://127.0.0.1:9/v1"), TOOLS.load_task)
    for line in sys.stdin:
        root, name, url = line.split()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = main(Path(root), name, url)
            finally:
                os._exit(code)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
