"""Readers of the messages of Ruby daemons.

    values    the plain values that the readers return, and their bounds
    marshal   Ruby's Marshal format
    yaml      the part of YAML that Ruby writes
    envelope  the messages of MCollective's security plugins

The readers make no objects and check no signatures: they show what a message says, not that it is true.
"""
