"""What a model reads: counting tokens, fitting a window, summarising what no longer fits, files as parts."""
