"""What a target is where speed belongs to it, which tools run for which candidate, and how often one is tried."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.config import RunConfig
from agent.context import Tools
from agent.decisions import better
from agent.models.base import (
    FinishReason,
    ModelError,
    Refused,
    Request,
    Response,
    Usage,
)
from agent.models.instant import InstantModel
from agent.models.retry import Policy
from agent.runner import Parts, run
from tests.agent.doubles import TOOLS, Inline, tools
from tools.evaluation import Depth, Evaluation, Stage, Target, Timing, Verdict
from tools.ladder import Job, StageResult
from traces.events import Infra
from traces.ledger import read_events
from traces.records import Episode
from traces.store import open_run
from traces.verify import verify_run

WRONG, FAULT, RIGHT = "verdict: wrong_output", "verdict: fault", "verdict: correct targets: yes"
PATIENCE = Policy(unavailable=2, first_wait=0.001)


def episode(
    root: Path,
    answers: Sequence[str],
    *,
    judge: Inline | None = None,
    bring: Tools = TOOLS,
    **settings: Any,
) -> Episode:
    """The one episode of a run whose model gives these answers in turn, each 10 tokens for a cent."""

    def answer(request: Request) -> Response | ModelError:
        if request.turn > len(answers):
            return Refused("no more is scripted", fatal=False)
        text = answers[request.turn - 1]
        if isinstance(text, ModelError):
            return text
        return Response(
            text=text, finish=FinishReason.STOP, model="m", usage=Usage(input=6, output=4), seconds=2.0
        )

    config = RunConfig(model="instant:x", tasks=("affine",), **({"turns": 6, "seed": 1} | settings))
    parts = Parts(tools=bring, model=InstantModel(answer), judge=judge or Inline(), policy=PATIENCE)
    summary = run(config, root, name="r", parts=parts)
    assert verify_run(summary.path) == ()
    (told,) = open_run(summary.path).episodes()
    return told


def varied(verdict: str, count: int) -> list[str]:
    return [f"{verdict} // {number}" for number in range(count)]


def _timed(speedup: float, half: float = 0.0, verdict: Any = "faster", baseline: str = "b") -> Timing:
    return Timing(
        baseline=baseline,
        speedup=speedup,
        low=speedup - half,
        high=speedup + half,
        candidate_ms=1.0,
        baseline_ms=speedup,
        verdict=verdict,
        device="d",
    )


def _family(depth: Depth, met: bool) -> Target:
    return Target(family="mma_sync", required=True, depth=depth, met=met)


BASE = Evaluation(
    task="t",
    task_digest="d",
    arch="sm_90a",
    candidate=None,
    device="cuda",
    verdict=Verdict.CORRECT,
    summary="",
)


def test_candidates_are_ordered_by_rung_targets_depth_and_speed() -> None:
    met = {"targets": (_family(Depth.EXECUTED, True),), "targets_met": True}
    rising = [
        {"verdict": Verdict.FAULT, "targets": (_family(Depth.LOAD_BEARING, True),)},
        {"targets": (_family(Depth.ABSENT, False),)},
        {"targets": (_family(Depth.IN_PTX, False),)},
        met | {"timing": _timed(9.0, verdict="suspect")},
        met | {"timing": _timed(1.5)},
        met | {"timing": _timed(1.6)},
    ]
    made = [BASE.model_copy(update=each) for each in rising]
    for place, lesser in enumerate(made):
        for greater in made[place + 1 :]:
            assert better(greater, lesser)
            assert not better(lesser, greater)


@pytest.mark.parametrize(
    "later",
    [
        _timed(1.5),
        _timed(1.55, half=0.05),  # 1.50 to 1.60 against 1.45 to 1.55
        _timed(9.0, verdict="unstable"),
        _timed(9.0, baseline="another"),
        None,
    ],
)
def test_a_later_candidate_is_better_only_beyond_the_interval_of_the_best(later: Timing | None) -> None:
    best = BASE.model_copy(update={"timing": _timed(1.5, half=0.05)})
    new = BASE.model_copy(update={"timing": later})
    assert not better(new, best)
    assert not better(best, new)


@pytest.mark.parametrize(
    ("speedup", "verdict", "turns"), [(1.2, "faster", 1), (1.48, "faster", 6), (1.2, "suspect", 6)]
)
def test_a_wanted_speedup_belongs_to_the_target_where_there_is_a_timing(
    tmp_path: Path, speedup: float, verdict: str, turns: int
) -> None:
    def measure(job: Job, evaluation: Evaluation | None) -> StageResult:
        assert evaluation is not None
        return StageResult(evaluation.model_copy(update={"timing": _timed(1.5, 0.05, verdict)}))

    fast = tools(stages=TOOLS.stages | {Stage.MEASURE: measure})
    told = episode(tmp_path, varied(RIGHT, 6), bring=fast, speedup=speedup)
    assert len(told.turns) == turns


def test_a_wanted_speedup_is_no_target_where_nothing_is_timed(tmp_path: Path) -> None:
    assert episode(tmp_path, [RIGHT], speedup=2.0).reason == "target_met"


def test_a_lost_worker_is_tried_again_and_leaves_no_mark_on_the_verdict(tmp_path: Path) -> None:
    told = episode(tmp_path, [RIGHT], judge=Inline(broken=2))
    assert (told.reason, told.turns[0].verdict) == ("target_met", Verdict.CORRECT)
    assert [event.final for event in _infra(tmp_path)] == [False, False]


def test_what_trying_again_does_not_mend_is_tried_once(tmp_path: Path) -> None:
    judge = Inline()
    episode(tmp_path, ["verdict: fault // trouble: CannotJudge"], judge=judge)
    assert judge.calls == ["assemble"]


def test_a_failed_stage_goes_straight_to_the_decision(tmp_path: Path) -> None:
    judge = Inline()
    told = episode(tmp_path, ["verdict: bad_plan", FAULT, RIGHT], judge=judge)
    every = ["assemble", "inspect", "check", "prove", "measure"]
    assert judge.calls == [*every[:1], *every[:3], *every]
    assert [turn.stages for turn in told.turns] == [tuple(Stage)[:1], tuple(Stage)[:3], tuple(Stage)]


def _infra(root: Path) -> list[Infra]:
    (ledger,) = (root / "r" / "episodes").glob("*.jsonl")
    return [event for event in read_events(ledger) if isinstance(event, Infra)]
