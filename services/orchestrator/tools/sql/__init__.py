"""Reading the operator's databases: which statements may run, on what, and how their rows are told."""
