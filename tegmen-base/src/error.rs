//! The texts of the errors of buffers.

use crate::buf::{Full, Truncated};
use core::error::Error;
use core::fmt::{self, Display, Formatter};

impl Display for Truncated {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("the input ends before the value does")
    }
}

impl Error for Truncated {}

impl Display for Full {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("the value does not fit the output")
    }
}

impl Error for Full {}
