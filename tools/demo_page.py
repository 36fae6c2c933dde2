"""Open a page in the browser that shows predictions of trained models on pictures: ``python tools/demo_page.py``."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument(
        "--work-dirs", type=Path, default="work_dirs", help="folder of trainings (default: %(default)s)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 serves other machines, too (default: %(default)s)")
    parser.add_argument("--port", type=int, help="port of the page (default: the first free one from 7860)")
    parser.add_argument("--no-browser", action="store_true", help="print the address without opening a browser")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from mmlisa.training.log import import_quietly

    if not args.verbose:
        import_quietly()
    from gradio_app import build_page

    page = build_page(args.work_dirs)
    options = dict(inbrowser=not args.no_browser, footer_links=[], quiet=True, prevent_thread_lock=True)
    _, address, _ = page.launch(server_name=args.host, server_port=args.port, **options)
    print(f"{address} (Ctrl-C ends it)", flush=True)
    page.block_thread()


if __name__ == "__main__":
    cli.run(main, parse_args())
