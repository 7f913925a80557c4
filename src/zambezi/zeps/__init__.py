"""ZEPS: streams of messages that are journalled, replayed from any point, and then followed live."""
