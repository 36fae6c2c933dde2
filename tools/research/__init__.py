"""Benchmarks, comparisons by training, and the papers' tables, which mmlisa's documentation reports. Not in the wheel."""
