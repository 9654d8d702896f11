"""Writes agent/cassettes/planted.jsonl: bugs planted in our own solutions, turn by turn, and at last the solution.

Nobody answered these: they show what the tools say of typical bugs and how a run with repairs looks. `recorded:demo` holds
answers that a model really gave.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from agent.models.cassette import Entry, Header
from agent.models.record import write_cassette
from tasks.registry import list_tasks, load_task
from tests.tasks import mutants, mutants_gemm

TURNS = {
    "affine": ("no way to the tail",),
    "vector_add": ("thread is no multiple of four", "NaN swallowed"),
    "gelu": ("x squared and not cubed",),
    "row_sum": ("a barrier nobody else meets", "no barrier"),
    "transpose": ("swapped index", "no barrier"),
    "histogram": ("counts not cleared", "blocks overwrite each other"),
    "rms_norm": ("entry misspelt", "no epsilon"),
    "row_softmax": ("type of an operand", "no maximum"),
    "gemm_f16_mma": ("rows let the end through", "tail of k missed"),
    "gemm_bf16_async": ("nobody waits for the copies", "columns let the end through"),
}
"""Task → bugs by turn; the turn after the last is the solution."""
HEADER = Header(
    who="nobody: bugs planted in the tasks' own solutions, each episode ending with the solution",
    model="planted",
    recorded=datetime.date(2026, 12, 1),
    how="made by scripts/planted_cassette.py from the bugs in tests/tasks",
)


def main() -> None:
    """Write the cassette."""
    every = (*mutants.MUTANTS, *mutants.RACES, *mutants_gemm.MUTANTS, *mutants_gemm.RACES)
    found = {(mutant.task, mutant.bug): mutant.text for mutant in every}
    entries: list[Entry] = []
    for task in list_tasks("starter"):
        solution = load_task(task).solution(mutants.ARCH)
        assert solution is not None, f"{task} has a solution"
        texts = [found[task, bug] for bug in TURNS[task]] + [solution.read_text()]
        for turn, text in enumerate(texts, 1):
            entries.append(Entry(task=task, turn=turn, text=f"```ptx\n{text}```\n"))
    write_cassette(Path("agent/cassettes/planted.jsonl"), HEADER, entries)


if __name__ == "__main__":
    main()
