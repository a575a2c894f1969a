"""Representative intervals of profiles: plans, and how good they are."""
