"""The papers' tables as data: one module per paper, see :mod:`research.paper_tables`."""
