"""How each kind of agent works: all of them compose the same loop and the same gate."""
