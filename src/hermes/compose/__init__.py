"""Assembly: opens a runtime with everything in it. The only package that knows all features.

`open_runtime` builds and runs it, `conversation_spec` says what a conversation is by the settings.
"""

from hermes.compose.answering import bell_of, rung
from hermes.compose.conversation import conversation_spec, isolated_spec, select_toolsets, session_limits
from hermes.compose.opening import max_running, open_runtime
from hermes.compose.parts import Assembly, Parts

__all__ = [
    "Assembly",
    "Parts",
    "bell_of",
    "conversation_spec",
    "isolated_spec",
    "max_running",
    "open_runtime",
    "rung",
    "select_toolsets",
    "session_limits",
]
