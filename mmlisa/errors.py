"""The error that a command reports in one line."""


class UserError(ValueError):
    """A mistake in the arguments, the config or the files. The message names the value and the remedy."""
