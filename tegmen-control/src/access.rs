//! Access control: who may do what.
//!
//! [`policy`] is the file in which an operator says it, and the decision on one request; [`ace`] has the messages in which
//! servers and devices ask for rights.

pub mod ace;
pub mod policy;
