"""Which device a name stands for, what is said where it is not there, and what is written down of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.commands.console import console
from agent.config import RunConfig
from agent.runner import resume
from tasks.errors import InputError
from tests.agent.test_cli import SOLUTION, Command, ptxmend, squeezed
from tests.agent.timed import A100, H200, RIGHT, timed_run, with_gpus
from tools.devices import device, resolved, usable
from traces.store import open_run

__all__ = ["ptxmend"]


@pytest.mark.parametrize(
    ("arch", "found", "stands_for", "numbers"),
    [
        ("sm_90a", (), "emulator", ()),
        ("sm_90a", (A100,), "emulator", ()),
        ("sm_90a", (H200, A100), "cuda", (0,)),
        ("sm_80", (H200, A100), "cuda", (1,)),
        ("sm_100a", (H200, A100), "emulator", ()),
    ],
)
def test_auto_is_a_gpu_that_runs_the_architecture(
    monkeypatch: pytest.MonkeyPatch, arch: str, found: Any, stands_for: str, numbers: Any
) -> None:
    with_gpus(monkeypatch, *found)
    assert resolved("auto", arch) == stands_for
    if numbers:
        assert usable(arch) == numbers


@pytest.mark.parametrize(
    ("name", "numbers", "found", "words"),
    [
        ("cuda", (), (), "--device cuda needs a GPU that runs sm_90a; found no GPU"),
        ("cuda", (), (A100,), "found 1: NVIDIA A100, capability 8.0 (does not run sm_90a)"),
        (
            "cuda",
            (7,),
            (H200,),
            "--gpus 7 needs a GPU that runs sm_90a; found 0: NVIDIA H200, capability 9.0;",
        ),
        ("auto", (0, 1), (H200, A100), "--gpus 0,1 needs a GPU that runs sm_90a; found 0: NVIDIA H200"),
        ("auto", (0,), (), "--gpus 0 needs --device cuda, but kernels run on the emulator; found no GPU"),
        ("emulator", (0,), (H200,), "--gpus 0 needs --device cuda, but kernels run on the emulator"),
        ("tpu", (), (H200,), "device 'tpu' is not known; use auto or one of: emulator, cuda"),
    ],
)
def test_a_device_that_is_not_there_is_said_with_what_is(
    monkeypatch: pytest.MonkeyPatch, name: str, numbers: Any, found: Any, words: str
) -> None:
    with_gpus(monkeypatch, *found)
    with pytest.raises(InputError) as error:
        resolved(name, "sm_90a", numbers)
    assert words in str(error.value)


def test_a_device_is_kept_for_its_set_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, H200)
    assert device("cuda", "sm_90a") is device("cuda", "sm_90a", (0,))
    with pytest.raises(InputError, match="'auto' is not known"):
        device("auto", "sm_90a")


def test_the_command_line_says_it_before_anything_is_asked_or_written(
    ptxmend: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(monkeypatch)
    for words, said in (
        (("--device", "cuda"), "--device cuda needs a GPU that runs sm_90a; found no GPU"),
        (("--gpus", "7"), "--gpus 7 needs --device cuda"),
        (("--gpus", "a"), "expected numbers separated by commas, such as 0,1; found 'a'"),
    ):
        told = ptxmend("run", "-m", "recorded:demo", "-t", "affine", "--runs", tmp_path / "runs", *words)
        assert told.code == 2
        assert said in squeezed(told.err)
        told = ptxmend("eval", "-", "-t", "vector_add", *words, stdin=SOLUTION)
        assert told.code == 2
        assert said in squeezed(told.err)
    assert not (tmp_path / "runs").exists()


def test_a_run_stores_what_auto_stood_for_and_screen_is_part_of_it(
    ptxmend: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent import runner

    seen: list[RunConfig] = []

    def caught(config: RunConfig, *_: Any, **__: Any) -> Any:
        seen.append(config)
        raise InputError("far enough")

    monkeypatch.setattr(runner, "run", caught)
    with_gpus(monkeypatch, H200)
    words = ("run", "-m", "recorded:demo", "-t", "affine", "--runs", tmp_path)
    ptxmend(*words)
    ptxmend(*words, "--gpus", "0", "--screen", "--speedup", "1.2")
    ptxmend(*words, "--device", "emulator")
    assert [(each.device, each.gpus, each.screen) for each in seen] == [
        ("cuda", (), False),
        ("cuda", (0,), True),
        ("emulator", (), False),
    ]
    assert [each.speedup for each in seen] == [None, 1.2, None]
    refused = ptxmend(*words, "--speedup", "0")
    assert refused.code == 2
    assert "speedup: Input should be greater than 0; found 0.0" in squeezed(refused.err)
    assert len({each.digest for each in seen}) == 3


def test_a_run_is_not_taken_up_where_its_device_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(monkeypatch, H200, A100)
    run = timed_run(tmp_path, [(f"{RIGHT} speed: 1.3",)])
    about = open_run(run.path).about
    assert about.config["device"] == "cuda"
    assert about.environment["gpu 0"].startswith("NVIDIA H200, GPU-0, capability 9.0")
    assert "gpu 1" not in about.environment
    with_gpus(monkeypatch)
    from agent.context import Tools
    from agent.models.base import ModelError, Request
    from agent.models.instant import InstantModel
    from agent.runner import Parts
    from tests.agent.doubles import TOOLS

    bring: Tools = TOOLS

    def nobody(request: Request) -> ModelError:
        raise AssertionError("nothing is asked")

    with pytest.raises(InputError, match="found no GPU"):
        resume(run.path, parts=Parts(tools=bring, model=InstantModel(nobody)))


def test_the_doctor_tells_of_gpus_and_of_how_their_workers_fared(
    ptxmend: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent.commands import doctor
    from sandbox.cuda.ledger import Ledger
    from sandbox.cuda.locks import state_folder

    with_gpus(monkeypatch, H200, A100)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = state_folder()
    well, ill = Ledger(folder, "GPU-0", "NVIDIA H200"), Ledger(folder, "GPU-1", "NVIDIA A100")
    for event in ("started", "killed", "started", "canary"):
        well.note(event)
    ill.note("quarantined", why="two canaries in a row failed")
    monkeypatch.setattr(console, "_width", 250)
    monkeypatch.setattr(doctor, "CHECKS", (doctor._gpus, doctor._clocks))
    told = ptxmend("doctor")
    assert told.code == 1, "a quarantined GPU is broken"
    text = squeezed(told.out)
    assert "NVIDIA H200, capability 9.0, 141 GiB" in text
    assert "suites: hopper, starter; so far 1 canary" in text
    assert "1 canary, 1 killed, 2 started" in text
    assert "quarantined (two canaries in a row failed)" in text
