"""Runs with timings, without a GPU: a candidate says its own speed (`speed: 1.5`), and two GPUs are said to be there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.config import RunConfig
from agent.models.base import FinishReason, Request, Response, Usage
from agent.models.instant import InstantModel
from agent.runner import Parts, run
from sandbox.cuda.wire import Gpu
from tests.agent.doubles import TOOLS, Inline, tools
from tools import devices
from tools.evaluation import Clocks, Evaluation, Reading, Spread, Stage, Timing
from tools.ladder import Job, StageResult
from traces.store import Run, open_run

RIGHT = "verdict: correct targets: yes"
H200 = Gpu(
    index=0,
    name="NVIDIA H200",
    uuid="GPU-0",
    capability=(9, 0),
    driver="13.0",
    multiprocessors=132,
    memory_bytes=141 << 30,
    l2_bytes=60 << 20,
    shared_optin=232_448,
    clock_khz=1_980_000,
    memory_clock_khz=3_201_000,
    bus_bits=6144,
    pageable=False,
    start_seconds=0.4,
)
A100 = replace(H200, index=1, name="NVIDIA A100", uuid="GPU-1", capability=(8, 0), memory_bytes=80 << 30)


def with_gpus(monkeypatch: pytest.MonkeyPatch, *found: Gpu) -> None:
    """Have this machine's GPUs be these."""
    from sandbox.cuda import device

    monkeypatch.setattr(device, "gpus", lambda: found)
    monkeypatch.setattr(devices, "known_gpus", lambda: found)


def timing(speedup: float, half: float = 0.005, **more: Any) -> Timing:
    """A reading of a kernel that reaches 42 % of the memory roof when it is as fast as its baseline."""
    verdict: Any = more.pop("verdict", "faster" if speedup - half > 1 else "slower")
    low, high, ours = speedup - half, speedup + half, 0.6 / speedup
    reading = Reading(
        workload="bench",
        baseline="torch",
        verdict=verdict,
        speedup=speedup,
        low=low,
        high=high,
        floor=0.001,
        candidate_ms=Spread(p10=ours, p50=ours, p90=ours),
        baseline_ms=Spread(p10=0.6, p50=0.6, p90=0.6),
        pairs=40,
        roof_ms=0.252,
        bound="memory",
    )
    made = Timing(
        baseline="torch",
        speedup=speedup,
        low=low,
        high=high,
        candidate_ms=ours,
        baseline_ms=0.6,
        verdict=verdict,
        device="NVIDIA H200",
        uuid="GPU-0",
        driver="13.0",
        readings=(reading,),
        clocks=Clocks(sm_mhz=(1755, 1980), temperature_c=(41, 46), power_w=(210.0, 522.0)),
        seconds=0.4,
    )
    return made.model_copy(update=more)


def measure(job: Job, evaluation: Evaluation | None) -> StageResult:
    """The stage that times, by what the candidate says."""
    assert evaluation is not None
    assert job.text is not None
    said = re.search(r"speed: ([\d.]+)", job.text)
    if said is None:
        return StageResult(evaluation)
    return StageResult(
        evaluation.model_copy(update={"timing": timing(float(said[1]))}),
        {"samples.json": f"samples of {job.text}".encode()},
    )


def timed_run(root: Path, answers: Sequence[Sequence[str]], **settings: Any) -> Run:
    """A run whose sample k gets the answers `answers[k]`, turn by turn."""

    def answer(request: Request) -> Response:
        text = answers[request.sample][request.turn - 1]
        return Response(text=text, finish=FinishReason.STOP, model="m", usage=Usage(input=6, output=4))

    defaults = {"turns": len(answers[0]), "seed": 1, "stop_when_met": False, "device": "cuda"}
    config = RunConfig(model="instant:x", tasks=("affine",), samples=len(answers), **(defaults | settings))
    parts = Parts(
        tools=tools(stages=TOOLS.stages | {Stage.MEASURE: measure}),
        model=InstantModel(answer),
        judge=Inline(),
    )
    return open_run(run(config, root, name="r", parts=parts).path)
