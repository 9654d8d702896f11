"""Models: who answers. One file per implementation of `agent.models.base.Model`."""
