"""Keys: where they are looked for, which server they belong to, and which of them is used."""

from hermes.credentials.auth_file import PoolEntry, read_auth_file
from hermes.credentials.keys import Key, find_keys, is_local, known_secrets, mask
from hermes.credentials.sources import (
    EMBEDDED,
    Endpoint,
    EndpointFlags,
    MissingKey,
    NotConfigured,
    find_child_endpoint,
    find_endpoint,
    is_embedded,
    settings_secrets,
)

__all__ = [
    "EMBEDDED",
    "Endpoint",
    "EndpointFlags",
    "Key",
    "MissingKey",
    "NotConfigured",
    "PoolEntry",
    "find_child_endpoint",
    "find_endpoint",
    "find_keys",
    "is_embedded",
    "is_local",
    "known_secrets",
    "mask",
    "read_auth_file",
    "settings_secrets",
]
