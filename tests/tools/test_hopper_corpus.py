"""Right answers that show wgmma and tensor copies, few of which need them: what the CPU can tell, and on a GPU their proven depths."""

from __future__ import annotations

import json

import pytest

from sandbox.cuda.device import suiting
from sandbox.ptx.candidate import read_candidate
from sandbox.ptx.parser import parse_module
from sandbox.ptx.printer import print_module
from tests.corpus.hopper.generate import DECORATIONS, FOLDER, candidates, manifest, ordinary
from tools.assemble import assemble
from tools.evaluation import Depth, Evaluation, Verdict
from tools.instrument import instrument
from tools.knockout import knocked_out
from tools.ladder import STAGES, Job, Stage, evaluate

MANIFEST = json.loads((FOLDER / "manifest.json").read_text())
FAMILIES = ("wgmma", "tma_load")


def climbed(name: str, device: str, last: Stage) -> Evaluation:
    """The evaluation after stage `last`."""
    job = Job(MANIFEST[name]["task"], "sm_90a", (FOLDER / f"{name}.ptx").read_text(), seed=977, device=device)
    found: Evaluation | None = None
    for stage, function in STAGES:
        if found is not None and found.stopped_at is not None:
            break
        found = function(job, found).evaluation
        if stage is last:
            break
    assert found is not None
    return found


def depths(found: Evaluation) -> dict[str, Depth]:
    return {each.family: each.depth for each in found.targets if each.family in FAMILIES}


def test_the_files_are_what_the_generator_writes() -> None:
    made = candidates()
    assert {path.stem: path.read_text() for path in FOLDER.glob("*.ptx")} == {
        name: each.text for name, each in made.items()
    }
    assert (FOLDER / "manifest.json").read_text() == manifest()


@pytest.mark.parametrize("name", MANIFEST)
def test_what_the_text_shows_is_in_the_machine_code(name: str) -> None:
    found = climbed(name, "emulator", Stage.INSPECT)
    assert found.stopped_at is None, found.summary
    assert not found.diagnostics
    for family, depth in depths(found).items():
        wanted = Depth(MANIFEST[name]["depths"][family])
        assert depth is (wanted if wanted is Depth.ABSENT else Depth.IN_SASS)


@pytest.mark.parametrize("name", MANIFEST)
def test_counted_and_knocked_out_copies_assemble(name: str) -> None:
    module = parse_module(read_candidate((FOLDER / f"{name}.ptx").read_text()).ptx)
    counted = instrument(module)
    assert counted is not None
    for copy in (counted.module, *(knocked_out(module, family) for family in FAMILIES)):
        assert not assemble(print_module(copy), "sm_90a").diagnostics


def test_the_product_behind_the_decorations_is_right() -> None:
    """On the emulator, without its decoration."""
    text = ordinary("no decoration")
    found = evaluate(Job("gemm_bf16_async", "sm_90a", text, seed=3)).evaluation
    assert found.verdict is Verdict.CORRECT, found.summary
    for name, says, before, after, *_ in DECORATIONS:
        decorated = candidates()[name].text
        assert before in decorated
        assert decorated.count(after) >= 1
        assert says in decorated


@pytest.mark.gpu
@pytest.mark.parametrize("name", MANIFEST)
def test_decoration_is_told_from_work(name: str) -> None:
    if not suiting("sm_90a"):
        pytest.skip("no GPU that runs sm_90a")
    found = climbed(name, "cuda", Stage.PROVE)
    assert found.verdict is Verdict.CORRECT, found.summary
    wanted = {family: Depth(depth) for family, depth in MANIFEST[name]["depths"].items()}
    assert depths(found) == wanted, found.summary
    assert found.targets_met == MANIFEST[name]["targets_met"], found.summary
