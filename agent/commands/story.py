"""What is told of an evaluation, of a run and of an episode: for a person, in the terminal."""

from __future__ import annotations

from rich import box
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from agent.commands.console import console, plain, seconds_text, targets_text, verdict_row, verdict_text
from agent.commands.speed import confirmed_text, speed_text, tell_timing
from agent.winners import unconfirmed
from tools.evaluation import Evaluation
from tools.explain import where
from traces.confirmations import latest
from traces.records import Episode, Turn
from traces.store import Run

MAX_LISTED = 12
MAX_SOURCE = 160


def tell_evaluation(evaluation: Evaluation, text: str | None = None, *, in_loop: bool = False) -> None:
    """A judged candidate, cause first. in_loop: it was judged in a run."""
    head = Text.assemble(verdict_text(evaluation.verdict), "  ", plain(evaluation.summary))
    console.print(head)
    for each in evaluation.diagnostics[:MAX_LISTED]:
        place = f"line {each.line}: " if each.line else ""
        style = "red" if each.severity == "error" else "yellow"
        console.print(
            Text.assemble("  ", (each.severity, style), f" [{each.kind}] {place}{plain(each.message)}")
        )
        if each.source:
            console.print(Text(f"      {_clip(each.source)}", "dim"))
        if each.hint:
            console.print(Text(f"      {plain(each.hint)}", "italic"))
    _more(len(evaluation.diagnostics), "messages")
    if evaluation.fault is not None:
        fault = evaluation.fault
        said = "" if fault.message in evaluation.summary else f" {plain(fault.message)}"
        console.print(Text.assemble("  ", (fault.kind.value, "red"), said))
        if fault.source:
            place = f"line {fault.line}: " if fault.line else ""
            console.print(Text(f"      {place}{_clip(fault.source)}", "dim"))
        for phrase in fault.waiting[:MAX_LISTED]:
            console.print(Text(f"      {plain(phrase)}"))
    for mismatch in evaluation.numerics.mismatches if evaluation.numerics else ():
        if where(mismatch) not in evaluation.summary:
            console.print(Text(f"  workload {mismatch.workload}: {where(mismatch)}"))
    if evaluation.targets:
        _targets(evaluation)
    if evaluation.timing is not None:
        tell_timing(evaluation.timing, in_loop=in_loop)
    told = {(each.kind, each.line) for each in evaluation.diagnostics[:MAX_LISTED]}
    warnings = [
        each
        for each in evaluation.warnings
        if (each.kind, each.line) not in told and each.message not in evaluation.summary
    ]
    for warning in warnings[:MAX_LISTED]:
        place = f"line {warning.line}: " if warning.line else ""
        console.print(
            Text.assemble("  ", ("warning", "yellow"), f" [{warning.kind}] {place}{plain(warning.message)}")
        )
    _more(len(warnings), "warnings")
    parts = [evaluation.device, evaluation.arch]
    if evaluation.assembly:
        parts.append(f"ptxas {evaluation.assembly.ptxas}")
    spent = [f"{stage} {seconds:.2f} s" for stage, seconds in evaluation.seconds if seconds >= 0.005]
    console.print(Text(f"  {', '.join(parts)}; {', '.join(spent)}", "dim"))


def _clip(text: str) -> str:
    return plain(text if len(text) <= MAX_SOURCE else text[: MAX_SOURCE - 1] + "…")


def _more(count: int, what: str) -> None:
    if count > MAX_LISTED:
        console.print(Text(f"  … and {count - MAX_LISTED} more {what}", "dim"))


def _targets(evaluation: Evaluation) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    for column in ("  family", "required", "depth", "executed", "share of work", "note"):
        table.add_column(column)
    for target in evaluation.targets:
        table.add_row(
            f"  {target.family}",
            "yes" if target.required else "",
            target.depth.value,
            "" if target.executed is None else f"{target.executed:,}",
            "" if target.share is None else f"{target.share:.0%}",
            Text(target.note, "green" if target.met else ""),
        )
    console.print(table)


def tell_run(run: Run) -> None:
    """The table that ends a run: task, turns, verdict per turn, targets."""
    episodes = sorted(run.episodes(), key=lambda each: (each.task, each.sample))
    best = {each.id: evaluation_of(run, each.best) for each in episodes if each.best}
    timed = any(each is not None and each.timing is not None for each in best.values())
    confirmed = latest(run) if timed else {}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    speed = ("speed (best turn)",) if timed else ()
    for column in ("task", "turns", "verdict per turn", "targets (best turn)", *speed, "ended"):
        table.add_column(column, overflow="fold")
    for episode in episodes:
        found = best.get(episode.id)
        known = confirmed.get((episode.task_digest, episode.best.candidate or "")) if episode.best else None
        table.add_row(
            _name(episode),
            str(sum(turn.ended for turn in episode.turns)),
            verdict_row([turn.verdict for turn in episode.turns if turn.ended or turn.verdict]),
            targets_text(found.targets) if found else Text("-", "dim"),
            *((speed_text(found.timing if found else None, known),) if timed else ()),
            episode.reason or "open",
        )
    console.print(table)
    done = [episode for episode in episodes if episode.best is not None and episode.best.verdict is not None]
    correct = sum(
        episode.best is not None
        and episode.best.verdict is not None
        and episode.best.verdict.value == "correct"
        for episode in done
    )
    met = sum(episode.best is not None and episode.best.targets_met for episode in done)
    first = sum(
        bool(episode.turns)
        and episode.turns[0].verdict is not None
        and episode.turns[0].verdict.value == "correct"
        for episode in done
    )
    tokens, usd = sum(episode.tokens for episode in episodes), sum(episode.usd for episode in episodes)
    console.print(
        f"{len(episodes)} episodes, {sum(len(e.turns) for e in episodes)} turns: {correct} correct at last, {first} at the first turn, "
        f"{met} with their targets met; {tokens:,} tokens" + (f", ${usd:.2f}" if usd else "")
    )
    config = run.about.config
    console.print(
        f"model {config.get('model')}, arm {config.get('arm')}, ptxas {run.about.ptxas.get('version', '?')}, device {config.get('device')}",
        style="dim",
    )
    console.print(f"kept in {run.path}; read it with: ptxmend show {run.path} [EPISODE]", markup=False)
    if timed and unconfirmed(run):
        console.print(
            f"in-loop speeds steer and are not published; measure the winners again with: ptxmend confirm {run.path}",
            markup=False,
        )


def _name(episode: Episode) -> str:
    return episode.task.rstrip("/").rsplit("/", 1)[-1] + (f" #{episode.sample}" if episode.sample else "")


def evaluation_of(run: Run, turn: Turn) -> Evaluation | None:
    """A turn's evaluation; None when it was not judged."""
    if turn.evaluation is None:
        return None
    return Evaluation.model_validate_json(run.blobs.get(turn.evaluation), extra="ignore")


def tell_episode(run: Run, episode: Episode, *, code: bool, prompts: bool) -> None:
    """The story of one episode, turn by turn."""
    console.rule(f"{_name(episode)}  ({episode.id})")
    console.print(
        f"{episode.model}, arm {episode.arm}, {episode.arch}; ended: {episode.reason or 'open'} {episode.detail}",
        markup=False,
    )
    for turn in episode.turns:
        console.print()
        console.print(Text.assemble((f"Turn {turn.number}  ", "bold"), _state(turn), _cost(turn)))
        if prompts and turn.messages:
            console.print(
                Panel(
                    Text(plain(run.blobs.json(turn.messages[-1])["content"])),
                    title="last message of the request",
                    box=box.SQUARE,
                )
            )
        if turn.missing:
            console.print(f"  missing: {plain(turn.missing_reason)}", markup=False)
        if turn.candidate is None and turn.reason:
            console.print(f"  {plain(turn.reason)}", markup=False)
        evaluation = evaluation_of(run, turn)
        text = run.blobs.text(turn.candidate) if turn.candidate else None
        if code and text:
            console.print(
                Syntax(plain(text), "text", line_numbers=True, word_wrap=False, background_color="default")
            )
        if evaluation is not None:
            tell_evaluation(evaluation, text, in_loop=True)
    if episode.best is not None:
        known = latest(run).get((episode.task_digest, episode.best.candidate or ""))
        console.print(f"\nbest: turn {episode.best_turn}{confirmed_text(known)}")


def _state(turn: Turn) -> Text:
    return verdict_text(turn.verdict) if turn.verdict or turn.ended else Text("in hand", "dim")


def _cost(turn: Turn) -> Text:
    tokens = f"  {turn.tokens.total:,} tokens" if turn.tokens.total else ""
    usd = f"  ${turn.usd:.4f}" if turn.usd else ""
    return Text(
        f"{tokens}{usd}  model {seconds_text(turn.model_seconds)}, tools {seconds_text(turn.tool_seconds)}",
        "dim",
    )
