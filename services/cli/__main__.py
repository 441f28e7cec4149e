"""`proctor`, or `python -m services.cli`."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape

from services.cli.app import app
from services.cli.gateway import GatewayError


def main() -> None:
    """Run the command line; what the gateway refuses is one sentence and exit code 1."""
    try:
        app()
    except GatewayError as error:
        Console(stderr=True).print(f"[red]{escape(str(error))}[/]", highlight=False, soft_wrap=True)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output went away, as `| head` does.
        sys.exit(0)


if __name__ == "__main__":
    main()
