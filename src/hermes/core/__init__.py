"""Values and the loop. No I/O of its own: imports the standard library, anyio and msgspec only."""
