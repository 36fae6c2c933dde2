"""The error of operators that exist only in compiled form."""


def missing_operator(name: str) -> NotImplementedError:
    """Return an error that names the operator and the command that compiles it."""
    from mmlisa.check_env import build_mmcv_command

    return NotImplementedError(
        f"the operator {name!r} needs mmcv's compiled operators, and this mmcv was installed without them. "
        f"To compile them, run: {build_mmcv_command()}"
    )
