"""A run as a process of its own, for tests that kill it: `python -m tests.agent.runs ROOT NAME BASE_URL [real]`.

Begins the run, or continues it when it is there. The model is OpenAI's own SDK against a server on loopback.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agent.config import RunConfig
from agent.models.factory import ModelOptions
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


def main(root: Path, name: str, base_url: str) -> None:
    parts = Parts(tools=TOOLS, judge=Inline(delay=0.002), policy=Policy(first_wait=0.01))
    path = root / name
    if (path / "run.json").exists():
        summary = resume(path, parts=parts)
    else:
        summary = run(config(base_url), root, name=name, parts=parts)
    sys.exit(0 if summary.ended == summary.episodes else 3)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
