//! Control plane of Tegmen, without input and output: functions take values and the clock, and return answers.
//!
//! [`access`] decides on rights: a [policy](access::policy) in one file.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod access;
