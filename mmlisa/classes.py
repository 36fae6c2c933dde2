"""Names and colours of classes."""

from collections.abc import Mapping, Sequence
from colorsys import hsv_to_rgb
from typing import Any

Colour = tuple[int, int, int]


class Classes:
    """Names and colours of the classes in a data set's ``metainfo``, where both are optional; of several, the first counts."""

    def __init__(self, meta: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> None:
        meta = (meta[0] if isinstance(meta, list) else meta) or {}
        self.names: Sequence[str] = meta.get("classes") or ()
        palette = meta.get("palette")
        self._palette: Sequence[Sequence[int]] = () if palette is None or isinstance(palette, str) else palette

    def name(self, label: int) -> str:
        return str(self.names[label]) if label < len(self.names) else f"class {label}"

    def colour(self, label: int) -> Colour:
        """Return the colour of the data set's palette, or else one of evenly spread hues."""
        if label < len(self._palette):
            red, green, blue = self._palette[label]
            return int(red), int(green), int(blue)
        red, green, blue = hsv_to_rgb(label * 0.618034 % 1, 0.75, 0.95)
        return round(255 * red), round(255 * green), round(255 * blue)
