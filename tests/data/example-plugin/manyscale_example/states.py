"""A writer: how long each rank was in each state, as ``states.csv``."""


def write(result, directory):
    """A line for each rank and state: rank, state, seconds."""
    ranks = result.ranks.to_pandas()
    ranks["seconds"] = (ranks["end_ps"] - ranks["start_ps"]) / 1e12
    table = ranks.groupby(["rank", "state"], observed=True)["seconds"].sum()
    table.to_csv(directory / "states.csv", float_format="%.12g")
