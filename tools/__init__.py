"""What the loop calls: assemble, inspect, check, prove, measure. Verdicts are decided here and nowhere else."""
