"""From a name on the command line to a model, and the ways that fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent.models.base import Message, Request
from agent.models.factory import ModelOptions, make_model, with_environment
from tasks.errors import InputError
from tests.servers.wire import Reply, WireServer


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("spec", ["", "gpt-5", "openai", "openai:", ":x", "martian:x", "OpenAI:x"])
def test_an_unknown_form_lists_the_forms(spec: str) -> None:
    with pytest.raises(InputError) as caught:
        make_model(spec)
    for form in ("openai:NAME", "anthropic:NAME", "recorded:FILE", "mailbox:DIR"):
        assert form in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "variable"), [("openai:gpt-5", "OPENAI_API_KEY"), ("anthropic:claude", "ANTHROPIC_API_KEY")]
)
async def test_a_missing_key_names_the_variable(
    spec: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=variable):
        make_model(spec)
    with pytest.raises(InputError, match="MY_KEY"):
        make_model(spec, ModelOptions(api_key_env="MY_KEY"))
    local = make_model(spec, ModelOptions(base_url="http://127.0.0.1:9/v1"))
    assert local.name == spec
    monkeypatch.setenv("MY_KEY", "secret-of-mine")
    named = make_model(spec, ModelOptions(api_key_env="MY_KEY"))
    await local.close()
    await named.close()
    await named.close()


async def test_names_may_hold_colons_and_slashes(tmp_path: Path) -> None:
    options = ModelOptions(base_url="http://127.0.0.1:9/v1", api="chat")
    model = make_model("openai:org/llama:70b", options)
    assert model.name == "openai:org/llama:70b"
    await model.close()
    assert make_model(f"mailbox:{tmp_path}/box").name == f"mailbox:{tmp_path}/box"


@pytest.mark.parametrize("fields", [{"timeout": 0}, {"api": "soap"}, {"api_key": "secret"}])
def test_options_are_checked_and_hold_no_key(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ModelOptions(**fields)  # type: ignore[arg-type]


def test_naming_a_provider_loads_no_other_ones_sdk() -> None:
    """The SDKs cost seconds to import: the factory alone, and a recording, must load neither."""
    code = (
        "import sys; from agent.models.factory import make_model; import agent.models.retry\n"
        "make_model('mailbox:' + sys.argv[1])\n"
        "print([name for name in ('openai', 'anthropic', 'torch', 'langgraph') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, "/tmp"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


async def test_a_server_in_the_environment_is_used_and_can_be_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    with WireServer([Reply(text="from there")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        model = make_model("openai:m", ModelOptions(api="chat"))
        request = Request(messages=(Message(role="user", content="x"),), episode="e", turn=1)
        assert (await model.respond(request)).text == "from there"
        await model.close()
        assert with_environment("openai:m", ModelOptions()).base_url == server.openai_url
    given = ModelOptions(base_url="http://127.0.0.1:9/v1")
    assert with_environment("openai:m", given) == given
    assert with_environment("anthropic:m", ModelOptions()).base_url is None
    assert with_environment("recorded:m", ModelOptions()).base_url is None
