"""The reader's own corrections of series, from their ~/.logoptin."""

from logshipper import optin
from logshipper.classify.series.key_rules import KeyRules
from logshipper.config import parse
from logshipper.errors import ConfigError


def own_key_rules() -> KeyRules:
    """Return the rules of `ignore` and `rename`. Raises ConfigError for a refused file."""
    state, content = optin.read(optin.path())
    if state == optin.REFUSED:
        raise ConfigError("~/.logoptin", [content.decode("utf-8", "replace")])
    config = parse(content, "~/.logoptin")
    return KeyRules(config.ignore, config.rename)
