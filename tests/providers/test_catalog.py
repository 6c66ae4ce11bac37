"""Which wire format is spoken where: as the user says, else by the address."""

from __future__ import annotations

import pytest

from hermes.config.schema import ModelOverride
from hermes.core.model import ModelProfile
from hermes.providers.anthropic import AnthropicMessages
from hermes.providers.catalog import Catalog, adapter_of
from hermes.providers.endpoint import ApiMode, Endpoint, api_mode_of
from hermes.providers.http import HttpSession
from hermes.providers.http_model import HttpModel
from hermes.providers.openai_chat import OpenAIChat
from hermes.providers.openai_responses import OpenAIResponses
from hermes.testing.scripted import reply
from hermes.testing.server import ProviderServer
from tests.providers.conformance import ask, message_of


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("https://api.anthropic.com", "anthropic_messages"),
        ("https://api.anthropic.com/v1/", "anthropic_messages"),
        ("https://api.anthropic.com/v1/chat/completions", "chat_completions"),
        ("https://api.example.com/anthropic", "anthropic_messages"),
        ("https://api.example.com/v1/messages", "anthropic_messages"),
        ("https://api.example.com/v1/responses", "codex_responses"),
        ("https://api.openai.com/v1", "chat_completions"),
        ("http://127.0.0.1:8000/v1", "chat_completions"),
        ("https://api.anthropic.com.example.com/v1", "chat_completions"),
    ],
)
def test_by_the_address(url: str, mode: ApiMode) -> None:
    assert api_mode_of(Endpoint(base_url=url)) == mode


@pytest.mark.parametrize(
    ("mode", "adapter"),
    [
        ("chat_completions", OpenAIChat),
        ("anthropic_messages", AnthropicMessages),
        ("codex_responses", OpenAIResponses),
    ],
)
def test_what_the_user_says_wins(mode: ApiMode, adapter: type[HttpModel]) -> None:
    endpoint = Endpoint(base_url="https://api.anthropic.com", api_mode=mode)
    assert type(adapter_of("m", endpoint, ModelProfile(), HttpSession())) is adapter


@pytest.mark.anyio
@pytest.mark.fault("B059")
async def test_two_models_of_one_server_may_speak_two_formats() -> None:
    overrides = {"b": ModelOverride(api_mode="anthropic_messages"), "c": ModelOverride(api_mode="codex_responses")}
    async with ProviderServer(lambda request: reply("hi")) as server:
        catalog = Catalog(overrides)
        endpoint = Endpoint(base_url=server.base_url, api_key="k")
        for name in "abc":
            assert (await message_of(catalog.model(name, endpoint), ask())).text == "hi"
        await catalog.close()
    paths = [(request.model, request.path) for request in server.requests]
    assert paths == [("a", "/v1/chat/completions"), ("b", "/v1/messages"), ("c", "/v1/responses")]
