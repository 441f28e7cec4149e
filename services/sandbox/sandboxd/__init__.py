"""The supervisor: a process of its own, single-threaded, that starts sandboxes, watches and ends them."""
