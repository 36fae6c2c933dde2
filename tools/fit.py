"""``mmlisa fit`` where OpenMMLab's users look for it."""

import sys

from mmlisa.cli import main

if __name__ == "__main__":
    main(["fit", *sys.argv[1:]])
