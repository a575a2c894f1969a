"""Hit rates of the caches with their real sets: a machine's hierarchy simulated on a trace."""
