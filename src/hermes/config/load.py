"""Settings from all their places: command line > `config.yaml` > environment and `.env` > inherited > defaults.

Every value keeps where it came from, every problem its line. Nothing is written, and nothing is put into the process's
environment. The YAML package is imported only when there is a file to read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hermes.config.dotenv import read_dotenv
from hermes.config.files import read_text
from hermes.config.home import DEFAULT_PROFILE, Home
from hermes.config.inherit import dropped, has_model_keys, has_pool, is_passed_on, joined, passed_variables
from hermes.config.profiles import private_paths, read_persona, read_profile
from hermes.config.schema import FIELDS, KNOWN_UNUSED, SECTIONS, Settings
from hermes.config.values import Misfit, convert_value, nearest_key, substitute
from hermes.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from hermes.config.document import Document

__all__ = ["Loaded", "Problem", "load", "read_document"]

#: A key of one of these names at the top is put in the wrong place, not another program's.
_DISTINCT = {"max_turns", "max_iterations", "max_concurrent_children", "max_spawn_depth", "disabled_toolsets"}
_SHORT_FORMS = {"model": "model.default", "approvals": "approvals.mode"}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something about a setting: an `error` cannot be used, a `warning` is shown at start, a `note` by checks only."""

    level: Literal["error", "warning", "note"]
    key: str
    message: str


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and their story.

    `sources` says for each key where its value came from: `command line`, `config.yaml:12`, `NAME (environment)`,
    `NAME (.env)` or `default`, with ` of PROFILE` where it is inherited. `dotenv` holds the variables of `.env` and the
    inherited ones, which are in no environment; `inherited` says of the latter whose they are. `auth_file` is the
    credential pool in force, `values` the settings by their dotted keys. `persona` is who the agent is in its
    user's words; `private` are the paths that no tool may read.
    """

    home: Home
    settings: Settings
    sources: dict[str, str]
    problems: tuple[Problem, ...]
    dotenv: dict[str, str]
    inherited: dict[str, str] = {}
    pool_home: Home | None = None
    values: dict[str, Any] = {}
    persona: str = ""
    private: tuple[str, ...] = ()

    @property
    def auth_file(self) -> Path:
        """The credential pool in force: the profile's own, else that of the one it inherits from."""
        return (self.pool_home or self.home).auth_file

    def require(self) -> Settings:
        """Return the settings if all of them can be used.

        Raises:
            ConfigError: with the first error, its file and line.
        """
        errors = [problem.message for problem in self.problems if problem.level == "error"]
        if errors:
            more = f" ({len(errors) - 1} more: hermes config check)" if len(errors) > 1 else ""
            raise ConfigError(errors[0] + more)
        return self.settings

    @property
    def warnings(self) -> list[str]:
        """What a person should read at start."""
        return [problem.message for problem in self.problems if problem.level == "warning"]


def read_document(path: Path) -> Document | None:
    """Parse a configuration file; None if there is none.

    Raises:
        ConfigError: it is not UTF-8 or not YAML; names the line.
    """
    text = read_text(path)
    if text is None:
        return None
    # edge: the YAML package takes a tenth of a second to import, which a home without a file need not pay
    from hermes.config.document import parse

    return parse(path, text)


class _Collector:
    def __init__(self, home: Home, environ: Mapping[str, str], dotenv: Mapping[str, str]) -> None:
        self.values: dict[str, Any] = {key: field.default for key, field in FIELDS.items()}
        self.sources = dict.fromkeys(FIELDS, "default")
        self.problems: list[Problem] = []
        self._home = home
        self._environ = environ
        self._dotenv = dotenv
        self._taken: dict[str, Any] = {}
        self.own: set[str] = set()

    def inherit(self, above: Loaded, *, everything: bool) -> None:
        for key, source in above.sources.items():
            own = source == "default" or source.endswith("(environment)")
            if is_passed_on(key, everything=everything) and not own:
                value = above.values[key]
                whose = source if " of " in source else f"{source} of {above.home.profile}"
                self._taken[key] = self.values[key] = value
                self.sources[key] = whose
        self.problems.extend(
            problem
            for problem in above.problems
            if problem.level != "note" and is_passed_on(problem.key, everything=everything)
        )

    def settle(self) -> None:
        for key in dropped(self.own):
            self.values[key], self.sources[key] = FIELDS[key].default, "default"

    def add(self, level: Literal["error", "warning", "note"], key: str, message: str) -> None:
        self.problems.append(Problem(level=level, key=key, message=message))

    def put(self, key: str, value: Any, source: str, place: str) -> None:
        try:
            own, remark = convert_value(key, value)
        except Misfit as error:
            self.add("error", key, f"{place}: {key}: {error}.")
            return
        self.values[key] = joined(self._taken.get(key), own)
        self.sources[key] = source
        self.own.add(key)
        if remark:
            self.add("note", key, f"{place}: {key}: {remark}.")

    def environment(self, dotenv: Mapping[str, str]) -> None:
        for key, field in FIELDS.items():
            for name in field.env:
                where = ((self._environ, "environment"), (dotenv, ".env"))
                found = next(((each[name], label) for each, label in where if each.get(name)), None)
                if found is not None:
                    self.put(key, found[0], f"{name} ({found[1]})", f"{found[1]}, {name}")
                    break

    def document(self, document: Document) -> None:
        data = substitute(document.data, {**self._dotenv, **self._environ})
        for name, value in data.items():
            line = document.lines.get((name,), 1)
            if name in SECTIONS and not (name in _SHORT_FORMS and not isinstance(value, (Mapping, list))):
                self._section(document, name, value)
            elif name in _SHORT_FORMS:
                self.put(_SHORT_FORMS[name], value, f"config.yaml:{line}", self._place(line))
            elif name in FIELDS:
                self.put(name, value, f"config.yaml:{line}", self._place(line))
            else:
                self._unknown(name, line)

    def _section(self, document: Document, name: str, value: Any) -> None:
        if value is None:
            return
        if not isinstance(value, Mapping):
            line = document.lines.get((name,), 1)
            self.add("error", name, f"{self._place(line)}: {name}: expected a section of settings, found {value!r}.")
            return
        for inner, item in value.items():
            key = f"{name}.{inner}"
            line = document.lines.get((name, inner), 1)
            if key in FIELDS:
                self.put(key, item, f"config.yaml:{line}", self._place(line))
            else:
                self._unknown(key, line)

    def _unknown(self, key: str, line: int) -> None:
        place = self._place(line)
        if key in KNOWN_UNUSED:
            self.add("note", key, f"{place}: {key} is kept but has no effect in this release.")
            return
        nearest = nearest_key(key)
        home = next((known for known in FIELDS if key in _DISTINCT and known.endswith("." + key)), None)
        if nearest is not None:
            self.add("error", key, f"{place}: there is no setting {key}. Did you mean {nearest}?")
        elif home is not None:
            self.add("warning", key, f"{place}: {key} has no effect here. Write it as {home}.")
        else:
            self.add("note", key, f"{place}: {key} is no setting of this program; it is kept and has no effect.")

    def _place(self, line: int) -> str:
        return f"{self._home.config_file}:{line}"

    def settings(self) -> Settings:
        top = {key: value for key, value in self.values.items() if "." not in key}
        for name, struct in SECTIONS.items():
            inner = {key.split(".", 1)[1]: value for key, value in self.values.items() if key.startswith(name + ".")}
            top[name] = struct(**inner)
        return Settings(**top)


def load(home: Home, environ: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None) -> Loaded:
    """Read the settings of `home`. `flags` are dotted keys from the command line.

    A value that cannot be used does not raise here: it becomes a problem, so that `doctor` can show them all; call
    `require` before acting.

    Raises:
        ConfigError: a file cannot be parsed, or a flag is no setting.
        UsageError: a flag's value cannot be used.
    """
    return _load(home, os.environ if environ is None else environ, flags or {}, ())


def _load(home: Home, environ: Mapping[str, str], flags: Mapping[str, Any], heirs: tuple[str, ...]) -> Loaded:
    above, everything = _above(home, environ, (*heirs, home.profile))
    dotenv = read_dotenv(home.env_file)
    own_keys = has_pool(read_text(home.auth_file)) or has_model_keys(dotenv)
    theirs = _variables(above, model_keys=not own_keys) if above is not None and everything else {}
    theirs = {name: value for name, value in theirs.items() if name not in dotenv}
    found = _Collector(home, environ, {**theirs, **dotenv})
    if above is not None:
        found.inherit(above, everything=everything)
    found.environment(dotenv)
    document = read_document(home.config_file)
    if document is not None:
        found.document(document)
    for key, value in flags.items():
        if key not in FIELDS:
            raise ConfigError(_no_setting(key))
        try:
            found.values[key], _ = convert_value(key, value)
        except Misfit as error:
            raise UsageError(f"{key} on the command line: {error}.") from None
        found.sources[key] = "command line"
        found.own.add(key)
        found.problems = [problem for problem in found.problems if problem.key != key]
    found.settle()
    return Loaded(
        home=home,
        settings=found.settings(),
        sources=found.sources,
        problems=tuple(found.problems),
        dotenv={**theirs, **dotenv},
        inherited={name: _whose(above, name) for name in theirs} if above is not None else {},
        pool_home=(above.pool_home or above.home) if above is not None and everything and not own_keys else None,
        values=found.values,
        persona=read_persona(home),
        private=private_paths(home),
    )


def _above(home: Home, environ: Mapping[str, str], heirs: tuple[str, ...]) -> tuple[Loaded | None, bool]:
    """What the profile of `home` builds on, and whether it inherits all of it or the board alone."""
    if home.profile == DEFAULT_PROFILE:
        return None, False
    origin = read_profile(home).inherits
    other = home.of(origin or DEFAULT_PROFILE)
    if origin is not None and (origin in heirs or not other.path.is_dir()):
        why = "which inherits from it in turn" if origin in heirs else f"and {other.path} is missing"
        raise ConfigError(f"{home.profile_file}: it inherits from {origin!r}, {why}. Write another one there.")
    return _load(other, environ, {}, heirs), origin is not None


def _variables(above: Loaded, *, model_keys: bool) -> dict[str, str]:
    settings = above.settings
    named = {entry.key_env for entry in (*settings.providers.values(), *settings.custom_providers)}
    named.update(entry.key_env for entry in settings.fallbacks)
    return passed_variables(above.dotenv, named, model_keys=model_keys)


def _whose(above: Loaded, name: str) -> str:
    return above.inherited.get(name) or above.home.profile


def _no_setting(key: str) -> str:
    """What is wrong with a key that was given outside of any file, and what to write."""
    section, _, name = key.partition(".")
    if section in FIELDS and name:
        return f"there is no setting {key}: {section} is one setting. Give it whole, as {{{section!r}: {{…}}}}."
    if key in SECTIONS:
        some = ", ".join([known for known in FIELDS if known.startswith(f"{key}.")][:3])
        return f"there is no setting {key}: it is a section. Give its settings by their whole names: {some}, …"
    near = get_close_matches(key, FIELDS, 3, 0.6)
    hint = f" Near: {', '.join(near)}." if near else " `hermes config check` and docs/settings.md list them."
    return f"there is no setting {key}.{hint}"
