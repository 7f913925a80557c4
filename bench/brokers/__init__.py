"""The brokers that `python -m bench.zeps` compares: how to start each, publish to it and subscribe to it."""
