"""`python -m services.orchestrator`: serve this service alone."""

from services.chassis.serve import main

if __name__ == "__main__":
    main("orchestrator")
