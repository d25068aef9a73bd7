"""Leaderboards: rows read from records, compared with one another, written as tables, and checked against the code."""
