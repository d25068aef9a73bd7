"""The leaderboard: records/ holds what was measured, the tables beside it are generated from that."""
