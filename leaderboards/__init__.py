"""Records of the shipped results (records/)."""
