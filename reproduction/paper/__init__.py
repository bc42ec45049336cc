"""The paper's tables and figures, ours beside the published, from the results alone."""
