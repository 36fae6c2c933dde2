"""Where mmcv has compiled operators, these tests would be of them."""

from mmlisa.mmcv_ops import find_compiled

collect_ignore = ["test_expected.py", "test_families.py", "test_formulas.py"] if find_compiled() else []
