"""Files of a data directory other than logs themselves. Doors: `log_dirs` (LogDirs), `checkpoints`, `upkeep`."""
