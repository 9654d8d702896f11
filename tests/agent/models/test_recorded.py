"""Cassettes: written from answers, read strictly, played back without inventing anything."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.models import record
from agent.models.base import FinishReason, Message, Refused, Response, Usage
from agent.models.cassette import Entry, Header, check_entries, read_cassette, request_sha256
from agent.models.factory import make_model
from agent.models.recorded import RecordedModel
from tasks.errors import InputError
from tests.agent.models.conftest import MakeRequest

HEADER = Header(who="a tester", model="m-1", recorded=datetime.date(2026, 12, 1), how="typed by hand")


def entry(turn: int, text: str = "answer", task: str = "affine", arm: str = "", sample: int = 0) -> Entry:
    return Entry(task=task, arm=arm, sample=sample, turn=turn, text=text)


@pytest.fixture
def cassette(tmp_path: Path, make_request: MakeRequest) -> Path:
    path = tmp_path / "a.jsonl"
    known = record.entry(
        make_request(sample=1),
        Response(
            text="one\r\n```ptx\n…\n```",
            finish=FinishReason.LENGTH,
            model="m-1",
            usage=Usage(input=5, output=7),
        ),
    )
    other = record.entry(
        make_request(Message(role="user", content="else"), sample=1, turn=2),
        Response(text="two", finish=FinishReason.STOP, model="m-2"),
        any_arm=False,
    )
    record.write_cassette(path, HEADER, [other, known, entry(1), entry(1, "for verdict", arm="verdict")])
    return path


async def test_an_answer_comes_back_as_it_was_given(cassette: Path, make_request: MakeRequest) -> None:
    response = await RecordedModel(str(cassette)).respond(make_request(sample=1))
    assert response.text == "one\r\n```ptx\n…\n```"
    assert response.finish == FinishReason.LENGTH
    assert response.usage == Usage(input=5, output=7)
    assert response.model == "m-1"
    assert response.raw["request_matched"] is True
    assert response.raw["who"] == "a tester"


async def test_another_prompt_is_noted(cassette: Path, make_request: MakeRequest) -> None:
    model = RecordedModel(str(cassette))
    changed = make_request(Message(role="user", content="a better prompt for affine"), sample=1)
    assert (await model.respond(changed)).raw["request_matched"] is False
    second = await model.respond(make_request(sample=1, turn=2))
    assert (second.text, second.model, second.raw["request_matched"]) == ("two", "m-2", False)
    assert (await model.respond(make_request())).raw["request_matched"] is None


async def test_the_arms_own_answer_comes_before_the_one_for_any_arm(
    cassette: Path, make_request: MakeRequest
) -> None:
    model = RecordedModel(str(cassette))
    assert (await model.respond(make_request(arm="verdict"))).text == "for verdict"
    assert (await model.respond(make_request(arm="none"))).text == "answer"


async def test_what_is_not_there_ends_the_episode_and_says_what_is(
    cassette: Path, make_request: MakeRequest
) -> None:
    model = RecordedModel(str(cassette))
    with pytest.raises(Refused, match="sample 7, turn 1") as caught:
        await model.respond(make_request(sample=7))
    assert caught.value.fatal is False
    assert "arm feedback sample 1 to turn 2" in str(caught.value)
    with pytest.raises(Refused, match="recorded tasks: affine"):
        await model.respond(make_request(task="gemm"))


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ([entry(1), entry(1)], "turn 1 is there more than once"),
        ([entry(1), entry(3)], "turn 2 is missing before turn 3"),
        ([entry(2, arm="x")], "arm x, sample 0: turn 1 is missing"),
        ([], "at least one answer"),
    ],
)
def test_a_cassette_that_contradicts_itself_is_not_written(
    tmp_path: Path, entries: list[Entry], fault: str
) -> None:
    with pytest.raises(InputError, match=fault):
        record.write_cassette(tmp_path / "c.jsonl", HEADER, entries)
    assert list(tmp_path.iterdir()) == []


def test_a_better_recording_replaces_the_old_one_and_a_bad_one_does_not(cassette: Path) -> None:
    record.write_cassette(cassette, HEADER, [entry(1, "better")])
    assert [e.text for e in read_cassette(cassette).entries] == ["better"]
    with pytest.raises(InputError):
        record.write_cassette(cassette, HEADER, [entry(2)])
    assert [e.text for e in read_cassette(cassette).entries] == ["better"]


GOOD = HEADER.model_dump_json()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "line 1: expected the header"),
        ("[]\n", "line 1: expected the header"),
        (GOOD.replace('"version":1', '"version":9'), "version"),
        (GOOD.replace("ptxmend-cassette", "tape"), "format"),
        (GOOD + "\n{", "line 2: expected a recorded answer"),
        (GOOD + '\n{"task":"a","turn":0,"text":""}', "line 2.*turn"),
        (GOOD + '\n\n{"task":"a","turn":1,"text":"","more":1}', "line 3.*more"),
        (GOOD + '\n{"task":"a","turn":2,"text":""}', "turn 1 is missing"),
    ],
)
def test_a_broken_file_says_where(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=fault):
        RecordedModel(str(path))


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no cassette 'nowhere'"):
        make_model("recorded:nowhere")
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot read the cassette"):
        make_model(f"recorded:{path}")


def test_the_digest_is_of_roles_and_texts_alone() -> None:
    plain = [Message(role="user", content="a"), Message(role="assistant", content="b")]
    native = [plain[0], plain[1].model_copy(update={"native": ({"type": "reasoning"},)})]
    assert request_sha256(plain) == request_sha256(native)
    assert request_sha256(plain) != request_sha256(plain[:1])
    moved = [Message(role="user", content="ab"), Message(role="assistant", content="")]
    assert request_sha256(plain) != request_sha256(moved)


NAMES = st.text("ab", min_size=1, max_size=2)
TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(st.tuples(NAMES, NAMES, st.integers(0, 3)), st.lists(TEXTS, min_size=1, max_size=4)))
def test_whatever_is_written_is_played(
    tmp_path_factory: pytest.TempPathFactory, answers: dict[tuple[str, str, int], list[str]]
) -> None:
    entries = [
        entry(turn, text, task, arm, sample)
        for (task, arm, sample), texts in answers.items()
        for turn, text in enumerate(texts, 1)
    ]
    assert check_entries(entries) == []
    if not entries:
        return
    path = tmp_path_factory.mktemp("cassettes") / "c.jsonl"
    record.write_cassette(path, HEADER, reversed(entries))
    first = path.read_bytes()
    record.write_cassette(path, HEADER, entries)
    assert path.read_bytes() == first
    assert set(read_cassette(path).entries) == set(entries)


def test_a_plain_word_names_a_packaged_cassette_before_a_file(
    monkeypatch: pytest.MonkeyPatch, cassette: Path, tmp_path: Path
) -> None:
    shipped, here = tmp_path / "agent" / "cassettes", tmp_path / "here"
    shipped.mkdir(parents=True)
    here.mkdir()
    monkeypatch.setattr("agent.models.cassette.resources.files", lambda _: shipped.parent)
    cassette.rename(shipped / "demo.jsonl")
    record.write_cassette(here / "demo", HEADER, [entry(1, task="of my own")])
    record.write_cassette(tmp_path / "secret.jsonl", HEADER, [entry(1)])
    monkeypatch.chdir(here)
    assert len(RecordedModel("demo").cassette.entries) == 4
    assert len(RecordedModel("./demo").cassette.entries) == 1
    assert make_model("recorded:demo").name == "recorded:demo"
    for name in ("../../secret", "x" * 5000, "a\0b"):
        with pytest.raises(InputError, match="one that ships with ptxmend \\(demo\\)"):
            RecordedModel(name)
