"""`python -m services.gateway`."""

from __future__ import annotations

from services.chassis.serve import main

if __name__ == "__main__":
    main("gateway")
