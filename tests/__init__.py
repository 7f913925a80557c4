"""The tests: one directory for each package of zambezi, one file for each of its modules."""
