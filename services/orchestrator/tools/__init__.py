"""Tools that agents may call, behind one port."""
