"""Archives: folders of Parquet files that are added to exactly once, by offset ranges."""
