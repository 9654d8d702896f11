"""The loop: graph, prompts, models, runner and command line."""
