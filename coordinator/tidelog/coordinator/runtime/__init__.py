"""The coordinator's shells: metadata log on disk, image feed."""
