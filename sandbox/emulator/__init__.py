"""The PTX virtual machine on NumPy: the device that needs no GPU."""
