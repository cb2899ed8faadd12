"""The cluster's metadata as one broker knows it."""
