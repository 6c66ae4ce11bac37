"""Opens the runtime for a batch: endpoint, model and toolsets as for any other command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from hermes.batch.execute import RuntimeEngine
from hermes.batch.job import OpenEngine
from hermes.batch.rollout import Engine
from hermes.batch.settings import BatchSettings
from hermes.cli.options import GlobalOptions, open_sources
from hermes.compose import Parts, open_runtime, select_toolsets
from hermes.runtime.runtime import tune_collector
from hermes.runtime.spec import ModelChoice

__all__ = ["engine_opener"]


def engine_opener(options: GlobalOptions) -> OpenEngine:
    """Return what opens the engine for the settings of a run."""

    @asynccontextmanager
    async def opened(settings: BatchSettings) -> AsyncIterator[Engine]:
        given = msgspec.structs.replace(options, model=settings.model or options.model)
        sources = open_sources(given)
        configuration = sources.loaded.require()
        endpoint = sources.endpoint(base_url=settings.base_url or "", api_key=settings.api_key or "")
        parts = Parts(
            loaded=sources.loaded,
            endpoint=endpoint,
            keys=sources.keys,
            variables=sources.variables,
            secrets=sources.secrets(),
            yolo=options.yolo,
            memory=True,  # the run's folder is the record; a rollout that is cut off starts over
        )
        async with open_runtime(parts) as assembly:
            tune_collector()
            yield RuntimeEngine(
                assembly.runtime,
                model=assembly.model,
                choice=ModelChoice(name=endpoint.model, provider=endpoint.provider, base_url=endpoint.base_url),
                ceiling=select_toolsets(configuration, assembly.runtime.registry).names,
            )

    return opened
