"""The contract of models over the adapter of each wire format, the wrappers and the scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from hermes.core.model import Model
from hermes.providers.anthropic import AnthropicMessages
from hermes.providers.openai_responses import OpenAIResponses
from hermes.providers.recorded import Recorded
from hermes.providers.retrying import Retrying
from hermes.testing.scripted import ScriptedModel
from tests.providers.conformance import ModelConformance
from tests.providers.endpoints import endpoint_with


class TestOpenAIChat(ModelConformance):
    def opened(self, steps: Sequence[Any]) -> AbstractAsyncContextManager[Model]:
        return endpoint_with(steps)


class TestOpenAIChatWithOtherReasoningField(ModelConformance):
    def opened(self, steps: Sequence[Any]) -> AbstractAsyncContextManager[Model]:
        return endpoint_with(steps, reasoning_field="reasoning")


class TestAnthropicMessages(ModelConformance):
    cut_off = "max_tokens"
    unreported = frozenset({"reasoning", "cost_usd"})

    def opened(self, steps: Sequence[Any]) -> AbstractAsyncContextManager[Model]:
        return endpoint_with(steps, adapter=AnthropicMessages)


class TestOpenAIResponses(ModelConformance):
    cut_off = "max_output_tokens"
    unreported = frozenset({"cost_usd"})

    def opened(self, steps: Sequence[Any]) -> AbstractAsyncContextManager[Model]:
        return endpoint_with(steps, adapter=OpenAIResponses)


class TestRetrying(ModelConformance):
    @asynccontextmanager
    async def opened(self, steps: Sequence[Any]) -> AsyncIterator[Model]:
        async with endpoint_with(steps) as model:
            yield Retrying(model)


class TestRecorded(ModelConformance):
    @asynccontextmanager
    async def opened(self, steps: Sequence[Any]) -> AsyncIterator[Model]:
        async with endpoint_with(steps) as model:
            yield Recorded(model, lambda request: lambda kept: None)


class TestScripted(ModelConformance):
    @asynccontextmanager
    async def opened(self, steps: Sequence[Any]) -> AsyncIterator[Model]:
        yield ScriptedModel("test-model", steps)
