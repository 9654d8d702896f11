"""What is asked of a model: the task schema, its registry and the suites. The lowest floor; imports no other."""
