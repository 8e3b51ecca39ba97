"""The lake: Parquet files listed in a Delta log, written by the archive job and read by the replay job."""
