"""HTTP routes: each reads a request, makes one call, and renders the answer."""
