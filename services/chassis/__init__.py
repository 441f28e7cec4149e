"""What every service stands on: serving, channels, errors, settings, telemetry, identity. No domain word."""
