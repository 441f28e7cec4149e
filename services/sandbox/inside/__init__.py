"""What runs inside the sandbox. Standard library only: it is copied in alone and never imports the suite.

Each import costs every cold start: `dataclasses`, `typing`, `importlib.abc` and `pathlib` together took longer than the
interpreter itself, so they are not used here at run time.
"""
