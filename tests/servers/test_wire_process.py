"""The scripted service as a process of its own, as tests use it that kill its client."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def ask(url: str, *contents: str) -> str:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": content} for n, content in enumerate(contents)]
    answer = post(f"{url}/chat/completions", {"model": "m", "messages": messages})
    return str(answer["choices"][0]["message"]["content"])


def test_it_answers_by_task_and_turn_and_counts_every_call(tmp_path: Path) -> None:
    answers, script, calls = tmp_path / "answers.json", tmp_path / "script.json", tmp_path / "calls.jsonl"
    answers.write_text(json.dumps({"gemm": ["g1"], "gemm_bf16": ["b1", "b2"], "*": ["else"]}))
    script.write_text(json.dumps([{"kind": "503"}]))
    command = [
        sys.executable,
        "-m",
        "tests.servers.wire",
        "--answers",
        answers,
        "--script",
        script,
        "--calls",
        calls,
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["openai"]
        with pytest.raises(urllib.error.HTTPError, match="503") as caught:
            ask(url, "gemm")
        caught.value.close()
        assert ask(url, "write gemm") == "g1"
        assert ask(url, "write gemm", "g1", "wrong") == "g1"
        assert ask(url, "write gemm_bf16") == "b1"
        assert ask(url, "write gemm_bf16", "b1", "wrong") == "b2"
        assert ask(url, "write poetry") == "else"
        process.stdin.close()
        assert process.wait(20) == 0
    lines = [json.loads(line) for line in calls.read_text().splitlines()]
    assert [line["number"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [(line["task"], line["turn"]) for line in lines] == [
        ("gemm", 1),
        ("gemm", 1),
        ("gemm", 2),
        ("gemm_bf16", 1),
        ("gemm_bf16", 2),
        ("", 1),
    ]
