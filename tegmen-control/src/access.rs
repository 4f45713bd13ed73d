//! Access control: who may do what.
//!
//! [`policy`] is the file in which an operator says it, and the decision on one request.

pub mod policy;
