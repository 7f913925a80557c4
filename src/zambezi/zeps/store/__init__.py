"""Streams in an object store: a log of chunks that many brokers can read, and one at a time can write.

The rules are engines without I/O: `takeover` (who owns a stream), `stream_log` (the owner's writes), `merging`
(segments and retention), `reader` (reading without a broker). docs/decisions/0010-store.md has the reasons.
"""
