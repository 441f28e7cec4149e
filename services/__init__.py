"""The services of the suite, one package each, on one chassis."""
