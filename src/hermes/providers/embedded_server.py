"""The child process that holds the embedded model: `python -m hermes.providers.embedded_server --weights FILE …`.

It loads one GGUF file and serves Chat Completions on loopback, on a port the system chooses. Its standard input is
its lease of life: the first line is the API key (never an argument, which everybody on the machine can read), and the
end of the input means that the parent is gone. Its standard output carries exactly one line of JSON: `{"url", "pid"}`
once it answers, or `{"error"}`.

It does not choose weights, check them, or know the rest of the runtime: see `weights.py` and `embedded.py`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import select
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

__all__ = ["main"]

#: Seconds between two looks at whether the parent is still the same process: the end of the input is noticed at once,
#: this catches a parent whose pipe was inherited by somebody else.
PARENT_CHECK = 2.0


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="hermes.providers.embedded_server", description="Serve one GGUF on loopback.")
    parser.add_argument("--weights", required=True, help="path of the GGUF file")
    parser.add_argument("--alias", default="embedded", help="name the model answers to")
    parser.add_argument("--slots", type=int, default=4, help="requests answered at the same time")
    parser.add_argument("--context", type=int, default=4096, help="tokens of context for each slot")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    return parser.parse_args(argv)


def serve(options: argparse.Namespace, key: str) -> tuple[Any, str]:
    """Load the weights and listen. Returns the server, which lives as long as the reference, and its URL."""
    # Worker threads that spin while they wait take ten times as long as soon as anything else uses the CPU; the
    # library reads this when it is loaded, so it stands before the import.
    os.environ["GOMP_SPINCOUNT"] = "0"
    xllamacpp = importlib.import_module("xllamacpp")  # heavy optional dependency without types, only in this process
    params = xllamacpp.CommonParams()
    params.model.path = options.weights
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.model_alias = {options.alias}
    params.n_parallel = options.slots
    params.n_ctx = options.context * options.slots
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.n_gpu_layers = 0
    params.verbosity = 0
    params.ui = False
    server = xllamacpp.Server(params)
    return server, server.listening_address


def healthy(url: str) -> bool:
    """Whether the server at `url` says it is ready."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy never reaches our loopback
    try:
        with opener.open(f"{url}/health", timeout=30) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def wait_for_end(parent: int) -> None:
    """Return when the input ends or the parent is another process than `parent`."""
    while os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], PARENT_CHECK)
        if ready and not os.read(0, 4096):
            return


def read_key() -> str:
    """Read the key: the first line of the input, byte by byte so that nothing behind it is swallowed."""
    line = bytearray()
    while (char := os.read(0, 1)) not in (b"", b"\n"):
        line += char
    return line.decode("ascii")


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the parent is gone or SIGTERM comes. Returns the exit code where nothing could be served."""
    options = arguments(argv)
    parent = os.getppid()
    # The default action ends the process even inside native code, where a Python handler would wait for its return.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is the parent's business
    # The native library may print: whatever it writes goes to standard error, the answer to a copy of the real output.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    key = read_key()
    if not key:
        print("no key on standard input: nobody to serve", file=sys.stderr)
        return 1
    try:
        server, url = serve(options, key)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answer, flush=True)
        return 1
    if not healthy(url):
        print(json.dumps({"error": f"the server at {url} does not answer /health"}), file=answer, flush=True)
        return 1
    print(json.dumps({"url": url, "pid": os.getpid()}), file=answer, flush=True)
    wait_for_end(parent)
    os._exit(0 if server is not None else 1)  # without unloading: native threads may be in the middle of a reply


if __name__ == "__main__":
    sys.exit(main())
