"""Samples of well-known kinds of keys, none of them real, and text that only looks like one.

Samples are put together from pieces, so that whoever scans this repository for keys finds none.
"""

from __future__ import annotations

import base64
from typing import NamedTuple

__all__ = ["KINDS", "NEAR_MISSES", "Sample"]


class Sample(NamedTuple):
    """`text` as it stands in a file or an answer, `secret` the part of it that must be gone everywhere."""

    text: str
    secret: str


def _whole(*pieces: str) -> Sample:
    text = "".join(pieces)
    return Sample(text, text)


def _in(before: str, secret: str, after: str = "") -> Sample:
    return Sample(before + secret + after, secret)


ALNUM = "4eC39HqLyjWDarjtT1zdp7dcR0uV8bXn2QkZ5mWsY6aGfJhTpLxN"
HEX = "0f9e8d7c6b5a49382716f5e4d3c2b1a0"
_PEM = "MIIEowIBAAKCAQEA0Z3VS5JJcds3xfn" + ALNUM

KINDS: dict[str, Sample] = {
    "openai": _whole("sk-", "proj-", ALNUM),
    "openai_old": _whole("sk-", ALNUM[:48]),
    "anthropic": _whole("sk-", "ant-api03-", ALNUM, "-AA"),
    "openrouter": _whole("sk-", "or-v1-", HEX, HEX),
    "groq": _whole("gsk", "_", ALNUM),
    "xai": _whole("xai", "-", ALNUM, ALNUM[:20]),
    "perplexity": _whole("pplx", "-", ALNUM[:48]),
    "nvidia": _whole("nvapi", "-", ALNUM),
    "tavily": _whole("tvly", "-dev-", ALNUM[:32]),
    "github_classic": _whole("gh", "p_", ALNUM[:36]),
    "github_server": _whole("gh", "s_", ALNUM[:36]),
    "github_fine": _whole("github", "_pat_11ABCDEFG0", ALNUM[:8], "_", ALNUM),
    "gitlab": _whole("gl", "pat-", ALNUM[:20]),
    "gitlab_runner": _whole("gl", "rt-", ALNUM[:20]),
    "aws_access": _whole("AK", "IA", "IOSFODNN7EXAMPLE"),
    "aws_session": _whole("AS", "IA", "IOSFODNN7EXAMPLE"),
    "aws_secret": _in("aws_secret_access_key = ", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    "aws_secret_json": _in('"SecretAccessKey": "', "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", '"'),
    "google_api": _whole("AI", "za", "SyA-1234567890abcdefghijklmnopqrstu"),
    "google_oauth": _whole("ya", "29.", ALNUM, "_", ALNUM),
    "google_client": _whole("GOC", "SPX-", ALNUM[:28]),
    "slack_bot": _whole("xo", "xb-123456789012-123456789012-", ALNUM[:24]),
    "slack_app": _whole("xa", "pp-1-A0123456789-1234567890123-", HEX, HEX),
    "slack_webhook": _in("https://hooks.slack.com/services/", "T01234567/B01234567/" + ALNUM[:24]),
    "discord_webhook": _in("https://discord.com/api/webhooks/", "123456789012345678/" + ALNUM + "-" + ALNUM[:15]),
    "stripe": _whole("sk", "_live_", ALNUM[:24]),
    "stripe_restricted": _whole("rk", "_live_", ALNUM[:24]),
    "stripe_webhook": _whole("whsec", "_", ALNUM[:32]),
    "huggingface": _whole("hf", "_", ALNUM[:34]),
    "npm": _whole("npm", "_", ALNUM[:36]),
    "pypi": _whole("pypi", "-AgEIcHlwaS5vcmcC", ALNUM, ALNUM),
    "jwt": _whole("ey", "JhbGciOiJIUzI1NiJ9.", "eyJzdWIiOiIxMjM0NTY3ODkwIn0.", ALNUM[:43]),
    "pem": Sample(f"-----BEGIN RSA PRIVATE KEY-----\n{_PEM}\n{_PEM[::-1]}\n-----END RSA PRIVATE KEY-----", _PEM),
    "pem_ec": Sample(f"-----BEGIN EC PRIVATE KEY-----\n{_PEM}\n-----END EC PRIVATE KEY-----", _PEM),
    "ssh": Sample(
        f"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA{_PEM}\n-----END OPENSSH PRIVATE KEY-----", _PEM
    ),
    "pgp": Sample(f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{_PEM}\n-----END PGP PRIVATE KEY BLOCK-----", _PEM),
    "age": _whole("AGE-SECRET", "-KEY-1", "QQPQZRFR7ZZ0M2K0LN5VNF7XY3J9K2LPQQPQZRFR7ZZ0M2K0LN5VNF7XYZ"),
    "url_password": _in("postgresql://admin:", "s3cr3t-Pa55w0rd!x", "@db.example.org:5432/app"),
    "url_token": _in("https://oauth2:", "tok3n-0123456789", "@git.example.org/a.git"),
    "bearer": _in("Authorization: Bearer ", "abcdefghijklmnop.QRSTUV.1234567890"),
    "basic": _in("Authorization: Basic ", base64.b64encode(b"admin:s3cr3t-Pa55w0rd").decode()),
    "telegram": _in("bot123456789:", "AA" + "HdqTcvCH1vGWJxfSeofSAs0K5PALDsaw8"[:33]),
    "azure_storage": _in("AccountName=x;AccountKey=", ALNUM + ALNUM[:34] + "==", ";EndpointSuffix=core.windows.net"),
    "azure_client": _in("AZURE_CLIENT_SECRET=abc8", "Q~" + ALNUM[:34]),
    "azure_sas": _in("https://x.blob.core.windows.net/c?sv=2022&sig=", ALNUM[:43] + "%3D"),
    "digitalocean": _whole("dop", "_v1_", HEX, HEX),
    "sendgrid": _whole("S", "G.", ALNUM[:22], ".", ALNUM[:43]),
    "twilio_key": _whole("S", "K", HEX),
    "twilio_token": _in("TWILIO_AUTH_TOKEN=", HEX),
    "vault": _whole("hv", "s.", ALNUM[:24]),
    "databricks": _whole("da", "pi", HEX),
    "shopify": _whole("shp", "at_", HEX),
    "grafana": _whole("gl", "sa_", ALNUM[:32], "_0123abcd"),
    "linear": _whole("lin", "_api_", ALNUM[:40]),
    "notion": _whole("nt", "n_", ALNUM[:46]),
}

NEAR_MISSES: tuple[str, ...] = (
    "task-handling-of-many-small-things-1",
    "sk-learn-like-names-are-words-only",
    "the bearer of bad news, the Bearer of that",
    "disk-0123456789abcdef0123456789",
    "a basic authorization for everything we do",
    "-----BEGIN CERTIFICATE-----\nMIIEowIBAAKCAQEA\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIEowIBAAKCAQEA\n-----END PUBLIC KEY-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGeneric0000000000000000000000000000000000 me@host",
    "commit 0f9e8d7c6b5a49382716f5e4d3c2b1a00f9e8d7c of main",
    "sha256:0f9e8d7c6b5a49382716f5e4d3c2b1a00f9e8d7c6b5a49382716f5e4d3c2b1a0",
    "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    "https://example.org:8443/path?q=a@b.example",
    "postgresql://user@db.example.org/app and mailto:someone@example.org",
    "https://user:${PASSWORD}@host.example and https://user:<password>@host and redis://:***@host",
    "https://en.wikipedia.org/wiki/Talk:Something@else",
    "aws_secret_access_key = <your key here>, or os.environ['AWS_SECRET_ACCESS_KEY']",
    "def auth_token(self) -> str: return self.auth_token_of(request)",
    "eyJhbGciOi is how such a token begins",
    "xoxb-tokens are made by Slack",
    "AKIA is a prefix; TRAKIAIOSFODNN7EXAMPLES is none",
    "npm_config_registry_of_the_user_is_long",
    "hf_hub_download_of_a_model_from_the_hub",
    "ghp_short and highp_4eC39HqLyjWDarjtT1zdp7dcR0uV",
    "glpat-short",
    "pypi-AgE is short",
    "SGML.documents.are.old and SG.1.2",
    "SKU0123456789abcdef0123456789abcdef",
    "dapine-woods-0123456789abcdef0123456789",
    "12:AAA and 12345678:AB4eC39HqLyjWDarjtT1zdp7dcR0uV8bXn2",
    "AccountKey=short;",
    "pplx-of-words-only-and-no-number-at-all-in-a-very-long-name",
    "Привет ± 🙂 e\u0301",
    "",
)
