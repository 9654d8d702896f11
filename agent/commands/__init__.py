"""The subcommands of `ptxmend`: one file each, importing what is heavy only when called."""
