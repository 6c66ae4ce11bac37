"""Writing which model is asked by default, in whichever of its two shapes `model` stands in config.yaml."""

from __future__ import annotations

from hermes.config.edit import set_value
from hermes.config.home import Home
from hermes.config.load import read_document

__all__ = ["store_default_model"]


def store_default_model(home: Home, name: str, provider: str = "") -> None:
    """Write the default model, and the provider where one is named.

    Raises:
        OperatorError: the file cannot be written.
        ConfigError: it is no YAML that can be changed.
    """
    home.prepare(home.run_dir)
    lock = home.run_dir / "config.lock"
    document = read_document(home.config_file)
    current = document.data.get("model") if document is not None else None
    if not isinstance(current, dict) and not provider:
        set_value(home.config_file, ("model",), name, lock=lock)
    elif not isinstance(current, dict):
        set_value(home.config_file, ("model",), {"default": name, "provider": provider}, lock=lock)
    else:
        set_value(home.config_file, ("model", "default"), name, lock=lock)
        if provider:
            set_value(home.config_file, ("model", "provider"), provider, lock=lock)
