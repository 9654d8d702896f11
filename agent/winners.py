"""The winners of a run: each episode's best kernel, where it is correct and was timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.errors import InputError
from tools.evaluation import Evaluation, Timing, Verdict
from traces.confirmations import latest
from traces.records import Episode, Turn
from traces.store import Run


@dataclass(frozen=True, slots=True)
class Winner:
    """The best candidate of an episode, with the timing that its run took."""

    episode: Episode
    turn: Turn
    candidate: str
    """Reference to its text."""
    timing: Timing


def winners(run: Run, tasks: Sequence[str] = (), top: int | None = None) -> tuple[Winner, ...]:
    """The best correct and timed candidate of each episode, each text once; the fastest of a task first.

    tasks: only these. top: at most so many of a task. Raises InputError when there is none.
    """
    episodes = list(run.episodes())
    known = sorted({episode.task for episode in episodes})
    for name in tasks:
        if name not in known:
            raise InputError(f"{run.path} has no task {name!r}; it has: {', '.join(known) or 'none'}")
    found: dict[tuple[str, str], Winner] = {}
    correct = 0
    for episode in episodes:
        if tasks and episode.task not in tasks:
            continue
        best = episode.best
        if best is None or best.evaluation is None or best.candidate is None:
            continue
        evaluation = Evaluation.model_validate_json(run.blobs.get(best.evaluation), extra="ignore")
        correct += evaluation.verdict is Verdict.CORRECT
        if evaluation.verdict is Verdict.CORRECT and evaluation.timing is not None:
            winner = Winner(episode, best, best.candidate, evaluation.timing)
            found.setdefault((episode.task_digest, best.candidate), winner)
    if not found:
        device = run.about.config.get("device", "?")
        raise InputError(
            f"{run.path} has no timings to confirm: {correct} of its episodes ended with a correct kernel, judged on device {device}; "
            f"a run with --device cuda takes timings"
        )
    ordered = sorted(found.values(), key=lambda each: (each.episode.task, -each.timing.low))
    taken: dict[str, int] = {}
    kept: list[Winner] = []
    for winner in ordered:
        taken[winner.episode.task] = taken.get(winner.episode.task, 0) + 1
        if top is None or taken[winner.episode.task] <= top:
            kept.append(winner)
    return tuple(kept)


def unconfirmed(run: Run) -> bool:
    """Whether a winner was timed and not taken again."""
    try:
        found = winners(run)
    except InputError:
        return False
    known = latest(run)
    return any((each.episode.task_digest, each.candidate) not in known for each in found)
