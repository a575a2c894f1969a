"""Inside a node: a runtime system that schedules task instances on cores, and cores and memory in detail."""
