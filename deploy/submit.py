"""What `spark-submit` is given to run a pipeline on a cluster: the command line, as a file. See docs/clusters.md."""

from zambezi.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
