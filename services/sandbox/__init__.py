"""The sandbox service: runs code that nobody trusts, in an isolated process, or not at all."""
