"""Language models behind one port, and everything that is wrapped around it."""
