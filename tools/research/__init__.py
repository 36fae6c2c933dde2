"""Benchmarks, comparisons by training and the papers' tables: what mmlisa's documentation measures with. Not in the wheel."""
