"""Jobs: worker processes, the launchers of sweeps, device slots, clusters and hyper-parameter search."""
