"""The `hermes` command: reads flags, calls the layers below, prints. No decision of the runtime is made here."""
