"""One module per file format. They run in a process of their own (worker), which process.py starts and limits."""
