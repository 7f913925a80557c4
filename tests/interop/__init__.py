"""Zambezi and other software: libzmq, through pyzmq, and the bytes of old peers."""
