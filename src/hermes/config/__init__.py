"""Settings: the home folder, `config.yaml`, `.env`, their precedence and how they are edited."""

from hermes.config.home import Home, find_home
from hermes.config.load import Loaded, Problem, load
from hermes.config.schema import Settings

__all__ = ["Home", "Loaded", "Problem", "Settings", "find_home", "load"]
