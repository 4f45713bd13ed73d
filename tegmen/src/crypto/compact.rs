//! Small ciphers for motes.
