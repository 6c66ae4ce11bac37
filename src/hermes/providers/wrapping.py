"""What a model around another model has of it: its name and its profile. What it adds is each wrapper's own."""

from __future__ import annotations

from hermes.core.model import Model, ModelProfile

__all__ = ["Wrapping"]


class Wrapping:
    """A model that answers through `inner` and is known by its name and profile."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        """The name of the model within."""
        return self.inner.name

    @property
    def profile(self) -> ModelProfile:
        """The profile of the model within."""
        return self.inner.profile
