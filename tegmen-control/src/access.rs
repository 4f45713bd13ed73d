//! Access control: the rights of subjects on the resources of publishers.
//!
//! [`policy`] reads the file with the rules of an operator, and decides on one request. [`ace`] has the messages with
//! which servers and devices ask for rights. [`protokey`] has the keys of sessions with publishers that use no
//! public-key cryptography. [`introspection`] decides on requests for such session keys, and [`token`] decides on
//! requests for access tokens. [`revocation`] is the list of revoked tokens. [`enrolment`] has the one-time keys with
//! which devices register themselves.

pub mod ace;
pub mod enrolment;
pub mod introspection;
pub mod policy;
pub mod protokey;
pub mod revocation;
pub mod token;
