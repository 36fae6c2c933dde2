"""``python -m mmlisa`` is the command ``mmlisa``."""

from mmlisa.cli import main

main()
