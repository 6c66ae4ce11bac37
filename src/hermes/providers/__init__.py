"""Language models over the network: one file a wire format, failures as typed errors, wrappers of the same protocol.

`openai_chat` asks, `retrying` asks again, `schema_tools` gives tools to endpoints that have none, `embedded` runs a
tiny model on this machine. Nothing is imported here, so that a command without a model loads no HTTP client.
"""
