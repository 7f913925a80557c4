"""The client of a broker: the rules of publishers and subscribers without sockets, and their connections.

Programs use `zambezi.zeps.asyncio` or `zambezi.zeps.sync`.
"""
