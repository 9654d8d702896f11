"""What is told of a timing: figures with their interval, how far the roof is, and what the card was like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent.commands.console import console, verdict_text
from tools.evaluation import Clocks, Reading, Timing, Verdict
from tools.timing.roof import reached
from traces.confirmations import Confirmation

STYLES: Mapping[str, str] = {
    "faster": "green",
    "slower": "red",
    "same": "cyan",
    "unstable": "yellow",
    "suspect": "magenta",
}
WORDS: Mapping[str, str] = {
    "faster": "faster than {}",
    "slower": "slower than {}",
    "same": "the same as {}",
    "unstable": "unstable",
    "suspect": "suspect",
}
MEANINGS: Mapping[str, str] = {
    "same": "the interval is within the noise",
    "unstable": "too many blocks were lost to throttling or a moving clock: measure again",
    "suspect": "faster than the hardware can be: look at what it skips",
}
BOUNDS: Mapping[str, str] = {"memory": "memory", "arithmetic": "FLOPs"}
FLOOR = 0.004
"""|log ratio| of a side against itself above which a reading deserves a word."""


def tell_timing(timing: Timing, *, in_loop: bool = False) -> None:
    """A panel: every reading, then the card. in_loop: a run took it to steer itself."""
    head = Text.assemble(
        (f"{timing.speedup:.3f} x", f"bold {STYLES[timing.verdict]}"),
        f" {timing.baseline} ",
        (f"({timing.low:.3f} to {timing.high:.3f}, 95 %)", "dim"),
        "  ",
        (timing.verdict, STYLES[timing.verdict]),
        ("  (times are medians)" if timing.readings else "", "dim"),
    )
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("workload", overflow="fold", min_width=8)
    table.add_column("against", overflow="fold", min_width=7)
    for column in ("speedup", "interval", "candidate", "baseline", "roof", "floor"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in timing.readings:
        table.add_row(
            each.workload,
            each.baseline,
            Text(f"{each.speedup:.3f}", STYLES[each.verdict]),
            f"{each.low:.3f} to {each.high:.3f}",
            milliseconds(each.candidate_ms.p50),
            milliseconds(each.baseline_ms.p50),
            share_of_roof(each),
            f"{each.floor:.2%}",
        )
    lines: list[Text | Table] = [head]
    if timing.verdict in MEANINGS:
        lines.append(Text(f"{timing.verdict}: {MEANINGS[timing.verdict]}", STYLES[timing.verdict]))
    if timing.readings:
        lines.append(table)
    lines += [Text(f"! {warning}", "yellow") for warning in warnings(timing)]
    lines.append(Text(card(timing), "dim"))
    body = Table.grid(padding=0)
    for line in lines:
        body.add_row(line)
    kind = "confirmed" if timing.confirmed else f"{'in-loop, ' if in_loop else ''}{timing.mode} reading"
    console.print(Panel(body, title=f"speed ({kind})", title_align="left", box=box.ROUNDED, expand=False))


def share_of_roof(reading: Reading) -> str:
    """Part of the chip's peak that the candidate reaches, and in what; `-` where none is known."""
    found = reached(reading)
    return "-" if found is None else f"{found[1]:.0%} {BOUNDS[found[2]]}"


def milliseconds(value: float) -> str:
    """A duration with four digits, in ms or µs."""
    return f"{value:.4g} ms" if value >= 0.1 else f"{value * 1e3:.4g} µs"


def card(timing: Timing) -> str:
    """The GPU and what it was like."""
    clocks = timing.clocks
    parts = [timing.device, f"CUDA {timing.driver}" if timing.driver else ""]
    for name, seen, unit in (
        ("SM", clocks.sm_mhz, "MHz"),
        ("memory", clocks.memory_mhz, "MHz"),
        ("", clocks.temperature_c, "°C"),
        ("", clocks.power_w, "W"),
    ):
        if seen is not None:
            low, high = (f"{value:.0f}" for value in seen)
            parts.append(f"{name} {low if low == high else f'{low} to {high}'} {unit}".strip())
    if clocks.sm_mhz is not None and not clocks.throttle:
        parts.append("no throttling seen")
    parts.append(f"{sum(each.pairs for each in timing.readings)} blocks in {timing.seconds:.1f} s")
    if timing.readings and all(each.checked for each in timing.readings):
        parts.append("outputs of timed runs checked")
    return ", ".join(part for part in parts if part)


def warnings(timing: Timing) -> list[str]:
    """What makes a reading weaker than it looks."""
    found = _of_card(timing.clocks)
    for each in timing.readings:
        where = f"{each.workload} against {each.baseline}: " if len(timing.readings) > 1 else ""
        if each.dropped:
            found.append(
                f"{where}{each.dropped} of {each.pairs + each.dropped} blocks were dropped for throttling or a clock that moved"
            )
        if each.floor > FLOOR:
            found.append(
                f"{where}a side against itself differs by {each.floor:.2%}: smaller differences mean nothing"
            )
        if not each.checked:
            found.append(f"{where}no output of a timed run was compared with the reference")
    return found


def _of_card(clocks: Clocks) -> list[str]:
    found: list[str] = []
    if clocks.sm_mhz is None and not clocks.throttle:
        found.append("the card's clocks could not be read: throttling would not be seen")
    if clocks.throttle:
        found.append(f"the card was held back: {', '.join(clocks.throttle)}")
    if clocks.mig:
        found.append("the GPU is partitioned (MIG): other tenants share its memory")
    return found


def speed_text(timing: Timing | None, confirmation: Confirmation | None) -> Text:
    """A winner's speed in one cell: the confirmed figure where there is one, else the loop's own, called so."""
    if confirmation is not None and confirmation.timing is not None:
        shown = confirmation.timing
        return Text.assemble((f"{shown.speedup:.3f} x", STYLES[shown.verdict]), (" confirmed", "dim"))
    if confirmation is not None and confirmation.verdict is not Verdict.CORRECT:
        return Text.assemble(verdict_text(confirmation.verdict), (" when judged again", "dim"))
    if timing is None:
        return Text("-", "dim")
    return Text(f"{timing.speedup:.3f} x in-loop", "dim")


def confirmed_text(confirmation: Confirmation | None) -> str:
    """What became of a winner when it was timed again; '' when it was not."""
    if confirmation is None:
        return ""
    new = confirmation.timing
    if new is None:
        return f", {confirmation.verdict.value} when judged again"
    return f", confirmed: {new.speedup:.3f} x {new.baseline} ({new.low:.3f} to {new.high:.3f}), {new.verdict}"


def tell_confirmations(records: Sequence[Confirmation]) -> None:
    """A table: what the loop read, what was confirmed, and where the loop was lucky."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("task", overflow="fold")
    for column in ("sample", "turn", "in-loop", "confirmed"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    table.add_column("difference", overflow="fold")
    for each in sorted(records, key=lambda each: (each.task, -(each.timing.speedup if each.timing else 0.0))):
        new = each.timing
        table.add_row(
            each.task.rsplit("/", 1)[-1],
            each.episode.split(".")[-2],
            str(each.turn),
            _figure(each.in_loop),
            "-" if new is None else _figure(new),
            verdict_text(each.verdict)
            if new is None
            else Text(WORDS[new.verdict].format(new.baseline), STYLES[new.verdict]),
            _difference(each),
        )
    console.print(table)


def _figure(timing: Timing) -> str:
    return f"{timing.speedup:.3f} ±{(timing.high - timing.low) / 2 / timing.speedup:.1%}"


def _difference(record: Confirmation) -> Text:
    if record.verdict is not Verdict.CORRECT:
        return Text("was correct in-loop", "red")
    if record.timing is None or record.said == "untold":
        return Text("not comparable", "dim")
    change = f"{record.timing.speedup / record.in_loop.speedup - 1:+.1%}"
    if record.said == "slower":
        return Text(f"{change} winner's curse", "yellow")
    return Text(f"{change} better" if record.said == "faster" else f"{change} agrees")
