"""The LightningModule, checkpoints, schedules, loggers and callbacks."""
