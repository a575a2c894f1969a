"""Phases of parallel programs: points chosen by one machine's profile, judged on another, with simulated cores."""
