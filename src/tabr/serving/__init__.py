"""A fitted model as a service: predictions, explanations and a durable memory."""
