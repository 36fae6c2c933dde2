"""``mmlisa check`` where OpenMMLab's users look for it."""

import sys

from mmlisa.cli import main

if __name__ == "__main__":
    main(["check", *sys.argv[1:]])
