//! Control plane of Tegmen, as far as it needs no input and no output: values go in, answers come out, and the clock is an
//! argument.
//!
//! [`access`] decides who may do what: a [policy](access::policy) in one file.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod access;
