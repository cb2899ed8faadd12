"""The controller process: it owns the cluster's metadata log."""
