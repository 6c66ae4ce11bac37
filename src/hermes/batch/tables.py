"""Distributions of a user's own, from a YAML file: names, and under each the toolsets with their percentages.

    my_mix:
      terminal: 100
      web: 30

Which toolsets exist is not looked at here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes.core.errors import UsageError

__all__ = ["FILE_NAME", "is_file_name", "read_tables"]

#: The file of a home that holds them.
FILE_NAME = "distributions.yaml"


def is_file_name(name: str) -> bool:
    """Whether a distribution is named by the file that holds it."""
    return name.endswith((".yaml", ".yml"))


def read_tables(path: Path) -> dict[str, dict[str, float]]:
    """Read the tables of a file: name -> toolset -> percent.

    Raises:
        UsageError: it cannot be read or holds something else; the place is named.
    """
    # edge: costs 40 ms to import, and few runs have tables of their own
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found: Any = YAML(typ="safe", pure=True).load(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the distributions {path}: {error.strerror}.") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict) or not found:
        raise UsageError(f"{path} holds no distributions: write a name and, below it, toolset: percent.")
    return {str(name): _table(path, str(name), table) for name, table in found.items()}


def _table(path: Path, name: str, table: object) -> dict[str, float]:
    if not isinstance(table, Mapping) or not table:
        raise UsageError(f"{path}: the distribution {name!r} needs lines of toolset: percent.")
    shares = {}
    for toolset, percent in table.items():
        if isinstance(percent, bool) or not isinstance(percent, (int, float)) or not 0 < percent <= 100:
            raise UsageError(f"{path}: {name}.{toolset} is {percent!r}, not a percentage above 0 and at most 100.")
        shares[str(toolset)] = float(percent)
    return shares
