"""The mailbox: requests out, answers in, through nothing but files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agent.models.base import FinishReason, Message, Response, Unavailable, Usage
from agent.models.cassette import request_sha256
from agent.models.mailbox import MailboxModel
from tasks.errors import InputError
from tests.agent.models.conftest import MakeRequest

LOOK = 0.01


async def until(path: Path) -> None:
    """Wait for a file as the one who answers would."""
    async with asyncio.timeout(10):
        while not is_there(path):  # noqa: ASYNC110 (files have no event to wait for)
            await asyncio.sleep(LOOK)


def is_there(path: Path) -> bool:
    return path.exists()


def changed(path: Path) -> int:
    return path.stat().st_mtime_ns


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def put(path: Path, text: str | bytes) -> None:
    draft = path.with_name("draft")
    draft.write_bytes(text if isinstance(text, bytes) else text.encode())
    draft.rename(path)


async def asked(model: MailboxModel, request: object, folder: Path) -> tuple[asyncio.Task[Response], Path]:
    """The running question, and the folder of its episode once the request is there."""
    task = asyncio.create_task(model.respond(request))  # type: ignore[arg-type]
    await until(folder / "e1" / "turn-1.request.json")
    return task, folder / "e1"


async def test_a_text_answer(tmp_path: Path, make_request: MakeRequest) -> None:
    request = make_request(sample=3)
    task, folder = await asked(MailboxModel(tmp_path, look=LOOK), request, tmp_path)
    body = json.loads((folder / "turn-1.request.json").read_text())
    assert body["messages"] == [{"role": m.role, "content": m.content} for m in request.messages]
    assert body["request_sha256"] == request_sha256(request.messages)
    assert (body["task"], body["sample"], body["turn"]) == ("affine", 3, 1)
    readable = (folder / "turn-1.request.md").read_text()
    assert all(message.content in readable for message in request.messages)
    assert "turn-1.answer.md" in readable
    put(folder / "turn-1.answer.md", "\ufeffsure:\r\n```ptx\n…\n```")
    response = await asyncio.wait_for(task, 10)
    assert response.text == "\ufeffsure:\r\n```ptx\n…\n```"
    assert (response.finish, response.model) == (FinishReason.STOP, "mailbox")


async def test_a_json_answer(tmp_path: Path, make_request: MakeRequest) -> None:
    task, folder = await asked(MailboxModel(tmp_path, look=LOOK), make_request(), tmp_path)
    answer = {"text": "t", "finish": "length", "model": "somebody", "usage": {"input": 3, "output": 4}}
    put(folder / "turn-1.answer.json", json.dumps(answer))
    response = await asyncio.wait_for(task, 10)
    assert (response.text, response.finish, response.model) == ("t", FinishReason.LENGTH, "somebody")
    assert response.usage == Usage(input=3, output=4)


async def test_a_file_that_grows_is_not_taken_half(tmp_path: Path, make_request: MakeRequest) -> None:
    task, folder = await asked(MailboxModel(tmp_path, look=0.1), make_request(), tmp_path)
    with (folder / "turn-1.answer.md").open("w") as file:
        for part in range(30):
            file.write(f"{part} ")
            file.flush()
            await asyncio.sleep(0.01)
            assert not task.done()
    assert (await asyncio.wait_for(task, 10)).text == "".join(f"{part} " for part in range(30))


@pytest.mark.parametrize(
    ("name", "bad", "fault"),
    [
        ("turn-1.answer.json", b"{", "expected form"),
        ("turn-1.answer.json", b'{"finish": "stop"}', "text"),
        ("turn-1.answer.md", b"\xff\xfe", "not UTF-8"),
        ("turn-1.answer.md", b"x" * 4_000_001, "more than"),
    ],
)
async def test_an_unusable_answer_is_explained_and_its_correction_taken(
    tmp_path: Path, make_request: MakeRequest, name: str, bad: bytes, fault: str
) -> None:
    task, folder = await asked(MailboxModel(tmp_path, look=LOOK), make_request(), tmp_path)
    put(folder / name, bad)
    await until(folder / "turn-1.problem.md")
    assert fault in (folder / "turn-1.problem.md").read_text()
    written = changed(folder / "turn-1.problem.md")
    await asyncio.sleep(5 * LOOK)
    assert not task.done()
    assert changed(folder / "turn-1.problem.md") == written, "said once"
    put(folder / name, json.dumps({"text": "good"}) if name.endswith("json") else "good")
    assert (await asyncio.wait_for(task, 10)).text == "good"
    assert not (folder / "turn-1.problem.md").exists()


async def test_an_answer_that_is_there_already_is_taken_on_resume(
    tmp_path: Path, make_request: MakeRequest
) -> None:
    model = MailboxModel(tmp_path, look=LOOK)
    task, folder = await asked(model, make_request(), tmp_path)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    put(folder / "turn-1.answer.md", "while you were away")
    response = await asyncio.wait_for(MailboxModel(tmp_path, look=LOOK).respond(make_request(attempt=2)), 10)
    assert response.text == "while you were away"


async def test_an_answer_to_another_question_is_put_aside(tmp_path: Path, make_request: MakeRequest) -> None:
    model = MailboxModel(tmp_path, look=LOOK)
    task, folder = await asked(model, make_request(), tmp_path)
    put(folder / "turn-1.answer.md", "old")
    await asyncio.wait_for(task, 10)
    changed = make_request(Message(role="user", content="another question"))
    with pytest.raises(Unavailable, match="nobody answered"):
        await MailboxModel(tmp_path, look=LOOK, timeout=0.1).respond(changed)
    assert [path.read_text() for path in folder.glob("*.stale-*")] == ["old"]


@pytest.mark.parametrize("episode", ["../../etc", ".", "..", "a/b", "", "é ?*"])
async def test_an_episode_of_any_name_stays_in_the_folder(
    tmp_path: Path, make_request: MakeRequest, episode: str
) -> None:
    box = tmp_path / "box"
    with pytest.raises(Unavailable):
        await MailboxModel(box, look=LOOK, timeout=0.02).respond(make_request(episode=episode))
    assert names(tmp_path) == {"box"}
    (only,) = names(box)
    assert names(box / only) == {"turn-1.request.json", "turn-1.request.md"}


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="as a mailbox"):
        MailboxModel(tmp_path / "file" / "box")
