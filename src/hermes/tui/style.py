"""How the screens look. Nothing here depends on colour alone: each state has a sign or a word too."""

from __future__ import annotations

__all__ = ["STYLE"]

STYLE = """
Screen { background: $background; }
#transcript { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; background: $background; }
#transcript .said { margin: 1 0 0 0; padding: 0 1; background: $panel; text-style: bold; border-left: thick $primary; }
#transcript .note { color: $text-muted; }
#transcript .fold { color: $text-muted; }
#transcript .fold:focus { background: $panel; text-style: bold; }
#transcript .fold.failed { color: $text-error; }
#transcript .fold.child { color: $foreground; }
#transcript .fold-body { margin: 0 0 1 2; padding: 0 1; border-left: solid $primary 40%; background: $surface; }
#transcript .answer { margin: 1 0 0 0; padding: 0; background: $background; }
#transcript MarkdownH1, #transcript MarkdownH2, #transcript MarkdownH3, #transcript MarkdownH4 {
  content-align: left middle; margin: 0 0 1 0; padding: 0; color: $primary; text-style: bold; }
#transcript MarkdownFence { margin: 0 0 1 0; }
#transcript .fold-body MarkdownParagraph { margin: 0; }
#transcript .panel { margin: 1 0; padding: 0 1; border: round $primary 60%; background: $background; }
#dock { height: auto; padding: 0 1; background: $surface; display: none; }
#ask { height: auto; max-height: 60%; padding: 0 1; background: $panel; border-left: thick $warning; display: none; }
#ask:focus { background: $panel-lighten-2; }
#choices { height: auto; max-height: 8; border: none; background: $surface; display: none; scrollbar-size-vertical: 1; }
#composer { height: auto; max-height: 10; border-top: solid $primary 60%; background: $background; }
#composer .lead { width: 2; height: 1; color: $primary; text-style: bold; }
#prompt { height: auto; max-height: 8; background: $background; border: none; padding: 0; }
#prompt:focus { border: none; }
#status { height: 1; padding: 0 1; background: $surface; color: $text-muted; }
.tiny #composer { border-top: none; }
.tiny #transcript { padding: 0; }
LeaveScreen { align: center middle; background: $background 60%; }
LeaveScreen > Static { width: auto; max-width: 90%; height: auto; max-height: 90%; padding: 1 2; border: round $warning;
  background: $surface; }
"""
