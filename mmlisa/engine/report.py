"""The lines that a finished training prints."""

from collections.abc import Callable
from pathlib import Path

from mmengine.runner import Runner


def report(runner: Runner, config: str, command: Callable[[str], str]) -> None:
    """Print where a finished training wrote its results, and what to type next.

    ``config`` is the config as the user named it. ``command`` returns how to type the tool with a given name.
    """
    if runner.rank != 0:
        return
    info = runner.message_hub.runtime_info
    checkpoint = info.get("best_ckpt") or info.get("last_ckpt")
    lines = [f"\nTrained for {runner.iter} iterations."]
    if checkpoint:
        score = f" (best: {info['best_score']:.4g})" if "best_ckpt" in info else ""
        lines.append(f"  checkpoint  {_shown(checkpoint)}{score}")
    curves, pictures = Path(runner.log_dir) / "curves.png", Path(runner.log_dir) / "vis_data" / "vis_image"
    lines += [f"  curves      {_shown(curves)}"] * curves.is_file()
    lines += [f"  pictures    {_shown(pictures)}/"] * pictures.is_dir()
    lines.append(f"  log         {_shown(runner.log_dir)}/")
    if checkpoint:
        lines += ["Next:", f"  {command('test')} {config} {_shown(checkpoint)}"]
        lines.append(f"  {command('infer')} {config} {_shown(checkpoint)} IMAGE …")
    print("\n".join(lines))


def _shown(path: str | Path) -> str:
    """Return a path relative to the current folder if it is inside it."""
    path = Path(path)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
