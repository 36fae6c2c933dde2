"""Skip the tests of our operators where mmcv has compiled ones, which take precedence."""

from mmlisa.mmcv_ops import find_compiled

collect_ignore = ["test_expected.py", "test_formulas.py"] if find_compiled() else []
