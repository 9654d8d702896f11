"""Winners are timed again in processes of their own; every record stays, and an interruption loses only what is in hand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent.commands.console import console
from agent.confirmation import confirm
from agent.winners import Winner, unconfirmed, winners
from tasks.errors import CannotJudge, InfraError, InputError
from tests.agent.doubles import Inline
from tests.agent.test_cli import Command, ptxmend, squeezed
from tests.agent.timed import A100, H200, RIGHT, measure, timed_run, with_gpus
from tools.evaluation import Evaluation, Verdict
from tools.ladder import Job, StageResult
from traces.confirmations import Confirmation, confirmations, latest
from traces.store import Run
from traces.verify import verify_run

__all__ = ["ptxmend"]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, and a wide terminal."""
    with_gpus(monkeypatch, H200, A100)
    monkeypatch.setattr(console, "_width", 160)


@dataclass
class Told:
    """A `Watch` that remembers."""

    begun_on: list[int] = field(default_factory=list[int])
    records: list[Confirmation] = field(default_factory=list[Confirmation])
    errors: list[str] = field(default_factory=list[str])

    def begun(self, winner: Winner, gpu: int) -> None:
        self.begun_on.append(gpu)

    def done(self, winner: Winner, record: Confirmation) -> None:
        self.records.append(record)

    def failed(self, winner: Winner, error: InfraError) -> None:
        self.errors.append(str(error))


@dataclass
class Again:
    """Judges again without a GPU: a candidate is `slowdown` slower than it says, unless `says` tells another verdict."""

    slowdown: float = 1.0
    says: dict[str, Any] = field(default_factory=dict[str, Any])
    jobs: list[Job] = field(default_factory=list[Job])

    def climb(self, job: Job) -> StageResult:
        self.jobs.append(job)
        assert job.text is not None
        for word, outcome in self.says.items():
            if word in job.text:
                if isinstance(outcome, BaseException):
                    raise outcome
                return StageResult(self._made(job, outcome))
        slower = re.sub(r"speed: ([\d.]+)", lambda each: f"speed: {float(each[1]) / self.slowdown}", job.text)
        return measure(Job(job.task, job.arch, slower), self._made(job, Verdict.CORRECT))

    def _made(self, job: Job, verdict: Verdict) -> Evaluation:
        return Evaluation(
            task="affine",
            task_digest="t",
            arch=job.arch,
            candidate="c",
            device=job.device,
            verdict=verdict,
            summary=f"{verdict} again",
        )


def run_of_two(root: Path) -> Run:
    """Two episodes: the second turn of the first wins with 1.5, the only right turn of the other has 1.2."""
    return timed_run(
        root,
        [
            (f"{RIGHT} speed: 1.3", f"{RIGHT} speed: 1.5 // winner"),
            (f"{RIGHT} speed: 1.2", "verdict: wrong_output"),
        ],
    )


def again(
    run: Run, judged: Again, *, chosen: Any = None, **options: Any
) -> tuple[Told, tuple[Confirmation, ...]]:
    told = Told()
    picked = winners(run) if chosen is None else chosen
    return told, confirm(run, picked, told, judge=Inline, climb=judged.climb, **options)


def test_the_best_timed_kernel_of_each_episode_wins(tmp_path: Path) -> None:
    run = run_of_two(tmp_path)
    found = winners(run)
    assert [(each.turn.number, each.timing.speedup) for each in found] == [(2, 1.5), (1, 1.2)]
    assert winners(run, top=1) == found[:1]
    assert winners(run, ["affine"]) == found
    with pytest.raises(InputError, match="no task 'gelu'; it has: affine"):
        winners(run, ["gelu"])


def test_a_kernel_that_two_episodes_share_is_timed_once(tmp_path: Path) -> None:
    run = timed_run(tmp_path, [(f"{RIGHT} speed: 1.3",), (f"{RIGHT} speed: 1.3",)])
    assert len(winners(run)) == 1


def test_a_record_holds_both_readings_and_where_the_new_one_comes_from(tmp_path: Path) -> None:
    run = run_of_two(tmp_path)
    climb = Again(slowdown=1.02)
    told, added = again(run, climb)
    assert tuple(told.records) == added == confirmations(run)
    first = added[0]
    assert first.timing is not None
    assert (first.in_loop.speedup, round(first.timing.speedup, 3)) == (1.5, 1.471)
    assert first.timing.confirmed
    assert not first.in_loop.confirmed
    assert first.said == "slower", "the loop's reading was lucky"
    assert run.blobs.get(first.blobs["samples.json"]).startswith(b"samples of")
    kept = Evaluation.model_validate_json(run.blobs.get(first.evaluation))
    assert kept.timing == first.timing
    assert first.environment["gpu 0"].startswith("NVIDIA H200, GPU-0, capability 9.0")
    assert "gpu 1" not in first.environment, "an A100 does not run sm_90a"
    assert first.time > 0
    assert {(job.mode, job.device, job.gpus, job.ahead) for job in climb.jobs} == {
        ("full", "cuda", (0,), True)
    }
    seeds = {job.seed for job in climb.jobs}
    assert len(seeds) == 2
    assert {each.seed for each in added} == seeds
    assert verify_run(run.path) == ()


def test_what_is_confirmed_is_left_out_unless_asked_for_again_and_never_overwritten(tmp_path: Path) -> None:
    run = run_of_two(tmp_path)
    assert unconfirmed(run)
    _, first = again(run, Again(), chosen=winners(run, top=1))
    assert unconfirmed(run)
    _, rest = again(run, Again())
    assert [each.in_loop.speedup for each in first + rest] == [1.5, 1.2]
    assert not unconfirmed(run)
    assert again(run, Again())[1] == ()
    _, more = again(run, Again(slowdown=1.1), again=True)
    assert confirmations(run) == first + rest + more
    assert latest(run)[(first[0].task_digest, first[0].candidate)] == more[0]


def test_a_kernel_that_is_wrong_this_time_is_on_record_without_a_timing(tmp_path: Path) -> None:
    run = run_of_two(tmp_path)
    _, added = again(run, Again(says={"winner": Verdict.WRONG_OUTPUT}))
    assert [(each.verdict, each.timing is None, each.said) for each in added] == [
        (Verdict.WRONG_OUTPUT, True, "untold"),
        (Verdict.CORRECT, False, "agrees"),
    ]


@pytest.mark.parametrize(
    "outcome", [CannotJudge("the card is gone"), Verdict.CORRECT], ids=["lost", "untimed"]
)
def test_what_cannot_be_judged_or_timed_leaves_no_record_and_holds_nobody_up(
    tmp_path: Path, outcome: Any
) -> None:
    run = run_of_two(tmp_path)
    told, added = again(run, Again(says={"winner": outcome}))
    assert told.errors == ["the card is gone" if isinstance(outcome, CannotJudge) else "correct again"]
    assert [each.in_loop.speedup for each in added] == [1.2]


def test_bad_input_ends_it_without_a_group_of_exceptions(tmp_path: Path) -> None:
    run = run_of_two(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        again(run, Again(says={"winner": InputError("no such folder")}))


def test_an_interruption_keeps_what_was_done(tmp_path: Path) -> None:
    run = run_of_two(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        again(run, Again(says={"1.2": KeyboardInterrupt()}))
    assert [each.in_loop.speedup for each in confirmations(run)] == [1.5]
    assert [each.in_loop.speedup for each in again(run, Again())[1]] == [1.2]


def test_a_task_that_changed_is_not_comparable(tmp_path: Path) -> None:
    run = run_of_two(tmp_path)
    other = winners(run)[0].episode.model_copy(update={"task_digest": "other"})
    with pytest.raises(InputError, match="no longer what this run was begun with"):
        again(run, Again(), chosen=[replace(winners(run)[0], episode=other)])


def test_each_candidate_gets_a_process_of_its_own_with_room_for_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent import confirmation
    from agent.judges import LEAST_BYTES

    made: list[tuple[int, int]] = []

    def pool(size: int, *, memory_bytes: int, seconds: float) -> Inline:
        made.append((size, memory_bytes))
        return Inline()

    monkeypatch.setattr(confirmation, "Pool", pool)
    run = run_of_two(tmp_path)
    confirm(run, winners(run), Told(), climb=Again().climb)
    assert made == [(1, LEAST_BYTES)] * 2


# --- the command --------------------------------------------------------------------------------------------------------


def test_the_command_shows_both_readings_and_marks_luck(
    ptxmend: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of_two(tmp_path)
    before = ptxmend("show", run.path)
    assert "1.500 x in-loop" in squeezed(before.out)
    assert f"ptxmend confirm {run.path}" in squeezed(before.out)

    def fake(run: Run, chosen: Any, watch: Any, **options: Any) -> Any:
        return confirm(run, chosen, watch, judge=Inline, climb=Again(slowdown=1.02).climb, **options)

    monkeypatch.setattr("agent.confirmation.confirm", fake)
    told = ptxmend("confirm", run.path)
    assert (told.code, told.err) == (0, "")
    assert re.search(r"1\.500 ±0\.3% +1\.471 ±0\.3% +faster than torch +-2\.0% winner's curse", told.out)
    after = ptxmend("show", run.path)
    assert "1.471 x confirmed" in squeezed(after.out)
    episode = squeezed(ptxmend("show", run.path, winners(run)[0].episode.id).out)
    assert "speed (in-loop, quick reading)" in episode
    assert "best: turn 2, confirmed: 1.471 x torch (1.466 to 1.476), faster" in episode
    assert "ptxmend confirm" not in after.out


def test_an_interrupted_command_says_how_to_go_on(
    ptxmend: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of_two(tmp_path)

    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("agent.confirmation.confirm", stopped)
    told = ptxmend("confirm", run.path)
    assert told.code == 130
    assert f"go on with: ptxmend confirm {run.path}" in squeezed(told.out)


def test_what_could_not_be_judged_ends_with_2(
    ptxmend: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of_two(tmp_path)

    def fake(run: Run, chosen: Any, watch: Any, **options: Any) -> Any:
        climb = Again(says={"winner": CannotJudge("the card is gone")}).climb
        return confirm(run, chosen, watch, judge=Inline, climb=climb, **options)

    monkeypatch.setattr("agent.confirmation.confirm", fake)
    told = ptxmend("confirm", run.path)
    assert told.code == 2
    assert "not judged: the card is gone" in squeezed(told.out)
    assert "1 could not be judged" in squeezed(told.out)


def test_a_run_that_cannot_be_confirmed_says_why(
    ptxmend: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = ptxmend("confirm", tmp_path / "nowhere")
    assert missing.code == 2
    assert "is not a run: cannot read" in squeezed(missing.err)
    untimed = timed_run(tmp_path, [(RIGHT,)], device="emulator")
    told = ptxmend("confirm", untimed.path)
    assert told.code == 2
    assert (
        "has no timings to confirm: 1 of its episodes ended with a correct kernel, judged on device emulator"
        in squeezed(told.err)
    )
    with_gpus(monkeypatch)
    run = run_of_two(tmp_path / "timed")
    told = ptxmend("confirm", run.path)
    assert told.code == 2
    assert "--device cuda needs a GPU that runs sm_90a; found no GPU" in squeezed(told.err)
    told = ptxmend("confirm", run.path, "--gpus", "one")
    assert told.code == 2
    assert "expected numbers separated by commas" in squeezed(told.err)
