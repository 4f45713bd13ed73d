//! Makes a failure from any error of a library.

use std::fmt::Debug;
use tegmen_bench_line::Failure;

/// Makes a failure that contains the debug text of `error`.
pub(crate) fn failure(error: impl Debug) -> Failure {
    Failure::new(format!("{error:?}"))
}
