"""The papers' tables as data: one module per paper, see :mod:`mmlisa.analysis.paper_tables`."""
