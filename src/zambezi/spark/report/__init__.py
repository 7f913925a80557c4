"""A report as one HTML file with charts in SVG. Nothing here needs Spark: charts and pages are made of plain values."""
