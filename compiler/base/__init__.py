"""What knows no graph: records of builds, kept results, contents of files, signals, and names that are nearly right."""
