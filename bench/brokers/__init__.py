"""Brokers side by side: how each is started, fed and drained. `python -m bench.zeps` compares them."""
