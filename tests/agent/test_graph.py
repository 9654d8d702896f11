"""The machine's shape, what it does in each arm, when it stops, and what it does when judging fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent.config import Arm, Budget, RunConfig
from agent.context import Quiet
from agent.decisions import better
from agent.graph import build, fingerprint
from agent.models.base import ContextOverflow, FinishReason, Refused, Request, Response, Unavailable, Usage
from agent.models.instant import Answers, InstantModel
from agent.models.retry import Policy
from agent.runner import Parts, RunSummary, resume, run
from tasks.errors import InputError
from tests.agent.doubles import TOOLS, Inline, tools
from tools.evaluation import Depth, Evaluation, Target, Verdict
from traces.records import Episode
from traces.store import open_run
from traces.verify import verify_run

WRONG = "verdict: wrong_output"
RIGHT = "verdict: correct targets: yes"
QUICK = Policy(rate_limited=2, unavailable=2, garbled=2)


def numbered(text: str) -> Callable[[Request], str]:
    return lambda request: f"{text} // {request.task} {request.sample} {request.turn}"


def go(
    root: Path, answers: Answers, *, judge: Inline | None = None, **options: Any
) -> tuple[RunSummary, list[Episode], InstantModel]:
    model = InstantModel(answers)
    config = RunConfig(**{"model": "instant:x", "tasks": ("affine",), "seed": 1, **options})
    summary = run(config, root, name="r", parts=Parts(TOOLS, model, judge or Inline(), QUICK))
    assert verify_run(summary.path) == ()
    return summary, list(open_run(summary.path).episodes()), model


def test_the_machine_is_the_one_that_is_drawn() -> None:
    drawn = build().compile().get_graph()
    edges = {(edge.source, edge.target) for edge in drawn.edges}
    line = ["propose", "assemble", "inspect", "check", "prove", "measure", "decide"]
    straight = set(pairwise(line))
    early = {(node, "decide") for node in line[:-2]}
    assert edges == straight | early | {
        ("__start__", "propose"),
        ("decide", "propose"),
        ("decide", "__end__"),
    }
    assert fingerprint("a") == fingerprint("a") != fingerprint("b")


def test_feedback_extends_the_request_byte_for_byte(tmp_path: Path) -> None:
    _, (episode,), model = go(tmp_path, [f"{WRONG} 1", "verdict: fault 2", f"{RIGHT} 3"], turns=5)
    assert [turn.verdict for turn in episode.turns] == [Verdict.WRONG_OUTPUT, Verdict.FAULT, Verdict.CORRECT]
    assert (episode.reason, episode.best_turn) == ("target_met", 3)
    for before, after in pairwise(model.requests):
        assert after.messages[: len(before.messages)] == before.messages
        answer, feedback = after.messages[len(before.messages) :]
        assert (answer.role, answer.content) == (
            "assistant",
            f"{WRONG} 1" if before.turn == 1 else "verdict: fault 2",
        )
        assert feedback.role == "user"
        assert "best: 1" in feedback.content
    assert [turn.stages[-1].value for turn in episode.turns] == ["check", "check", "measure"]


def test_native_items_go_back_verbatim(tmp_path: Path) -> None:
    native = ({"type": "reasoning", "z": 1, "a": {"y": 2, "b": None}},)

    def answer(request: Request) -> Response:
        return Response(text=f"{WRONG} {request.turn}", finish=FinishReason.STOP, model="m", native=native)

    _, _, model = go(tmp_path, answer, turns=2)
    assert list(model.requests[1].messages[2].native[0]) == ["type", "z", "a"]
    assert model.requests[1].messages[2].native == native


@pytest.mark.parametrize("arm", [Arm.VERDICT, Arm.DIAGNOSTICS])
def test_arms_are_told_to_the_renderer(tmp_path: Path, arm: Arm) -> None:
    _, _, model = go(tmp_path, numbered(WRONG), turns=2, arm=arm)
    assert f"[{arm}]" in model.requests[1].messages[-1].content


def test_without_feedback_every_turn_is_a_fresh_sample(tmp_path: Path) -> None:
    _, (episode,), model = go(tmp_path, lambda _: WRONG, turns=3, arm="none")
    assert len({request.messages for request in model.requests}) == 1
    assert len(episode.turns) == 3, "the same candidate again does not end fresh samples"
    assert all(turn.feedback is None for turn in episode.turns)


def test_a_placebo_speaks_of_another_candidate_and_says_of_which(tmp_path: Path) -> None:
    summary, episodes, model = go(tmp_path, numbered(WRONG), turns=2, arm="placebo", samples=2, parallel=1)
    first, second = sorted(episodes, key=lambda each: each.sample)
    assert first.turns[0].placebo == "fixed"
    placebo = second.turns[0].placebo
    assert placebo in {turn.evaluation for turn in first.turns}
    shown = Evaluation.model_validate_json(open_run(summary.path).blobs.get(placebo or ""))
    assert shown.candidate != second.turns[0].candidate
    told = [request for request in model.requests if request.sample == 1][1].messages[-1].content
    assert shown.summary in told
    assert "[feedback]" in told
    assert "best: None" in told


@pytest.mark.parametrize(
    ("answers", "options", "reason", "turns"),
    [
        (numbered(RIGHT), {}, "target_met", 1),
        (numbered(RIGHT), {"stop_when_met": False}, "turns", 4),
        (numbered("verdict: correct"), {}, "turns", 4),
        (numbered(WRONG), {"turns": 1}, "turns", 1),
        (lambda _: WRONG, {}, "repeated", 2),
        (numbered(WRONG), {"plateau": 2}, "plateau", 3),
        (numbered(WRONG), {"budget": Budget(tokens=1)}, "tokens", 1),
        (numbered(WRONG), {"budget": Budget(usd=0.03)}, "money", 2),
        (numbered(WRONG), {"budget": Budget(seconds=1e-9)}, "seconds", 1),
        ([WRONG], {}, "exhausted", 2),
        ([WRONG, ContextOverflow("too long")], {}, "context", 2),
        ([WRONG, Unavailable("503", retry_after=0.0)], {}, "infra", 2),
        ([WRONG, "trouble: CannotJudge"], {}, "infra", 2),
    ],
)
def test_stop_rules(
    tmp_path: Path, answers: Answers, options: dict[str, Any], reason: str, turns: int
) -> None:
    _, (episode,), _ = go(tmp_path, answers, **options)
    assert (episode.reason, len(episode.turns)) == (reason, turns), episode.detail
    last = episode.turns[-1]
    assert last.missing == (reason in ("exhausted", "context", "infra"))
    assert (last.verdict is None) == last.missing


def test_no_candidate_is_a_verdict_with_feedback(tmp_path: Path) -> None:
    _, (episode,), _ = go(tmp_path, ["", "", RIGHT], turns=3)
    assert [turn.verdict for turn in episode.turns] == [
        Verdict.NO_CANDIDATE,
        Verdict.NO_CANDIDATE,
        Verdict.CORRECT,
    ]
    assert episode.turns[0].reason == "an empty answer"


def test_a_lost_worker_is_tried_again_and_what_cannot_be_judged_is_missing(tmp_path: Path) -> None:
    _, (episode,), _ = go(tmp_path / "a", [RIGHT], judge=Inline(broken=2))
    assert episode.reason == "target_met"
    judge = Inline(broken=3)
    _, (episode,), _ = go(tmp_path / "b", [RIGHT], judge=judge)
    assert judge.calls == ["assemble"] * 3
    assert (episode.reason, episode.turns[0].missing) == ("infra", True)
    assert "WorkerLost" in episode.detail
    _, (episode,), _ = go(tmp_path / "c", ["trouble: CannotJudge", RIGHT], arm="none", turns=3)
    assert [turn.missing for turn in episode.turns] == [True, False]
    assert (episode.reason, episode.best_turn) == ("target_met", 2)


def test_the_better_candidate_by_verdict_then_targets_then_depth_then_the_earlier() -> None:
    def made(verdict: Verdict, *depths: Depth, met: int = 0) -> Evaluation:
        targets = tuple(
            Target(family=f"f{place}", required=True, depth=depth, met=place < met)
            for place, depth in enumerate(depths)
        )
        return Evaluation(
            task="t",
            task_digest="d",
            arch="a",
            candidate="c",
            device="e",
            verdict=verdict,
            summary="",
            targets=targets,
        )

    worst_first = [
        made(Verdict.FAULT, Depth.EXECUTED, met=1),
        made(Verdict.CORRECT, Depth.ABSENT),
        made(Verdict.CORRECT, Depth.IN_SASS),
        made(Verdict.CORRECT, Depth.EXECUTED, Depth.ABSENT, met=1),
    ]
    for lesser, greater in itertools.combinations(worst_first, 2):
        assert better(greater, lesser)
        assert not better(lesser, greater)
    assert not better(worst_first[1], worst_first[1])


def test_a_refusal_that_concerns_everybody_stops_the_run_and_it_goes_on_later(tmp_path: Path) -> None:
    summary, episodes, _ = go(
        tmp_path, lambda _: Refused("no such key sk-abcdefghijklmnopqrst"), samples=3, parallel=1
    )
    assert summary.ended == 0
    assert "refuses" in summary.stopped
    assert [episode.reason for episode in episodes] == [None]
    written = b"".join(file.read_bytes() for file in summary.path.rglob("*") if file.is_file())
    assert b"sk-abcdefghijklmnopqrst" not in written
    again = resume(summary.path, parts=Parts(TOOLS, InstantModel([RIGHT]), Inline(), QUICK))
    assert (again.ended, again.stopped, again.reasons) == (3, "", {"target_met": 3})


def test_the_runs_budget_leaves_the_rest_open(tmp_path: Path) -> None:
    summary, _, model = go(tmp_path, numbered(WRONG), samples=9, parallel=1, run_budget=Budget(tokens=20))
    assert summary.ended < 9
    assert "budget of 20 tokens" in summary.stopped
    before = model.calls
    resume(summary.path, parts=Parts(TOOLS, model, Inline(), QUICK))
    assert model.calls == before


def test_another_machine_refuses_to_go_on(tmp_path: Path) -> None:
    summary, _, model = go(tmp_path, [RIGHT])
    with pytest.raises(InputError, match="begin a new run"):
        resume(summary.path, parts=Parts(tools(prompts="other"), model, Inline(), QUICK))


def test_seeds_and_ids_depend_on_the_run_the_episode_and_the_turn_alone(tmp_path: Path) -> None:
    def summaries(where: Path, **options: Any) -> list[list[str]]:
        summary, episodes, _ = go(where, numbered(WRONG), turns=3, samples=2, **options)
        opened = open_run(summary.path)
        return [
            [opened.blobs.json(turn.evaluation or "")["summary"] for turn in each.turns] for each in episodes
        ]

    one, two = summaries(tmp_path / "a"), summaries(tmp_path / "b", parallel=1)
    assert one == two
    assert len({each for episode in one for each in episode}) == 6
    assert summaries(tmp_path / "c", seed=2) != one


def test_progress_hears_of_everything(tmp_path: Path) -> None:
    class Heard(Quiet):
        def __init__(self) -> None:
            self.told: list[tuple[Any, ...]] = []

        def episode_started(self, episode: str, task: str, sample: int) -> None:
            self.told.append(("started", task, sample))

        def turn_judged(self, episode: str, turn: int, evaluation: Evaluation | None, reason: str) -> None:
            self.told.append(("judged", turn, evaluation and evaluation.verdict.value))

        def episode_ended(self, episode: str, reason: str, detail: str) -> None:
            self.told.append(("ended", reason))

        def spent(self, tokens: int, usd: float) -> None:
            self.told.append(("spent", tokens > 0))

    heard = Heard()
    config = RunConfig(model="instant:x", tasks=("affine",))
    model = InstantModel([WRONG, RIGHT])
    run(config, tmp_path, progress=heard, parts=Parts(TOOLS, model, Inline(), QUICK))
    assert heard.told == [
        ("started", "affine", 0),
        ("spent", True),
        ("judged", 1, "wrong_output"),
        ("spent", True),
        ("judged", 2, "correct"),
        ("ended", "target_met"),
    ]
    assert model.closed


def test_usage_and_price_are_kept(tmp_path: Path) -> None:
    def answer(request: Request) -> Response:
        usage = Usage(input=100, cached=40, output=20, reasoning=5)
        return Response(text=RIGHT, finish=FinishReason.STOP, model="served", usage=usage)

    summary, (episode,), _ = go(tmp_path, answer)
    assert (summary.tokens, summary.usd) == (120, pytest.approx(0.12))
    assert (episode.turns[0].tokens.cached, episode.turns[0].model) == (40, "served")
