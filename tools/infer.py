"""``mmlisa infer`` where OpenMMLab's users look for it."""

import sys

from mmlisa.cli import main

if __name__ == "__main__":
    main(["infer", *sys.argv[1:]])
