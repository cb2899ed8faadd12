"""Programs over the data source, each with its `Arguments` and `main(spark, arguments)`."""
