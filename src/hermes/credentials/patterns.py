"""The forms of well-known kinds of keys, for text that may hold one nobody has told us of.

Each kind is recognised by what its issuer puts in front or around of it; what only looks random is left alone, or every
hash would be replaced. Nothing is read or replaced here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["KINDS", "Kind"]


class Kind(NamedTuple):
    """A well-known kind of key. `anchors` are literal pieces one of which every such key holds, `loose` says that the
    piece may stand apart from the key, by a space or a quote. The pattern is bounded, so that it takes linear time."""

    anchors: tuple[bytes, ...]
    pattern: re.Pattern[str]
    replacement: str
    loose: bool = False


def _kind(label: str, pattern: str, *anchors: str, around: tuple[str, str] = ("", ""), loose: bool = False) -> Kind:
    found = tuple(anchor.encode() for anchor in anchors)
    return Kind(found, re.compile(pattern), f"{around[0]}[redacted:{label}]{around[1]}", loose)


def _alone(start: str) -> str:
    """`start`, of one length, where no word goes on: behind an escape of JSON (`\\n`) a new one begins."""
    return rf"{start}(?:(?<![A-Za-z0-9_]{start})|(?<=\\[nrtbf]{start})|(?<=\\u[0-9a-f]{{4}}{start}))"


#: What stands between the name of a setting and its value: `KEY=v`, `"key": "v"`, `key: 'v'`, escaped once or not.
_IS = r"[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4}"

KINDS = (
    _kind(
        "private_key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----END)[\s\S]){0,16000}"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?",
        "PRIVATE KEY",
        loose=True,
    ),
    _kind(
        "private_key",
        r"PuTTY-User-Key-File-[23]:(?:(?!Private-MAC:)[\s\S]){0,16000}(?:Private-MAC: [0-9a-f]{0,64})?",
        "PuTTY-User-Key-File-",
    ),
    _kind("age_key", r"AGE-SECRET-KEY-1[A-Z0-9]{50,70}", "AGE-SECRET-KEY-1"),
    # OpenAI, Anthropic, OpenRouter, DeepSeek, Stripe and others that begin with sk
    _kind("api_key", _alone("sk[-_]") + r"(?=[A-Za-z_-]{0,300}[0-9])[A-Za-z0-9_-]{16,300}", "sk-", "sk_"),
    _kind("stripe_key", r"rk_(?:live|test)_[A-Za-z0-9]{16,300}", "rk_live_", "rk_test_"),
    _kind("stripe_key", r"whsec_[A-Za-z0-9+/=]{24,100}", "whsec_"),
    # Groq, xAI, Perplexity, NVIDIA
    _kind("api_key", _alone("(?:gsk_|xai-)") + r"(?=[A-Za-z_-]{0,300}[0-9])[A-Za-z0-9_-]{40,200}",
          "gsk_", "xai-"),
    _kind("api_key", r"(?:nvapi|pplx)-(?=[A-Za-z_-]{0,300}[0-9])[A-Za-z0-9_-]{40,200}", "nvapi-", "pplx-"),
    _kind("search_key", r"tvly-(?:[a-z]{3,6}-)?[A-Za-z0-9]{20,64}", "tvly-"),
    _kind(
        "github_token",
        _alone("gh[pousr]_") + r"[A-Za-z0-9]{20,255}",
        "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
    ),
    _kind("github_token", r"github_pat_[A-Za-z0-9_]{20,255}", "github_pat_"),
    _kind("gitlab_token", r"gl(?:pat|dt|rt|ptt|cbt|ft|soat|agent|oas)-[A-Za-z0-9_.-]{18,100}",
          "glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glft-", "glsoat-", "glagent-", "gloas-"),
    _kind("slack_token", r"xox[abeoprs]-[A-Za-z0-9-]{10,250}", "xox"),
    _kind("slack_token", r"xapp-\d-[A-Za-z0-9-]{20,250}", "xapp-"),
    _kind("slack_webhook", r"hooks\.slack\.com/services/[A-Za-z0-9/]{20,100}", "hooks.slack.com/",
          around=("hooks.slack.com/services/", "")),
    _kind("discord_webhook", r"/api/webhooks/\d{15,22}/[A-Za-z0-9_-]{50,100}", "/api/webhooks/",
          around=("/api/webhooks/", "")),
    _kind("aws_key", _alone("A[KS]IA") + r"[A-Z0-9]{16}\b", "AKIA", "ASIA"),
    _kind("aws_secret", rf"(ecret_?[Aa]ccess_?[Kk]ey{_IS})[A-Za-z0-9/+]{{40,200}}",
          "ecret_access_key", "ecretAccessKey", around=(r"\1", ""), loose=True),
    _kind("aws_secret", rf"(ECRET_ACCESS_KEY{_IS})[A-Za-z0-9/+]{{40,200}}",
          "ECRET_ACCESS_KEY", around=(r"\1", ""), loose=True),
    _kind("google_key", r"AIza[A-Za-z0-9_-]{35}", "AIza"),
    _kind("google_token", r"ya29\.[A-Za-z0-9_-]{30,1000}", "ya29."),
    _kind("google_secret", r"GOCSPX-[A-Za-z0-9_-]{28}", "GOCSPX-"),
    _kind("huggingface_token", _alone("hf_") + r"[A-Za-z0-9]{30,100}", "hf_"),
    _kind("npm_token", _alone("npm_") + r"[A-Za-z0-9]{36}\b", "npm_"),
    _kind("pypi_token", r"pypi-AgE[A-Za-z0-9_-]{50,500}", "pypi-AgE"),
    _kind("digitalocean_token", r"do[opr]_v1_[a-f0-9]{64}", "dop_v1_", "doo_v1_", "dor_v1_"),
    _kind("sendgrid_key", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,64}", "SG."),
    _kind("twilio_key", _alone("SK") + r"[0-9a-f]{32}\b", "SK"),
    _kind("auth_token", rf"(uth_?[Tt]oken{_IS})[0-9a-f]{{32}}\b",
          "uth_token", "uthToken", around=(r"\1", ""), loose=True),
    _kind("auth_token", rf"(UTH_TOKEN{_IS})[0-9a-f]{{32}}\b", "UTH_TOKEN", around=(r"\1", ""), loose=True),
    _kind("telegram_token", r":AA(?<=\d{8}:AA)[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])", ":AA", around=(":", "")),
    _kind("azure_key", r"(AccountKey=|SharedAccessKey=)[A-Za-z0-9+/]{40,88}={0,2}",
          "AccountKey=", "SharedAccessKey=", around=(r"\1", "")),
    _kind("azure_secret", r"Q~(?<=[A-Za-z0-9_~.-]{3}\dQ~)[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~.-])", "Q~",
          around=("Q~", "")),
    _kind("azure_sas", r"sig=[A-Za-z0-9%+/]{40,80}(?:%3D|=)", "sig=", around=("sig=", "")),
    _kind("vault_token", r"hv[sbr]\.[A-Za-z0-9_-]{24,300}", "hvs.", "hvb.", "hvr."),
    _kind("databricks_token", _alone("dapi") + r"[0-9a-f]{32}\b", "dapi"),
    _kind("shopify_token", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}", "shpat_", "shpca_", "shppa_", "shpss_"),
    _kind("grafana_token", r"gl(?:sa|c)_[A-Za-z0-9_+/=]{32,300}", "glsa_", "glc_"),
    _kind("linear_key", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,64}", "lin_api_", "lin_oauth_"),
    _kind("notion_token", _alone("ntn_") + r"[A-Za-z0-9]{40,60}", "ntn_"),
    _kind("jwt", r"eyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]{8,4000}", "eyJ"),
    _kind("bearer", r"earer [A-Za-z0-9._~+/=-]{16,4000}", "earer ", around=("earer ", ""), loose=True),
    _kind("basic", rf"(uthorization{_IS}[Bb]asic )[A-Za-z0-9+/=]{{12,400}}",
          "uthorization", around=(r"\1", ""), loose=True),
    _kind("basic", rf"(UTHORIZATION{_IS}[Bb]asic )[A-Za-z0-9+/=]{{12,400}}",
          "UTHORIZATION", around=(r"\1", ""), loose=True),
    _kind("password", r"://([A-Za-z0-9_.%+-]{0,100}:)(?![$<{]|\*\*\*|\[redacted)[^\s/:@\"'<>\\]{3,200}@",
          "@", around=(r"://\1", "@"), loose=True),
)  # fmt: skip
