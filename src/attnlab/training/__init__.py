"""The LightningModule, checkpoints, schedules, loggers, training curves and callbacks."""
