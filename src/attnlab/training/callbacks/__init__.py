"""Lightning callbacks: checkpoints, outputs, progress, reproducibility and checks."""
