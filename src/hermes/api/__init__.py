"""The Python interface: an agent as an object, and the verbs on tasks, synchronous and asynchronous.

    agent = hermes.AIAgent(model="anthropic/claude-sonnet-4.6", max_turns=30)
    print(agent.chat("What is in this directory?"))

    with hermes.open() as h:
        task = h.delegate_async("Count the lines of every Python file below src.")
        h.steer(task, "Leave out the tests.")
        print(h.collect(task, timeout=300)["summary"])

`open_async` is the real interface; `open` calls it through a portal, and `AIAgent` is one conversation after another on
it. Answers are those of the model's own tools. It decides nothing: limits, rights and models are the runtime's.
"""

from hermes.api.agent import AIAgent
from hermes.api.client import AsyncHermes, open_async
from hermes.api.sync import Hermes, open

__all__ = ["AIAgent", "AsyncHermes", "Hermes", "open", "open_async"]
