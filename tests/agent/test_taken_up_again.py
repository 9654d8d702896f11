"""What a run is taken up again with: the same tasks, the same names of its episodes, and no key on its disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agent.config import Budget, RunConfig
from agent.models.base import Unavailable
from agent.models.factory import ModelOptions
from agent.models.instant import InstantModel
from agent.models.retry import Policy
from agent.prompts import digest
from agent.runner import Parts, resume, run
from tasks.errors import InputError
from tests.agent.doubles import ROOT, TOOLS, Inline
from traces.events import Feedback
from traces.ledger import read_events
from traces.store import open_run

RIGHT = "verdict: correct targets: yes"


def parts() -> Parts:
    return Parts(tools=TOOLS, model=InstantModel([RIGHT]), judge=Inline())


def begun(root: Path, task: str) -> Path:
    """A run that stopped with episodes left."""
    config = RunConfig(
        model="instant:x", tasks=(task,), samples=4, parallel=1, run_budget=Budget(tokens=1), seed=1
    )
    summary = run(config, root, name="r", parts=parts())
    assert summary.ended < 4
    return summary.path


def test_a_changed_task_is_refused(tmp_path: Path) -> None:
    task = tmp_path / "affine"
    shutil.copytree(ROOT / "tasks" / "suite" / "affine", task)
    path = begun(tmp_path, str(task))
    description = task / "task.yaml"
    kept = description.read_text()
    description.write_text(kept + "\n# changed\n")
    with pytest.raises(InputError, match="the task has changed since"):
        resume(path, parts=parts())
    description.write_text(kept)
    before = set(open_run(path).episode_ids())
    resume(path, parts=parts())
    assert before <= set(open_run(path).episode_ids())


def test_a_version_that_digests_its_settings_otherwise_keeps_the_names(tmp_path: Path) -> None:
    path = begun(tmp_path, "affine")
    names = open_run(path).episode_ids()
    file = path / "run.json"
    about = json.loads(file.read_text())
    del about["config"]["stage_attempts"]
    about["config"] |= {"stage_attempts": 2, "run_budget": {}}
    file.write_text(json.dumps(about))
    assert resume(path, parts=parts()).ended == 4
    assert set(names) <= set(open_run(path).episode_ids())
    assert len(open_run(path).episode_ids()) == 4


def test_a_key_under_any_name_stays_off_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_OWN_THING", "a-very-private-word")
    config = RunConfig(
        model="instant:x",
        tasks=("affine",),
        options=ModelOptions(api_key_env="MY_OWN_THING"),
        turns=1,
    )
    telling = InstantModel(lambda _: Unavailable("no: a-very-private-word", retry_after=0.0))
    made = Parts(tools=TOOLS, model=telling, judge=Inline(), policy=Policy(unavailable=2))
    path = run(config, tmp_path, name="r", parts=made).path
    files = [file for file in path.rglob("*") if file.is_file()]
    assert any(b"no: [redacted]" in file.read_bytes() for file in files)
    assert not [file for file in files if b"a-very-private-word" in file.read_bytes()]


def test_an_address_with_a_password_is_refused(tmp_path: Path) -> None:
    options = ModelOptions(base_url="http://me:secret@127.0.0.1:1/v1")
    with pytest.raises(InputError, match="holds a password"):
        run(RunConfig(model="instant:x", tasks=("affine",), options=options), tmp_path, parts=parts())
    assert not list(tmp_path.iterdir())


def test_a_run_goes_on_with_the_templates_that_were_the_newest_when_it_began(tmp_path: Path) -> None:
    silent = Parts(model=InstantModel(["no kernel"]), judge=Inline())
    config = RunConfig(
        model="instant:x",
        tasks=("affine",),
        turns=2,
        samples=2,
        parallel=1,
        template="v1",
        run_budget=Budget(tokens=1),
    )
    summary = run(config, tmp_path, name="r", parts=silent)
    assert summary.ended < 2
    file = summary.path / "run.json"
    about = json.loads(file.read_text())
    about["config"] |= {"template": None, "run_budget": {}}
    file.write_text(json.dumps(about))
    assert resume(summary.path, parts=silent).ended == 2
    told = [
        event
        for path in (summary.path / "episodes").iterdir()
        for event in read_events(path)
        if isinstance(event, Feedback)
    ]
    assert {event.template for event in told} == {digest("v1")}
    about["prompts"] = "0" * 64
    file.write_text(json.dumps(about))
    with pytest.raises(InputError, match="begun with graph and prompts"):
        resume(summary.path, parts=silent)
