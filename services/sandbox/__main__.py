"""Run the sandbox service alone: `python -m services.sandbox`."""

from __future__ import annotations

from services.chassis.serve import main

if __name__ == "__main__":
    main("sandbox")
