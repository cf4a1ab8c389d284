"""Apache Hudi's table format as bytes and values. This part knows nothing of the commit protocol."""
