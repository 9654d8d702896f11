"""What a run is: one frozen configuration, whose digest names its episodes.

It never holds a key. What changes only how fast or how far a run goes (parallel episodes, workers, number of samples, the run's own
budget) is outside the digest, so an episode keeps its identity when those change.
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum

from pydantic import Field

from agent.models.factory import ModelOptions
from tasks.record import Record


class Arm(StrEnum):
    """How feedback is given."""

    FEEDBACK = "feedback"
    """All that the tools found."""
    VERDICT = "verdict"
    """Only where the candidate stopped."""
    DIAGNOSTICS = "diagnostics"
    """All but timing."""
    NONE = "none"
    """Nothing: each turn is a fresh sample of the first request."""
    PLACEBO = "placebo"
    """What was found about another candidate."""


class Budget(Record):
    """Limits; None: none. Checked between turns, so the last turn may go over."""

    tokens: int | None = Field(default=None, gt=0)
    """Input and output."""
    usd: float | None = Field(default=None, gt=0)
    """Of answers with a known price."""
    seconds: float | None = Field(default=None, gt=0)
    """Of an episode: worked, waiting for a place not counted. Of a run: by the clock, since this process began."""


class RunConfig(Record):
    """Everything that decides what a run does."""

    model: str
    """As on the command line, such as openai:gpt-5 or recorded:demo."""
    options: ModelOptions = ModelOptions()
    tasks: tuple[str, ...] = Field(min_length=1)
    arch: str = "sm_90a"
    arm: Arm = Arm.FEEDBACK
    samples: int = Field(default=1, ge=1)
    """Episodes a task."""
    turns: int = Field(default=4, ge=1, le=1000)
    """At most, an episode; 1 is single-shot."""
    stop_when_met: bool = True
    """End an episode at its first turn that meets the target; False: draw all turns."""
    speedup: float | None = Field(default=None, gt=0)
    """Speedup that belongs to the target where there is a timing, by the lower end of its interval; None: none."""
    plateau: int | None = Field(default=None, ge=1)
    """Turns without a better candidate that end an episode; None: never."""
    require: tuple[str, ...] = ()
    """Instruction families asked for besides the tasks' own."""
    budget: Budget = Budget()
    """Of each episode."""
    max_output_tokens: int | None = Field(default=None, gt=0)
    temperature: float | None = None
    device: str = "emulator"
    """emulator or cuda."""
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs to use; empty: all that suit the architecture."""
    screen: bool = False
    """Check on the emulator first, and on a GPU only what passes there or cannot be judged there."""
    template: str | None = None
    """Version of prompts and feedback; None: the newest."""
    prices: str | None = None
    """File of prices in the form of `agent/prices.yaml`; None: that one."""
    stage_attempts: int = Field(default=3, ge=1)
    """How often a tool is tried when something other than the candidate fails."""
    stage_seconds: float = Field(default=300.0, gt=0)
    """Wall seconds a tool may take before its worker is killed."""
    seed: int | None = None
    """Fixes the secret from which input seeds are drawn, for a run that can be repeated; None: a random secret."""
    parallel: int = Field(default=8, ge=1)
    """Episodes at once."""
    workers: int = Field(default=2, ge=1)
    """Processes that run tools; on GPUs at least one for each, and one more for each that times and does nothing else."""
    worker_bytes: int = Field(default=4 << 30, gt=0)
    """Memory of each; on GPUs at least `agent.judges.LEAST_BYTES`."""
    run_budget: Budget = Budget()
    """Of the whole run: what is left when it is used up stays open, and `resume` continues it."""

    @property
    def digest(self) -> str:
        """sha256 of what decides an episode."""
        decides = self.model_dump(mode="json", exclude=set(_OUTSIDE))
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


_OUTSIDE = ("tasks", "samples", "gpus", "parallel", "workers", "worker_bytes", "run_budget", "seed", "prices")
