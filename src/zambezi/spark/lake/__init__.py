"""Delta tables: Parquet files and a log of commits, on a disk or in an object store, which many programs can read.

Executors write the files, and the driver commits them with the package `deltalake`. No file is ever renamed: readers
see the files that the log names, so a file appears for them at the moment of the commit.
"""
