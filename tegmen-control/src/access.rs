//! Access control: who may do what.
//!
//! [`policy`] is the file of an operator's rules, and the decision on one request. [`ace`] has the messages in which
//! servers and devices ask for rights, [`protokey`] the keys of publishers without public-key cryptography, and
//! [`introspection`] the decision on who gets such a key. [`revocation`] is the list of tokens that count no longer.

pub mod ace;
pub mod introspection;
pub mod policy;
pub mod protokey;
pub mod revocation;
