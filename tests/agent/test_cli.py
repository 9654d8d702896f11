"""The command line as a person or a script meets it: exit codes, standard streams, and no input that shows a traceback."""

from __future__ import annotations

import datetime
import io
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent import cli
from agent.models.cassette import Entry, Header, read_cassette
from agent.models.record import write_cassette
from agent.shadow import check_packages
from tasks.errors import InputError
from tasks.registry import list_tasks, load_task
from tests.agent.doubles import ROOT
from tools.evaluation import Evaluation, Verdict
from traces.store import open_run

SOLUTION = (load_task("vector_add").folder / "solutions" / "sm_80.ptx").read_bytes()
WRONG = SOLUTION.replace(b"add.rn.f32 %u0, %u0, %v0", b"sub.rn.f32 %u0, %u0, %v0")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture
def ptxmend(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command in this process."""

    def run(*words: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["ptxmend", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return Result(code, said.out, said.err)

    return run


def process(*words: object, folder: Path | None = None, **environment: str) -> Result:
    """Run the command in a process of its own, in `folder`."""
    done = subprocess.run(
        [sys.executable, "-c", "from agent.cli import main; main()", *map(str, words)],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd=folder,
        check=False,
    )
    found = Result(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in found.out + found.err
    return found


def squeezed(text: str) -> str:
    """Without line ends, which depend on the width of the terminal."""
    return " ".join(text.split())


# --- eval ---------------------------------------------------------------------------------------------------------------


def test_a_judged_candidate_ends_with_0_and_its_record_as_json(ptxmend: Command, tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    for text, verdict in ((SOLUTION, Verdict.CORRECT), (WRONG, Verdict.WRONG_OUTPUT)):
        file.write_bytes(text)
        told = ptxmend("eval", file, "--task", "vector_add", "--seed", 3)
        assert (told.code, told.err) == (0, "")
        assert told.out.startswith(verdict.value)
        written = ptxmend("eval", file, "--task", "vector_add", "--seed", 3, "--json")
        assert (written.code, written.err) == (0, "")
        evaluation = Evaluation.model_validate_json(written.out)
        assert (evaluation.verdict, evaluation.task) == (verdict, "vector_add")


def test_standard_input_is_read(ptxmend: Command) -> None:
    told = ptxmend("eval", "-", "-t", "vector_add", stdin=SOLUTION)
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("correct")
    nothing = ptxmend("eval", "-", "-t", "vector_add", stdin=b"")
    assert nothing.code == 0
    assert nothing.out.startswith("bad_plan")


def test_a_missing_target_is_shown(ptxmend: Command) -> None:
    told = ptxmend(
        "eval", "-", "-t", "vector_add", "--require", "mma_sync", "--seed", 3, "--json", stdin=SOLUTION
    )
    evaluation = Evaluation.model_validate_json(told.out)
    assert (evaluation.verdict, evaluation.targets_met) == (Verdict.CORRECT, False)
    table = ptxmend("eval", "-", "-t", "vector_add", "--require", "mma_sync", stdin=SOLUTION)
    assert "mma_sync" in table.out
    assert "absent" in table.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["eval", "no/such.ptx", "-t", "vector_add"], "cannot read no/such.ptx: No such file"),
        (["eval", ".", "-t", "vector_add"], "cannot read .: Is a directory"),
        (["eval", "-", "-t", "vektor_add"], "did you mean 'vector_add'?"),
        (["eval", "-", "-t", "vector_add", "--arch", "sm_9x"], "'sm_9x'"),
        (
            ["eval", "-", "-t", "vector_add", "--device", "cuda:7"],
            "'cuda:7' is not known; use auto or one of: emulator, cuda",
        ),
        (["eval", "-", "-t", "vector_add", "--gpus", "0,x"], "expected numbers separated by commas"),
        (["run", "-m", "recorded:demo", "-t", "affine", "--device", "tpu"], "'tpu' is not known"),
        (
            ["eval", "-", "-t", "vector_add", "--require", "tensor"],
            "no instruction family is called 'tensor'",
        ),
        (["eval", "-", "-t", "vector_add", "--seed", "-1"], "--seed"),
        (["eval", "-"], "--task"),
        (["eval"], "file"),
        (["evil"], "evil"),
        (["tasks", "show", "nope"], "no task or task folder is called 'nope'"),
        (["tasks", "show", "gelu", "--solution", "--arch", "sm_70"], "gelu has no solution for sm_70"),
        (["tasks", "list", "--suite", "nope"], "no suite is called 'nope'; there are: hopper, starter"),
        (["tasks", "lint", "nope"], "'nope'"),
        (["run", "-m", "recorded:no-such-cassette", "-t", "vector_add"], "no cassette 'no-such-cassette'"),
        (["run", "-m", "some-model", "-t", "vector_add"], "some-model"),
        (
            ["run", "-m", "recorded:x", "-t", "vector_add", "--require", "tensor"],
            "no instruction family is called",
        ),
        (["run", "-m", "recorded:demo"], "say what to run: --suite starter, or --task NAME"),
        (
            ["run", "-m", "recorded:demo", "-t", "vector_add", "--budget-seconds", "-1"],
            "greater than 0; found -1.0",
        ),
        (["run", "-m", "recorded:demo", "-t", "vector_add", "--arm", "other"], "--arm"),
        (["show", "no/run"], "no/run is not a run"),
        (["verify", "no/run"], "no/run is not a run"),
        (["resume", "no/run"], "no/run is not a run"),
        (
            ["record", "no/run", "-o", "x.jsonl", "--who", "a", "--model", "b", "--how", "c"],
            "no/run is not a run",
        ),
    ],
    ids=lambda value: "-".join(value[:3]) if isinstance(value, list) else "",
)
def test_wrong_input_ends_with_2_and_a_reason_on_standard_error(
    ptxmend: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    told = ptxmend(*words, stdin=SOLUTION)
    assert (told.code, told.out) == (2, "")
    assert says in squeezed(told.err)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_a_file_that_may_not_be_read(ptxmend: Command, tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.write_bytes(SOLUTION)
    file.chmod(0)
    if os.access(file, os.R_OK):
        pytest.skip("this user may read every file")
    told = ptxmend("eval", file, "-t", "vector_add")
    assert told.code == 2
    assert "Permission denied" in told.err


BOMB = b"".join(
    b"//! %c: &%c [%s]\n" % (this, this, b",".join([b"*%c" % before] * 9) if before else b"x")
    for before, this in zip(b"\0abcdefghi", b"abcdefghij", strict=True)
)


def planned(line: bytes, new: bytes) -> bytes:
    assert SOLUTION.count(line) == 1
    return SOLUTION.replace(line, new)


HOSTILE: dict[str, tuple[bytes, Verdict, str]] = {
    "crlf": (SOLUTION.replace(b"\n", b"\r\n"), Verdict.CORRECT, "correct on"),
    "latin-1 comment": (planned(b"Four", b"F\xfcr"), Verdict.CORRECT, r"'\udcfc'"),
    "latin-1 code": (SOLUTION.replace(b"TAIL:", b"T\xc4IL:"), Verdict.ASSEMBLE_ERROR, "non_ascii"),
    "nul": (SOLUTION.replace(b"DONE:", b"DONE\0:"), Verdict.ASSEMBLE_ERROR, "NUL"),
    "empty": (b"", Verdict.BAD_PLAN, "no launch plan"),
    "random": (random.Random(1).randbytes(1_000_000), Verdict.BAD_PLAN, "no launch plan"),
    "huge": (
        SOLUTION.replace(b"TAIL:", b"  add.u32 %block, %block, 1;\n" * 160_000 + b"TAIL:"),
        Verdict.ASSEMBLE_ERROR,
        "at most 1048576",
    ),
    "endless": (SOLUTION + b"// \n" * 5_000_000, Verdict.ASSEMBLE_ERROR, "at most 1048576"),
    "import": (
        planned(b"grid: cdiv(n, 1024)", b"grid: [\"__import__('os')\"]"),
        Verdict.BAD_PLAN,
        "expected integers, axis names",
    ),
    "attribute": (planned(b"cdiv(n, 1024)", b"n.__class__"), Verdict.BAD_PLAN, "line 3"),
    "yaml tag": (
        planned(b"cdiv(n, 1024)", b"!!python/object/apply:os.getcwd []"),
        Verdict.BAD_PLAN,
        "line 3",
    ),
    "bomb": (BOMB + b"//! launch: *j\n" + SOLUTION, Verdict.BAD_PLAN, "anchor or alias"),
    "deep": (b"//! launch: " + b"[" * 100_000 + b"\n" + SOLUTION, Verdict.BAD_PLAN, "launch plan"),
    "negative grid": (planned(b"cdiv(n, 1024)", b"-5"), Verdict.BAD_PLAN, "expected 1 or more"),
    "no threads": (planned(b"block: 256", b"block: 0"), Verdict.BAD_PLAN, "expected 1 or more"),
    "many threads": (planned(b"block: 256", b"block: 2560"), Verdict.LAUNCH_ERROR, "at most 1024"),
    "beyond 2**63": (planned(b"cdiv(n, 1024)", b"9" * 30), Verdict.BAD_PLAN, "beyond 2**63"),
    "long number": (planned(b"cdiv(n, 1024)", b"9" * 5_000), Verdict.BAD_PLAN, "launch plan"),
    "tower": (planned(b"cdiv(n, 1024)", b"9" + b" * 99999999999" * 9), Verdict.BAD_PLAN, "2**63"),
    "many blocks": (planned(b"cdiv(n, 1024)", b"2000000000"), Verdict.LAUNCH_ERROR, "launch fewer blocks"),
    "much scratch": (
        b"//! scratch: {p: {bytes: 1000000000000000}}\n" + SOLUTION,
        Verdict.BAD_PLAN,
        "at most 4294967296 bytes",
    ),
    "much shared": (
        planned(b"block: 256", b"block: 256\n//!     dynamic_smem: 4000000000"),
        Verdict.LAUNCH_ERROR,
        "shared",
    ),
    "escapes": (
        SOLUTION.replace(b"add.rn.f32 %u1", b"\x1b[2Jadd.rn.f32 %u1"),
        Verdict.ASSEMBLE_ERROR,
        r"\x1b[2J",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_candidates_are_judged_with_a_clear_reason(
    ptxmend: Command, tmp_path: Path, name: str
) -> None:
    text, verdict, says = HOSTILE[name]
    file = tmp_path / "k.ptx"
    file.write_bytes(text)
    told = ptxmend("eval", file, "-t", "vector_add")
    assert (told.code, told.err) == (0, "")
    assert squeezed(told.out).startswith(f"{verdict.value} ")
    assert squeezed(says) in squeezed(told.out)
    assert len(told.out) < 20_000
    assert not {each for each in told.out if ord(each) < 32 or 0x7F <= ord(each) < 0xA0} - {"\n"}


@pytest.mark.parametrize("name", ["random", "latin-1 comment", "escapes", "nul"])
def test_hostile_candidates_make_sound_json(ptxmend: Command, tmp_path: Path, name: str) -> None:
    file = tmp_path / "k.ptx"
    file.write_bytes(HOSTILE[name][0])
    told = ptxmend("eval", file, "-t", "vector_add", "--json")
    assert (told.code, told.err) == (0, "")
    assert Evaluation.model_validate_json(told.out).verdict is HOSTILE[name][1]


def test_any_locale_can_show_any_candidate(tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.write_bytes(HOSTILE["latin-1 code"][0])
    for encoding in ("ascii:strict", "utf-8:strict"):
        told = process("eval", file, "-t", "vector_add", PYTHONIOENCODING=encoding)
        assert (told.code, told.err) == (0, "")
        assert r"T\udcc4IL" in told.out


def test_an_interrupt_ends_with_130(ptxmend: Command, tmp_path: Path) -> None:
    folder = tmp_path / "interrupted"
    folder.mkdir()
    (folder / "task.yaml").write_bytes((load_task("vector_add").folder / "task.yaml").read_bytes())
    (folder / "reference.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    told = ptxmend("eval", "-", "-t", folder, stdin=SOLUTION)
    assert told.code == 130


# --- the packages themselves --------------------------------------------------------------------------------------------


def test_a_folder_in_front_of_ours_is_named(tmp_path: Path) -> None:
    front = tmp_path / "tools"
    front.mkdir()
    (front / "__init__.py").write_text("")
    lines = (
        "import sys",
        f"sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]",
        "from agent.shadow import check_packages",
        "from tasks.errors import InputError",
        "try: check_packages()",
        "except InputError as error: print(error); sys.exit(2)",
    )
    found = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 2
    assert (
        f"package 'tools' should be in {ROOT}, but {front / '__init__.py'} stands in its place"
        in found.stdout
    )
    told = process("tasks", "list", folder=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (told.code, told.out) == (2, "")
    assert f"{front / '__init__.py'} stands in its place" in told.err


def test_our_own_packages_pass() -> None:
    check_packages()
    check_packages(ROOT)


def test_packages_elsewhere_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"package 'agent' should be in {tmp_path}"):
        check_packages(tmp_path)


# --- tasks --------------------------------------------------------------------------------------------------------------


def test_all_tasks_are_listed(ptxmend: Command) -> None:
    told = ptxmend("tasks", "list", "--suite", "starter")
    assert (told.code, told.err) == (0, "")
    known = list_tasks("starter")
    first = [line.split()[0] for line in told.out.splitlines() if line.strip()]
    assert tuple(word for word in first if word in known) == known


def test_a_task_is_shown_as_it_stands(ptxmend: Command) -> None:
    told = ptxmend("tasks", "show", "row_sum")
    assert told.code == 0
    assert "x is [m, n]" in squeezed(told.out), "brackets are no markup"
    assert "m=3, n=10007" in told.out
    needed = ptxmend("tasks", "show", "gemm_f16_mma")
    assert "Required on sm_90a: " in needed.out
    assert "mma_sync" in needed.out


def test_the_prompt_and_the_solution_are_printed_byte_for_byte(ptxmend: Command) -> None:
    prompt = ptxmend("tasks", "show", "vector_add", "--prompt")
    assert prompt.out.startswith("--- system\n")
    assert "\n--- user\n# Task: Vector addition\n" in prompt.out
    solution = ptxmend("tasks", "show", "vector_add", "--solution", "--arch", "sm_90a")
    assert solution.out.encode() == SOLUTION


def test_lint_passes_ours_and_refuses_a_task_that_anything_passes(ptxmend: Command, tmp_path: Path) -> None:
    assert ptxmend("tasks", "lint", "vector_add").code == 0
    folder = tmp_path / "loose"
    folder.mkdir()
    source = (load_task("vector_add").folder / "task.yaml").read_text()
    (folder / "task.yaml").write_text(source.replace("factor: 2", "factor: 1.0e30, rms_ratio: 1.0e30"))
    (folder / "reference.py").write_bytes((load_task("vector_add").folder / "reference.py").read_bytes())
    told = ptxmend("tasks", "lint", folder)
    assert told.code == 1
    assert "refused" in told.out


def test_the_version_and_the_help_are_printed(ptxmend: Command) -> None:
    assert ptxmend("--version").out.startswith("ptxmend ")
    told = ptxmend("--help")
    assert told.code == 0
    for name in ("run", "resume", "eval", "tasks", "show", "verify", "record", "doctor"):
        assert name in told.out


# --- a run, and what is kept of it --------------------------------------------------------------------------------------


def answer(text: bytes) -> str:
    return f"Here is the kernel.\n\n```ptx\n{text.decode()}```\n"


@pytest.fixture(scope="module")
def cassette(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wrong kernel, then the right one."""
    path = tmp_path_factory.mktemp("cassettes") / "two.jsonl"
    header = Header(
        who="a test", model="two-turns", recorded=datetime.date(2025, 1, 2), how="written by hand"
    )
    texts = (answer(WRONG), answer(SOLUTION))
    write_cassette(
        path, header, [Entry(task="vector_add", turn=n, text=text) for n, text in enumerate(texts, 1)]
    )
    return path


@pytest.fixture(scope="module")
def finished(cassette: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The folder of a run that ended, and what was said while it ran."""
    runs = tmp_path_factory.mktemp("runs")
    told = process(
        *("run", "-m", f"recorded:{cassette}", "-t", "vector_add", "--runs", runs, "--name", "two"),
        *("--seed", 1, "--workers", 1),
    )
    return runs / "two", told


def test_a_run_mends_a_kernel_and_tells_it(finished: tuple[Path, Result]) -> None:
    path, told = finished
    assert (told.code, told.err) == (0, "")
    said = squeezed(told.out)
    assert "turn 1 wrong_output" in said
    assert "turn 2 correct" in said
    assert "wrong_output → correct" in said
    assert "1 episodes, 2 turns: 1 correct at last, 0 at the first turn" in said
    (episode,) = open_run(path).episodes()
    assert [turn.verdict for turn in episode.turns] == [Verdict.WRONG_OUTPUT, Verdict.CORRECT]
    assert (episode.reason, episode.best_turn) == ("target_met", 2)


def test_the_second_request_holds_the_feedback(finished: tuple[Path, Result]) -> None:
    run = open_run(finished[0])
    (episode,) = run.episodes()
    last = run.blobs.json(episode.turns[1].messages[-1])
    assert last["role"] == "user"
    assert last["content"].startswith("## Turn 1 of 4: it runs, but the output is wrong\n")


def test_a_run_and_its_episodes_are_shown(ptxmend: Command, finished: tuple[Path, Result]) -> None:
    path, _ = finished
    told = ptxmend("show", path)
    assert told.code == 0
    assert "wrong_output → correct" in squeezed(told.out)
    (episode,) = open_run(path).episodes()
    for name in (episode.id, episode.id[:14], "vector_add"):
        story = ptxmend("show", path, name, "--code", "--prompts")
        assert story.code == 0
        said = squeezed(story.out.replace("│", " "))
        assert "Turn 1 wrong_output" in said
        assert "best: turn 2" in said
        assert "sub.rn.f32 %u0, %u0, %v0" in said
        assert "it runs, but the output is wrong" in said
    plain = ptxmend("show", path, "vector_add").out
    assert "sub.rn.f32" not in plain
    missing = ptxmend("show", path, "row_sum")
    assert (missing.code, missing.out) == (2, "")
    assert "no episode or task 'row_sum'" in missing.err


def test_a_whole_run_verifies_and_a_changed_one_does_not(
    ptxmend: Command, finished: tuple[Path, Result], cassette: Path, tmp_path: Path
) -> None:
    path, _ = finished
    whole = ptxmend("verify", path)
    assert whole.code == 0
    assert squeezed(whole.out).endswith(": whole")
    copy = tmp_path / "changed"
    subprocess.run(["cp", "-r", path, copy], check=True)
    (ledger,) = copy.glob("episodes/*.jsonl")
    ledger.write_bytes(ledger.read_bytes().replace(b"wrong_output", b"correct"))
    blob = max(
        (file for file in copy.glob("blobs/**/*") if file.is_file()), key=lambda file: file.stat().st_size
    )
    blob.unlink()
    told = ptxmend("verify", copy)
    assert told.code == 1
    assert "problems" in told.out


def test_a_finished_run_is_resumed_without_asking_again(
    ptxmend: Command, finished: tuple[Path, Result]
) -> None:
    path, _ = finished
    before = {file: file.read_bytes() for file in path.rglob("*.jsonl")}
    told = ptxmend("resume", path)
    assert told.code == 0
    assert "1 ended before" in squeezed(told.out)
    assert {file: file.read_bytes() for file in path.rglob("*.jsonl")} == before


def test_a_run_becomes_the_cassette_it_was_played_from(
    ptxmend: Command, finished: tuple[Path, Result], cassette: Path, tmp_path: Path
) -> None:
    path, _ = finished
    words = ("--who", "a test", "--model", "two-turns", "--how", "played back")
    made = tmp_path / "made.jsonl"
    told = ptxmend("record", path, "-o", made, *words, "--any-arm")
    assert (told.code, told.err) == (0, "")
    assert "2 answers" in told.out
    old, new = read_cassette(cassette), read_cassette(made)
    assert [(each.key, each.text) for each in new.entries] == [(each.key, each.text) for each in old.entries]
    assert len({each.request_sha256 for each in new.entries} - {None}) == 2
    ptxmend("record", path, "-o", made, *words, "--episode", "vector_add")
    assert {each.arm for each in read_cassette(made).entries} == {"feedback"}
    refused = ptxmend("record", path, "-o", made, *words, "--episode", "nothing")
    assert refused.code == 2
    assert "no episode 'nothing'" in refused.err


def test_a_recorded_run_plays_again_and_knows_its_prompts(
    ptxmend: Command, finished: tuple[Path, Result], tmp_path: Path
) -> None:
    path, _ = finished
    made = tmp_path / "made.jsonl"
    ptxmend("record", path, "-o", made, "--who", "a", "--model", "two-turns", "--how", "b")
    told = process(
        *("run", "-m", f"recorded:{made}", "-t", "vector_add", "--runs", tmp_path, "--name", "again"),
        *("--seed", 1, "--workers", 1),
    )
    assert told.code == 0
    run = open_run(tmp_path / "again")
    (episode,) = run.episodes()
    assert [turn.verdict for turn in episode.turns] == [Verdict.WRONG_OUTPUT, Verdict.CORRECT]
    raws = [run.blobs.json(turn.response)["raw"] for turn in episode.turns if turn.response]
    assert raws[0]["request_matched"] is True
    assert all(raw["request_sha256"] for raw in raws)


def test_a_gpu_that_is_not_there_is_said_with_what_is(
    ptxmend: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.devices.suitable", lambda arch: ())
    monkeypatch.setattr("tools.devices.known_gpus", lambda: ())
    told = ptxmend("eval", "-", "-t", "vector_add", "--device", "cuda", stdin=SOLUTION)
    assert told.code == 2
    assert "needs a GPU that runs sm_90a; found no GPU" in squeezed(told.err)


def test_auto_is_the_emulator_where_no_gpu_suits(monkeypatch: pytest.MonkeyPatch) -> None:
    from tools.devices import resolved

    monkeypatch.setattr("tools.devices.suitable", lambda arch: ())
    assert resolved("auto", "sm_90a") == "emulator"
    monkeypatch.setattr("tools.devices.suitable", lambda arch: (0,))
    assert resolved("auto", "sm_90a") == "cuda"
