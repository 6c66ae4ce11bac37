"""What runs in the task's environment when code calls tools: a module `hermes_tools` over a local socket.

The text of `STUB` is a program for whatever Python is there, from 3.8 on; nothing of this package is imported by it.
"""

from __future__ import annotations

__all__ = ["STUB"]

STUB = """\
import json, os, socket, sys, types

_folder = os.path.dirname(os.path.abspath(__file__))


def _start():
    with open(os.path.join(_folder, "start.json"), encoding="utf-8") as file:
        start = json.load(file)
    os.unlink(os.path.join(_folder, "start.json"))  # nobody who comes later reads the token
    return start["token"], start["tools"]


_token, _tools = _start()


def _ask(name, arguments):
    folder = os.open(_folder, os.O_RDONLY | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX)
    try:
        # a short name for a path that may be longer than an address can be
        connection.connect("/proc/self/fd/%d/tools.sock" % folder)
        request = json.dumps({"token": _token, "tool": name, "arguments": arguments})
        connection.sendall(request.encode("utf-8", "replace") + b"\\n")
        parts = []
        while True:
            data = connection.recv(65536)
            if not data:
                break
            parts.append(data)
    finally:
        connection.close()
        os.close(folder)
    if not parts:
        raise RuntimeError(name + ": no answer; the call was stopped")
    answer = json.loads(b"".join(parts))
    try:
        value = json.loads(answer["output"])
    except ValueError:
        value = answer["output"]
    if answer["is_error"] and not (isinstance(value, dict) and "error" in value):
        value = {"error": value}
    return value


def _function(name, fields):
    def call(*args, **arguments):
        if len(args) > len(fields):
            raise TypeError("%s takes at most %d arguments: %s" % (name, len(fields), ", ".join(fields)))
        for field, value in zip(fields, args):
            if field in arguments:
                raise TypeError("%s got two values for %s" % (name, field))
            arguments[field] = value
        return _ask(name, arguments)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "%s(%s): as your tool of this name; returns its result as a dict, or {'error': ...}." % (
        name, ", ".join(fields))
    return call


_module = types.ModuleType("hermes_tools", "Your own tools as functions.")
for _name, _fields in _tools.items():
    setattr(_module, _name, _function(_name, _fields))
_module.__all__ = sorted(_tools)
sys.modules["hermes_tools"] = _module

_path = os.path.join(_folder, "code.py")
with open(_path, encoding="utf-8") as _file:
    _code = compile(_file.read(), _path, "exec")
sys.path[0] = os.getcwd()
sys.argv = [_path]
_main = types.ModuleType("__main__")
_main.__file__ = _path
sys.modules["__main__"] = _main
exec(_code, _main.__dict__)
"""
