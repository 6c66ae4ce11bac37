"""The laws of the source that no linter holds: sizes, imports in functions, swallowed cancellation, docstrings."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "hermes"
FILES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

FILE_LINES = 400
FUNCTION_LINES = 60
#: What the core may import besides the standard library and itself.
CORE_PACKAGES = {"anyio", "msgspec"}
#: Layers that know one event loop only through anyio.
LOOP_FREE = ("core", "runtime")
#: Start of a comment that gives the reason for an import inside a function.
EDGE = "# edge:"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def imported(node: ast.AST) -> list[str]:
    """Return the modules an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def imports(tree: ast.Module) -> list[str]:
    return [module for node in ast.walk(tree) for module in imported(node)]


def too_long(source: str, limit: int) -> list[str]:
    """Return the functions of more than `limit` lines, decorators not counted."""
    return [
        f"{node.name} has {length} lines"
        for node in functions(ast.parse(source))
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > limit
    ]


def hidden_imports(source: str) -> list[str]:
    """Return the imports inside functions that have no reason in a comment on the line or right above its block."""
    lines = source.splitlines()
    found = []
    for function in functions(ast.parse(source)):
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom) and not has_reason(lines, node.lineno):
                found.append(f"line {node.lineno}: {lines[node.lineno - 1].strip()}")
    return sorted(set(found))


def has_reason(lines: list[str], number: int) -> bool:
    """Look at the line, and upwards over imports and comments."""
    if EDGE in lines[number - 1]:
        return True
    for line in reversed(lines[: number - 1]):
        text = line.strip()
        if text.startswith(EDGE):
            return True
        if not text.startswith(("import ", "from ", "#")):
            return False
    return False


def swallows(source: str) -> list[str]:
    """Return the handlers that catch a cancellation and neither raise nor carry it to where it is raised."""
    return [
        f"line {node.lineno}: catches {ast.unparse(node.type) if node.type else 'everything'}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ExceptHandler) and catches_cancellation(node) and not passes_on(node)
    ]


def passes_on(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler raises, or keeps the error in a variable for another place."""
    for node in ast.walk(handler):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == handler.name:
            return True
    return False


def catches_cancellation(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    text = ast.unparse(handler.type)
    return any(word in text for word in ("BaseException", "CancelledError", "get_cancelled_exc_class")) and (
        "BaseExceptionGroup" not in text
    )


def hushes(source: str) -> list[str]:
    """Return the handlers that catch every error and do nothing at all."""
    return [
        f"line {node.lineno}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
        and all(isinstance(inner, ast.Pass | ast.Continue) for inner in node.body)
    ]


@pytest.mark.parametrize("path", [*FILES, *TESTS], ids=name)
def test_a_file_fits_in_one_reading(path: Path) -> None:
    count = len(path.read_text(encoding="utf-8").splitlines())
    limit = FILE_LINES if path in FILES else 2 * FILE_LINES
    assert count <= limit, f"{name(path)} has {count} lines, at most {limit}: split it by what its parts are for"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    assert too_long(path.read_text(encoding="utf-8"), FUNCTION_LINES) == []


@pytest.mark.parametrize("path", FILES, ids=name)
def test_imports_stand_at_the_top(path: Path) -> None:
    """Only what is heavy and optional is imported late, and says why in a comment that begins with `edge:`."""
    assert hidden_imports(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", FILES, ids=name)
def test_nothing_is_swallowed(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert swallows(source) == []
    assert hushes(source) == []


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    if source.strip():
        assert ast.get_docstring(ast.parse(source)), f"{name(path)} has no docstring"


@pytest.mark.parametrize("layer", LOOP_FREE)
def test_the_loop_is_known_only_through_anyio(layer: str) -> None:
    for path in (SOURCE / layer).rglob("*.py"):
        modules = imports(ast.parse(path.read_text(encoding="utf-8")))
        assert [module for module in modules if module.split(".")[0] in ("asyncio", "trio")] == [], name(path)


def test_the_core_needs_next_to_nothing() -> None:
    allowed = {*sys.stdlib_module_names, *CORE_PACKAGES, "hermes"}
    for path in (SOURCE / "core").rglob("*.py"):
        modules = imports(ast.parse(path.read_text(encoding="utf-8")))
        assert [module for module in modules if module.split(".")[0] not in allowed] == [], name(path)


def test_only_the_assembly_knows_the_testing_package() -> None:
    """A scripted model can be chosen by name, and the assembly alone turns names into parts."""
    for path in FILES:
        if path.is_relative_to(SOURCE / "testing") or path.is_relative_to(SOURCE / "compose"):
            continue
        modules = imports(ast.parse(path.read_text(encoding="utf-8")))
        assert [module for module in modules if module.startswith("hermes.testing")] == [], name(path)


def test_the_checks_find_what_they_are_for() -> None:
    assert too_long("def f():\n" + "    x = 1\n" * 60, 60) == ["f has 61 lines"]
    assert too_long("def f():\n" + "    x = 1\n" * 59, 60) == []
    assert hidden_imports("def f():\n    import ray\n") == ["line 2: import ray"]
    assert hidden_imports("def f():\n    # edge: ray takes a second\n    import ray\n    import json\n") == []
    assert hidden_imports("def f():\n    import ray  # edge: takes a second\n") == []
    assert hidden_imports("import ray\n") == []
    assert swallows("try:\n    f()\nexcept BaseException:\n    g()\n") == ["line 3: catches BaseException"]
    assert swallows("try:\n    f()\nexcept:\n    g()\n") == ["line 3: catches everything"]
    assert swallows("try:\n    f()\nexcept BaseException:\n    g()\n    raise\n") == []
    assert swallows("try:\n    f()\nexcept BaseException as error:\n    kept = error\n") == []
    assert hushes("try:\n    f()\nexcept Exception:\n    pass\n") == ["line 3"]
    assert hushes("try:\n    f()\nexcept KeyError:\n    pass\n") == []
