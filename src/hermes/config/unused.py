"""Settings of other programs that share `config.yaml`. They are only named here."""

from __future__ import annotations

__all__ = ["KNOWN_UNUSED"]

_UNUSED = """
    provider base_url api_key api_mode
    custom_toolsets mcp_servers prefill_messages_file auxiliary goals personalities skills memory gateway hooks
    browser voice tts stt security logging checkpoints session_reset privacy cron updates
    model.streaming model.max_tokens
    agent.budget_warning_ratio agent.gateway_timeout agent.gateway_timeout_warning agent.service_tier
    agent.stall_guards agent.empty_response_guard agent.turn_liveness agent.verbose
    agent.system_prompt agent.personalities
    terminal.singularity_image terminal.modal_image terminal.daytona_image terminal.docker_mount_cwd_to_workspace
    terminal.container_persistent terminal.home_mode
    terminal.persistent_shell terminal.oneshot_completion_wait_seconds terminal.lifetime_seconds
    delegation.inherit_mcp_toolsets web.search_backend web.extract_backend web.use_gateway
    delegation.oneshot_max_children
    kanban.dispatch_in_gateway kanban.notify_in_gateway
    kanban.max_spawn kanban.reconcile_orphans
    kanban.review_dispatch kanban.auto_subscribe_on_create
    kanban.auto_promote_children
    kanban.worker_log_backup_count kanban.done_sub_retention_days
    compression.summary_model compression.target_ratio compression.protect_first_n
"""

#: Settings of other programs that share `config.yaml`: kept, accepted and without effect here.
KNOWN_UNUSED: frozenset[str] = frozenset(_UNUSED.split())
