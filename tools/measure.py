"""measure: how fast is it against the task's baselines?

A timing comes from a real GPU or not at all: it is never estimated. A device that can time stands in `TIMERS`
under the part of its name before the colon, as a function of (job, evaluation) that gives a `Timing`.
"""

from __future__ import annotations

from collections.abc import Callable

from tools.evaluation import Evaluation, Timing

Timer = Callable[[Evaluation], Timing | None]

TIMERS: dict[str, Timer] = {}
"""Device kind → how it times; the emulator has no place here, since its seconds say nothing about a GPU."""


def measure(evaluation: Evaluation) -> Evaluation:
    """The evaluation with its timing, or with a summary that says why there is none."""
    timer = TIMERS.get(evaluation.device.split(":")[0])
    if timer is None:
        note = f"{evaluation.summary}; not timed: {evaluation.device} is not a GPU"
        return evaluation.model_copy(update={"timing": None, "summary": note})
    return evaluation.model_copy(update={"timing": timer(evaluation)})
