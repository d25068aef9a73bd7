"""Looking closer than a leaderboard: settings over a grid, offsets on scores, prototypes against their oracles."""
