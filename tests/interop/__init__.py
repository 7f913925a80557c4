"""Zambezi against software that others wrote: libzmq, through pyzmq, and octets as old peers send them."""
