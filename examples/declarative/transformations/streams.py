"""Streams as declared tables: messages as they come, and what is counted of them."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from zambezi.spark import register
from zambezi.spark.pipelines import Settings, traffic

spark = SparkSession.active()
register(spark)


@dp.table(comment="All messages, each once: Spark keeps how far it has come.")
def messages() -> DataFrame:
    reader = spark.readStream.format("zeps").option("path", spark.conf.get("zambezi.path"))
    return reader.option("streamPattern", "").option("startingSequence", "earliest").load()


@dp.materialized_view(comment="Messages, octets and keys by window and prefix.")
def windows() -> DataFrame:
    settings = Settings(window=10)
    return traffic.windows(traffic.reduce(spark.read.table("messages"), settings), settings)
