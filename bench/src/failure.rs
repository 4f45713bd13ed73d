//! Makes a failure from the error of any library.

use std::fmt::Debug;
use tegmen_bench_line::Failure;

/// Makes a failure with the debug text of `error`.
pub(crate) fn failure(error: impl Debug) -> Failure {
    Failure::new(format!("{error:?}"))
}
