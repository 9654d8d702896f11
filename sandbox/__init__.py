"""Where PTX lives and runs: the language (`ptx`), the machines (`emulator`, later `cuda`), and the workers."""
