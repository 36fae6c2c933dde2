"""The error for a file or an image that cannot be used."""


class InputError(ValueError):
    """A mistake in the file, the image or an option. The message names the value and the remedy."""
