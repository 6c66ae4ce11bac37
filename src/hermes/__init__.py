"""Hermes: a runtime for trees of language-model agents.

    import hermes

    print(hermes.AIAgent(model="anthropic/claude-sonnet-4.6").chat("What is in this directory?"))

`AIAgent`, `open` and `open_async` are loaded with their first use. Kept light on purpose: `hermes --version` imports
this module and nothing else of the package.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers read it; `typing` takes longer to import than all else of `--version`
if TYPE_CHECKING:
    from hermes.api import AIAgent as AIAgent
    from hermes.api import AsyncHermes as AsyncHermes
    from hermes.api import Hermes as Hermes
    from hermes.api import open as open
    from hermes.api import open_async as open_async

__version__ = "0.1.0"

_LAZY = ("AIAgent", "AsyncHermes", "Hermes", "open", "open_async")


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'hermes' has no attribute {name!r}")
    # edge: the runtime takes a quarter of a second to import, which `--version` must not pay
    from hermes import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted((*globals(), *_LAZY))
