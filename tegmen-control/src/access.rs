//! Access control: the rights of subjects on the resources of publishers.
//!
//! [`policy`] is the file of an operator's rules, and the decision on one request. [`ace`] has the messages in which
//! servers and devices ask for rights, [`protokey`] the keys of publishers without public-key cryptography, and
//! [`introspection`] the decision on a request for such a key. [`token`] is that on a request for an access token. [`revocation`] is the list of revoked
//! tokens. [`enrolment`] has the one-time keys with which devices register themselves.

pub mod ace;
pub mod enrolment;
pub mod introspection;
pub mod policy;
pub mod protokey;
pub mod revocation;
pub mod token;
