"""Run the approval service alone: `python -m services.approval`."""

from __future__ import annotations

from services.chassis.serve import main

if __name__ == "__main__":
    main("approval")
