"""The contract of models over the endpoint adapter, the retrying wrapper and the scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from hermes.core.model import Model
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


class TestRetrying(ModelConformance):
    @asynccontextmanager
    async def opened(self, steps: Sequence[Any]) -> AsyncIterator[Model]:
        async with endpoint_with(steps) as model:
            yield Retrying(model)


class TestScripted(ModelConformance):
    @asynccontextmanager
    async def opened(self, steps: Sequence[Any]) -> AsyncIterator[Model]:
        yield ScriptedModel("test-model", steps)
