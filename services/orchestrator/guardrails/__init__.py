"""What stands between a run and what others write: frames around it, checks of what comes in and what goes out."""
