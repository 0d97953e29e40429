"""A tool, not tests of behaviour: the documentation is generated and compared with the program, with its pictures."""
