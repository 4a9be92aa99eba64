"""The rule: versioned encodings between the program and the outside, and nothing that decides."""
