"""Options for the Java processes of tests."""

# Java starts faster with one compiler and one thread for garbage collection, and most test processes live for seconds.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
