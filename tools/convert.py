"""``mmlisa convert`` where OpenMMLab's users look for it."""

import sys

from mmlisa.cli import main

if __name__ == "__main__":
    main(["convert", *sys.argv[1:]])
