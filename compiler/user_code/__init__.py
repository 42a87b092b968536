"""Code and data of the user that a recipe names: looked for, called, drawn as streams; faults are told as theirs."""
