"""The command line of Zambezi as a file for `spark-submit`, to run a pipeline on a cluster. See docs/clusters.md."""

from zambezi.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
