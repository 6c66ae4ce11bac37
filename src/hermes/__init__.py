"""Hermes: a runtime for trees of language-model agents.

Kept light on purpose: `hermes --version` imports this module and nothing else of the package.
"""

from __future__ import annotations

__version__ = "0.1.0"
