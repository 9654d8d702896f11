"""Secrets never reach a disk, and what is no secret is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from traces.blobs import BlobStore
from traces.disk import append, write_whole
from traces.events import CallFailed
from traces.ledger import Ledger
from traces.redact import MARK, redact

SECRET = 'pa"ss/word\\with=odd+characters'


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_VENDOR_API_KEY", SECRET)
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijkl")
    monkeypatch.setenv("MONKEY_BUSINESS", "not-a-secret-at-all")


@pytest.mark.parametrize(
    "spelled",
    [SECRET, json.dumps({"key": SECRET}), json.dumps(json.dumps(SECRET))[1:-1], quote(SECRET, safe="")],
    ids=["plain", "JSON", "JSON in JSON", "URL"],
)
def test_values_of_secret_variables_go_however_they_are_spelled(spelled: str) -> None:
    assert b"odd" not in redact(f"before {spelled} after".encode())


@pytest.mark.parametrize(
    "text",
    [
        "sk-proj-abcdefghijklmnop0123",
        "Bearer sk-abcdefghijklmnop0123",
        "Authorization: Bearer abcdefghijkl",
        '{"authorization": "Basic QWxhZGRpbjpvcGVu"}',
        "'X-Api-Key': 'abcdefghijkl'",
        "x-api-key=abcdefghijkl",
        '{\\"Authorization\\": \\"Bearer abcdefghijkl\\"}',
    ],
)
def test_what_looks_like_a_key_goes(text: str) -> None:
    clean = redact(text.encode())
    assert MARK in clean
    assert not any(part in clean for part in (b"abcdefghijkl", b"QWxhZGRpbjpvcGVu"))
    assert redact(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "not-a-secret-at-all",
        "task-with-a-long-name-of-words",
        "gAAAAAB_sk-abcdefghijklmnop0123456789",
        "the authorization: none",
        "disk-abcdefghijklmnopqrst",
    ],
)
def test_what_is_no_key_stays(text: str) -> None:
    assert redact(text.encode()) == text.encode()


def test_every_way_to_the_disk_is_clean(tmp_path: Path) -> None:
    """Blobs, ledgers, whole files and appends."""
    blobs = BlobStore(tmp_path)
    digest = blobs.put_text(f"the key is {SECRET}")
    assert blobs.text(digest) == "the key is [redacted]"
    assert blobs.put_text(blobs.text(digest)) == digest
    with Ledger(tmp_path / "e.jsonl") as ledger:
        ledger.append(
            CallFailed(turn=1, attempt=1, error="Refused", message=f"bad key {SECRET}, hf_abcdefghijkl")
        )
    write_whole(tmp_path / "whole", SECRET.encode())
    with (tmp_path / "appended").open("ab") as file:
        append(file.fileno(), SECRET.encode())
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        assert b"odd" not in data, path
        assert b"hf_abc" not in data, path
