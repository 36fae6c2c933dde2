"""The commands of ``mmlisa``: a module each, with ``parser()`` and ``main(args)``."""
