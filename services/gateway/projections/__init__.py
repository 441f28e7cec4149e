"""One module per wire: a pure fold `(state, event) -> (state, frames)` over the events of a run."""
