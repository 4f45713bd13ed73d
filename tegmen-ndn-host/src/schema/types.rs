//! The types of the elements of an encoded model, and its limits. The comment of each constant describes the element
//! that has this type.

use tegmen_ndn::tlv::Type;

/// The version of the encoding.
pub const VERSION: u64 = 0x0001_1000;

/// Maximum number of nodes of a model. A check of two names takes at most as many steps as the square of this number.
pub const MAX_NODES: usize = 4096;

/// A component of a name.
pub(super) const COMPONENT: Type = Type(0x21);
/// An element with the number of a pattern.
pub(super) const TAG: Type = Type(0x23);
/// An element with the number of a node.
pub(super) const NODE_ID: Type = Type(0x25);
/// An element with the name of a function.
pub(super) const FUNCTION: Type = Type(0x27);
/// An element with the name of a rule or of a pattern.
pub(super) const IDENTIFIER: Type = Type(0x29);
/// A call of a function.
pub(super) const CALL: Type = Type(0x31);
/// An argument of a call.
pub(super) const ARGUMENT: Type = Type(0x33);
/// An option of a constraint.
pub(super) const OPTION: Type = Type(0x41);
/// A constraint.
pub(super) const CONSTRAINT: Type = Type(0x43);
/// An edge for one component.
pub(super) const VALUE_EDGE: Type = Type(0x51);
/// An edge for a pattern.
pub(super) const PATTERN_EDGE: Type = Type(0x53);
/// An element inside a node, with the number of a key node. Keys whose names match the key node may sign packets whose
/// names match the node that contains this element.
pub(super) const KEY_NODE: Type = Type(0x55);
/// An element inside a node, with the number of the parent node.
pub(super) const PARENT: Type = Type(0x57);
/// The version of the encoding.
pub(super) const MODEL_VERSION: Type = Type(0x61);
/// A node.
pub(super) const NODE: Type = Type(0x63);
/// An element with the number and the name of a pattern.
pub(super) const SYMBOL: Type = Type(0x67);
/// An element with the count of patterns that have a name.
pub(super) const NAMED: Type = Type(0x69);
