"""Conditions on the size of the image under which a recorded graph is the network's: PyTorch's guards of a recording."""

import math
from collections.abc import Collection, Iterable, Iterator
from types import CodeType, SimpleNamespace

import torch

Size = tuple[int, int]  # H, W
# Sides of images. A condition on one side is evaluated at each of them, one on both at all pairs of USUAL ones.
SIDES = range(32, 2017)
USUAL = (32, 33, 48, 64, 65, 96, 129, 160, 224, 256, 320, 384, 427, 512, 640, 800, 1008, 1280, 1333, 1600, 2016)


class Conditions:
    """Conditions of a recording, by the names H and W of the sides of the image.

    Args:
        program: the recording, on multiples of ``divisor``.
        divisor: what the sides of an image are rounded up to before the recorded part.
    """

    def __init__(self, program: torch.export.ExportedProgram, divisor: int = 1) -> None:
        # Without the attribute, nothing is known: PyTorch before 2.9
        guards = [guard for guard in getattr(program, "_guards_code", ()) if "L['image']" in guard]
        self._codes = {_name_sides(guard): compile(guard, "guard", "eval") for guard in guards}
        self._divisor = divisor

    def false_at(self, size: Size) -> set[str]:
        """Return the conditions that do not hold for an image of a size."""
        height, width = (-(-side // self._divisor) * self._divisor for side in size)
        names = dict(L=dict(image=SimpleNamespace(size=lambda: (1, 3, height, width))), math=math, torch=torch)
        return {text for text, code in self._codes.items() if not _holds(code, names)}

    def sizes(self, compared: Iterable[Size]) -> Iterator[tuple[Size, set[str]]]:
        """Yield sizes, small ones first, with the conditions that are false there, but at no earlier and no compared size."""
        seen = set().union(*map(self.false_at, compared))
        square = {(side, side) for side in SIDES}
        other = {(side, 288) for side in SIDES} | {(160, side) for side in SIDES}
        pairs = {(height, width) for height in USUAL for width in USUAL}
        for size in sorted(square | other | pairs, key=math.prod):
            if new := self.false_at(size) - seen:
                seen |= new
                yield size, new


def _holds(code: CodeType, names: dict[str, object]) -> bool:
    try:
        return bool(eval(code, names))
    except (ArithmeticError, ValueError):  # a map without pixels
        return False


def _name_sides(guard: str) -> str:
    return guard.replace("L['image'].size()[2]", "H").replace("L['image'].size()[3]", "W")


def list_conditions(conditions: Collection[str]) -> str:
    """Return the two shortest conditions as text."""
    return ", ".join(sorted(conditions, key=len)[:2])
