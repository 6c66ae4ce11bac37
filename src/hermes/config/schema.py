"""Every setting of this release: its name, type, default and meaning.

The one place they are written down; `docs/settings.md`, `hermes config show` and the checks of `config.yaml` are made
from it. Reading files is not done here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from hermes.config.approvals import ApprovalRule, ApprovalSettings
from hermes.config.code_execution import CodeExecutionSettings
from hermes.config.endpoints import ApiMode, Effort, FallbackSettings, ModelOverride, ProviderSettings, RouteSettings
from hermes.config.kanban import KanbanSettings
from hermes.config.notify import NotifySettings
from hermes.config.terminal import TerminalSettings
from hermes.config.unused import KNOWN_UNUSED
from hermes.config.web import WebSettings

__all__ = [
    "FIELDS",
    "KNOWN_UNUSED",
    "SECTIONS",
    "AgentSettings",
    "ApprovalRule",
    "ApprovalSettings",
    "BudgetSettings",
    "CodeExecutionSettings",
    "CompressionSettings",
    "DelegationSettings",
    "DisplaySettings",
    "FallbackSettings",
    "Field",
    "KanbanSettings",
    "ModelOverride",
    "ModelSettings",
    "NotifySettings",
    "ProviderSettings",
    "RouteSettings",
    "RuntimeSettings",
    "Settings",
    "StoreSettings",
    "TerminalSettings",
    "WebSettings",
]

AtLeastOne = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
WholeNotNegative = Annotated[int, Meta(ge=0)]


def _env(*names: str) -> dict[str, Any]:
    return {"env": names}


class _Section(msgspec.Struct, frozen=True, kw_only=True):
    pass


class ModelSettings(_Section, frozen=True, kw_only=True):
    """The model of a conversation. A plain string is its `default`."""

    default: Annotated[
        str, Meta(description="Model to ask, as the endpoint names it.", extra=_env("HERMES_INFERENCE_MODEL"))
    ] = ""
    provider: Annotated[
        str,
        Meta(description="A provider (`hermes model providers`); empty: by the key in use."),
    ] = ""
    base_url: Annotated[str, Meta(description="Address of a server of your own.")] = ""
    api_mode: Annotated[
        ApiMode,
        Meta(
            description="Wire format: `chat_completions`, `anthropic_messages`, `codex_responses` (OpenAI Responses); "
            "empty: by the provider and the address."
        ),
    ] = ""
    api_key: Annotated[
        str, Meta(description="Key for `model.base_url`; better kept in `.env` and named here as `${NAME}`.")
    ] = ""
    aliases: Annotated[dict[str, str], Meta(description="Short names for models.")] = {}
    context_length: Annotated[int | None, Meta(description="Context window in tokens; null: by the model's name.")] = (
        None
    )
    tool_calling: Annotated[
        Literal["", "native", "schema"],
        Meta(description="`schema` for an endpoint without tool calls of its own; empty: by the model."),
    ] = ""


class AgentSettings(_Section, frozen=True, kw_only=True):
    """The loop of a conversation."""

    max_turns: Annotated[
        int | None,
        Meta(description="Model calls a task may make; `none`, `unlimited`, `inf`, 0, -1 and null mean unlimited."),
    ] = 90
    context_file_chars: Annotated[
        int,
        Meta(
            description="Characters of the project's `.hermes.md`, `AGENTS.md` or `CLAUDE.md` that are read; 0: none.",
            ge=0,
        ),
    ] = 20_000
    api_max_retries: Annotated[int, Meta(description="Attempts at a model call; 1: none after a failure.", ge=1)] = 3
    clarify_timeout: Annotated[
        Positive, Meta(description="Seconds that a question of the model waits for its person before it goes on alone.")
    ] = 3600
    reasoning_effort: Annotated[
        Effort, Meta(description="How much the model should think; `none` turns thinking off; empty: the model's own.")
    ] = ""
    run_budget_seconds: Annotated[
        Positive | None, Meta(description="Running time of a one-shot run in seconds; a notice at 80 %.")
    ] = None
    disabled_toolsets: Annotated[
        tuple[str, ...], Meta(description="Toolsets that are always off, whatever else says.")
    ] = ()


class DelegationSettings(_Section, frozen=True, kw_only=True):
    """Children of a task."""

    model: Annotated[str, Meta(description="Model of children; empty: the parent's.")] = ""
    provider: Annotated[str, Meta(description="Provider of children; empty: the parent's.")] = ""
    base_url: Annotated[str, Meta(description="Address for children; wins over `delegation.provider`.")] = ""
    api_key: Annotated[str, Meta(description="Key for `delegation.base_url`; better as `${NAME}`.")] = ""
    api_mode: Annotated[ApiMode, Meta(description="As `model.api_mode`, for children's own server.")] = ""
    reasoning_effort: Annotated[Effort, Meta(description="As `agent.reasoning_effort`; empty: the parent's.")] = ""
    request_overrides: Annotated[
        dict[str, Any], Meta(description="Further fields of every request of children, as the server knows them.")
    ] = {}
    routes: Annotated[
        dict[str, RouteSettings],
        Meta(
            description="Models that an agent may give its children by name: `{model, provider, base_url, api_key, "
            "api_mode, reasoning_effort, request_overrides, description}`."
        ),
    ] = {}
    max_iterations: Annotated[
        int | None, Meta(description="Model calls of one child; the words of `agent.max_turns` mean unlimited.")
    ] = 50
    max_concurrent_children: Annotated[
        int,
        Meta(
            description="Running direct children of one parent, waited for and background together; more are queued.",
            extra=_env("DELEGATION_MAX_CONCURRENT_CHILDREN"),
        ),
    ] = 10
    max_async_children: Annotated[
        int | None,
        Meta(
            description="Older name of the former; where both are set the larger counts.",
            extra=_env("DELEGATION_MAX_ASYNC_CHILDREN"),
        ),
    ] = None
    max_live_children: Annotated[
        AtLeastOne | None,
        Meta(
            description="Children of a session that have not ended; more are refused. "
            "Null: the larger of 200 and 4 times the children at once.",
        ),
    ] = None
    max_spawn_depth: Annotated[int, Meta(description="Levels of children; 1: children have none of their own.")] = 1
    orchestrator_enabled: Annotated[bool, Meta(description="False: every child is a leaf, whatever was asked.")] = True
    child_timeout_seconds: Annotated[
        float | None,
        Meta(
            description="Running time of one child in seconds, at least 30; null and 0: no limit.",
            extra=_env("DELEGATION_CHILD_TIMEOUT_SECONDS"),
        ),
    ] = None
    inactivity_seconds: Annotated[
        Positive | None,
        Meta(description="Seconds a child may go without a step (a reply, a call, output of a call); null: no limit."),
    ] = None
    subagent_auto_approve: Annotated[
        bool, Meta(description="True: dangerous commands of children run without a question, with a warning.")
    ] = False
    independent_completions: Annotated[bool, Meta(description="True: children of one call report singly.")] = False
    default_toolsets: Annotated[
        tuple[str, ...] | None, Meta(description="The most that children may use; null: what the parent has.")
    ] = None
    recover: Annotated[
        Literal["", "ask", "auto", "never"],
        Meta(
            description="What happens with the unfinished tasks of a conversation that is reopened: `auto` goes on, "
            "`never` stops them with what they have; empty: `ask` at a terminal, else `auto`."
        ),
    ] = ""
    worktree_isolation: Annotated[
        bool,
        Meta(description="Each child works in a git worktree of its own, where its call does not say otherwise."),
    ] = False

    @property
    def children_at_once(self) -> int:
        """Running direct children of one parent."""
        return max(self.max_concurrent_children, self.max_async_children or 0)

    @property
    def live_children(self) -> int:
        """Children of a session that have not ended."""
        return self.max_live_children or max(200, 4 * self.children_at_once)


class RuntimeSettings(_Section, frozen=True, kw_only=True):
    """The whole process."""

    max_running: Annotated[
        AtLeastOne | None, Meta(description="Running tasks of the process; null: by memory and file descriptors.")
    ] = None
    on_hangup: Annotated[
        Literal["detach", "stop"],
        Meta(
            description="What happens with running work when its terminal is lost: `detach` lets it go on in the "
            "background, `stop` leaves it resumable."
        ),
    ] = "detach"
    handover_wait_seconds: Annotated[
        NotNegative,
        Meta(
            description="How long commands that run may take to end when their work goes to another process (/detach, "
            "a lost terminal, attach). One that is not over by then is ended, and its effect is unknown."
        ),
    ] = 10.0


class BudgetSettings(_Section, frozen=True, kw_only=True):
    """What a session and everything under it may spend together. Batch runs are not limited by it."""

    session_usd: Annotated[
        NotNegative | None,
        Meta(
            description="US dollars; 0: no limit. "
            "Null: 5 for a single request with its children, none for a conversation.",
        ),
    ] = None
    session_tokens: Annotated[
        WholeNotNegative | None, Meta(description="Tokens, prompts and replies together; null and 0: no limit.")
    ] = None


class StoreSettings(_Section, frozen=True, kw_only=True):
    """The journal."""

    durability: Annotated[
        Literal["process", "power"],
        Meta(description="What a committed step survives: the process being killed, or the power failing (slower)."),
    ] = "process"
    keep_days: Annotated[
        AtLeastOne | None,
        Meta(
            description="Days that a session stays after its last use; unfinished work and results nobody saw stay "
            "longer. `unlimited`, 0 and null: for ever."
        ),
    ] = 30
    transcript_days: Annotated[
        int, Meta(description="Days that live transcripts of tasks stay; 0: none are written.", ge=0)
    ] = 7


class DisplaySettings(_Section, frozen=True, kw_only=True):
    """The terminal."""

    busy_input_mode: Annotated[
        Literal["interrupt", "queue", "steer"], Meta(description="What a line typed while the model works does.")
    ] = "queue"
    tool_progress: Annotated[
        Literal["off", "new", "all", "verbose"], Meta(description="How much of the tool calls is shown.")
    ] = "all"
    interface: Annotated[
        Literal["", "cli", "tui"],
        Meta(description="How a conversation is shown: line by line, on the full screen, or what the terminal can do."),
    ] = ""
    bell_on_complete: Annotated[bool, Meta(description="Ring the terminal's bell when an answer is complete.")] = False
    bell_on_question: Annotated[bool, Meta(description="Ring the terminal's bell when a task asks something.")] = False
    terminal_title: Annotated[
        bool, Meta(description="Say in the terminal's title whether the full screen works, is done or needs you.")
    ] = True


class CompressionSettings(_Section, frozen=True, kw_only=True):
    """Long conversations."""

    enabled: Annotated[bool, Meta(description="Summarise the older part of a long conversation.")] = True
    threshold: Annotated[float, Meta(description="Share of the context window at which that happens.", gt=0, le=1)] = (
        0.5
    )
    protect_last_n: Annotated[int, Meta(description="Newest entries that stay as they are.", ge=0)] = 20


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set, with its default."""

    model: ModelSettings = ModelSettings()
    providers: Annotated[
        dict[str, ProviderSettings],
        Meta(description="Endpoints of your own by name: `{base_url, api_key, key_env, model, api_mode}`."),
    ] = {}
    custom_providers: Annotated[
        tuple[ProviderSettings, ...], Meta(description="The same as a list, each with a `name`.")
    ] = ()
    models: Annotated[
        dict[str, ModelOverride],
        Meta(
            description="What you know better of a model: `{context_length, max_output, price_input, price_output, "
            "price_cached, price_cache_write, thinking, images, tool_calling, api_mode}`."
        ),
    ] = {}
    fallback_providers: Annotated[
        tuple[FallbackSettings, ...],
        Meta(
            description="Models that answer where the configured one cannot, in their order, for that one request: "
            "`{provider, model, base_url, key_env, context_length}`."
        ),
    ] = ()
    fallback_model: Annotated[
        FallbackSettings | None, Meta(description="Older form with a single model; `fallback_providers` wins.")
    ] = None
    credential_pool_strategies: Annotated[
        dict[str, str],
        Meta(
            description="Which of several keys is taken, by provider: `fill_first` (also for any other word), "
            "`round_robin`, `least_used`, `random`."
        ),
    ] = {}
    toolsets: Annotated[
        tuple[str, ...], Meta(description="Toolsets added to the default ones where a platform has no list of its own.")
    ] = ("hermes-cli",)
    platform_toolsets: Annotated[
        dict[str, tuple[str, ...]], Meta(description="Toolsets of a platform (`cli`), written by `hermes tools`.")
    ] = {}
    agent: AgentSettings = AgentSettings()
    terminal: TerminalSettings = TerminalSettings()
    delegation: DelegationSettings = DelegationSettings()
    runtime: RuntimeSettings = RuntimeSettings()
    budget: BudgetSettings = BudgetSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    store: StoreSettings = StoreSettings()
    notify: NotifySettings = NotifySettings()
    kanban: KanbanSettings = KanbanSettings()
    web: WebSettings = WebSettings()
    code_execution: CodeExecutionSettings = CodeExecutionSettings()
    display: DisplaySettings = DisplaySettings()
    compression: CompressionSettings = CompressionSettings()

    @property
    def fallbacks(self) -> tuple[FallbackSettings, ...]:
        """The models that stand in; an entry without provider (or address) or model is passed over."""
        listed = self.fallback_providers or ((self.fallback_model,) if self.fallback_model is not None else ())
        return tuple(entry for entry in listed if entry.model and (entry.provider or entry.base_url))

    @property
    def endpoints(self) -> dict[str, ProviderSettings]:
        """`providers` and `custom_providers` by name; the former win."""
        return {**{entry.name: entry for entry in self.custom_providers if entry.name}, **self.providers}


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: dotted `key`, its type, default, meaning and the variables that stand in for it."""

    key: str
    type: Any
    default: Any
    description: str
    env: tuple[str, ...] = ()


def _fields() -> tuple[dict[str, Field], dict[str, type[msgspec.Struct]]]:
    found: dict[str, Field] = {}
    sections: dict[str, type[msgspec.Struct]] = {}

    def add(prefix: str, struct: type[msgspec.Struct]) -> None:
        hints = get_type_hints(struct, include_extras=True)
        for info in msgspec.structs.fields(struct):
            hint = hints[info.name]
            if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
                sections[info.name] = hint
                add(info.name + ".", hint)
                continue
            meta = get_args(hint)[-1] if get_origin(hint) is Annotated else Meta()  # the type's own bounds come first
            key = prefix + info.name
            found[key] = Field(
                key=key,
                type=hint,
                default=info.default_factory() if info.default is msgspec.NODEFAULT else info.default,
                description=meta.description or "",
                env=tuple((meta.extra or {}).get("env", ())),
            )

    add("", Settings)
    return found, sections


#: Every setting by dotted key, and the sections by name.
FIELDS, SECTIONS = _fields()
