//! Trust schemas in the form of Light VerSec models. A model states, for each name, the keys that may sign this name.
//!
//! A model is a tree. Each edge accepts one component of a name. The edge has either a fixed value, or a pattern with
//! constraints, which binds the component to the tag of the pattern. A name matches a node if its components lead from
//! the start node to this node.
//!
//! A node can name other nodes as its key nodes. A key may sign a packet if the name of the packet matches a node, and
//! the name of the key's certificate matches a key node of this node. In this second match, a tag that the packet's
//! name has bound accepts only the same component.
//!
//! The encoding is that of [python-ndn](https://python-ndn.readthedocs.io/en/latest/src/lvs/binary-format.html). The
//! program ndnd can also read it. [`compile`] makes a model from the text of a schema.

mod compile;
mod types;

pub use compile::{MAX_COMPONENTS, TextError, compile};
pub use types::{MAX_NODES, VERSION};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use tegmen_ndn::tlv::{self, Element, Elements, Type};
use tegmen_ndn::{Error, Name};
use types::{
    ARGUMENT, CALL, COMPONENT, CONSTRAINT, FUNCTION, IDENTIFIER, KEY_NODE, MODEL_VERSION, NAMED, NODE, NODE_ID, OPTION,
    PARENT, PATTERN_EDGE, SYMBOL, TAG, VALUE_EDGE,
};

/// The reason why bytes are not a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchemaError {
    /// An element is wrong.
    Element(Error),
    /// The encoding has an unknown version.
    Version(u64),
    /// The model has more than [`MAX_NODES`] nodes.
    TooLarge(usize),
    /// The identifier of the node at this position is not equal to the position, or the start node is missing or has a
    /// parent.
    Node(usize),
    /// An edge of the node with this number is incomplete, or leads to a node that does not exist, to a node with
    /// another parent, or to a node to which another edge also leads.
    Edge(usize),
    /// The node with this number refers to a key node that does not exist.
    Key(usize),
    /// Keys sign each other in a loop.
    Loop,
    /// In the node with this number, an option of a constraint contains none or several of these three: a value, a tag
    /// and a function. Or a value in the node is not one component of a name.
    Option(usize),
    /// The function of a constraint is not known.
    Function(String),
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Element(error) => write!(f, "{error}: compile the schema again"),
            Self::Version(version) => {
                write!(f, "version {version:#x} of the model is not supported, only {VERSION:#x}")
            }
            Self::TooLarge(nodes) => write!(f, "{nodes} nodes are too many: at most {MAX_NODES} are supported"),
            Self::Node(node) => write!(f, "the identifier of node {node} is not its place"),
            Self::Edge(node) => {
                write!(
                    f,
                    "an edge of node {node} leads to no node, or to one with another parent: the model is no tree"
                )
            }
            Self::Key(node) => write!(f, "node {node} is signed by a node that does not exist"),
            Self::Loop => f.write_str("the rules of keys refer to each other in a loop"),
            Self::Option(node) => write!(f, "a constraint of node {node} is malformed"),
            Self::Function(name) => write!(f, "the function {name} is not known, only $eq and $eq_type"),
        }
    }
}

impl std::error::Error for SchemaError {}

impl From<Error> for SchemaError {
    fn from(error: Error) -> Self {
        Self::Element(error)
    }
}

#[derive(Clone, Copy, Debug)]
enum Function {
    /// `$eq`: all arguments are equal to the component.
    Eq,
    /// `$eq_type`: all arguments have the same type as the component.
    EqType,
}

#[derive(Debug)]
struct Argument {
    tag: Option<u64>,
    value: Option<Vec<u8>>,
}

/// An option of a constraint.
#[derive(Debug)]
enum Choice {
    Value(Vec<u8>),
    Tag(u64),
    Call(Function, Vec<Argument>),
}

#[derive(Debug)]
struct Pattern {
    to: usize,
    tag: u64,
    /// The constraints of the pattern. A component must fulfil at least one option of each constraint.
    constraints: Vec<Vec<Choice>>,
}

#[derive(Debug, Default)]
struct Node {
    parent: Option<usize>,
    rules: Vec<String>,
    values: Vec<(Vec<u8>, usize)>,
    patterns: Vec<Pattern>,
    keys: Vec<usize>,
}

/// A trust schema.
#[derive(Debug)]
pub struct Schema {
    nodes: Vec<Node>,
    start: usize,
    /// The number of patterns with a name. Tags up to this number belong to these patterns. Higher tags belong to
    /// patterns without a name, which bind no component.
    named: u64,
    symbols: BTreeMap<u64, String>,
}

/// The components of a name that are bound to tags. The key is the tag.
type Bound<'n> = BTreeMap<u64, &'n [u8]>;

/// A match of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Match {
    /// The names of the rules of the node that the name matches, such as `#sensor`. If this node has no rule, the list
    /// contains only the number of the node, such as `#_3`.
    pub rules: Vec<String>,
    /// The patterns, each with the encoded component that is bound to it.
    pub bound: Vec<(String, Vec<u8>)>,
}

fn number(element: &Element<'_>) -> Result<u64, Error> {
    tlv::integer(element.value, element.kind)
}

fn place(element: &Element<'_>) -> Result<usize, Error> {
    index(element.value, element.kind)
}

fn index(value: &[u8], kind: Type) -> Result<usize, Error> {
    usize::try_from(tlv::integer(value, kind)?).map_err(|_| Error::Length(kind))
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Skips an unknown element if it is not critical. Otherwise returns an error.
const fn unknown(kind: Type) -> Result<(), Error> {
    if kind.is_critical() { Err(Error::Critical(kind)) } else { Ok(()) }
}

impl Schema {
    /// Parses a model.
    ///
    /// # Errors
    /// [`SchemaError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, SchemaError> {
        let (mut version, mut start, mut named) = (None, None, None);
        let mut nodes = Vec::new();
        let mut symbols = BTreeMap::new();
        for element in Elements::of(bytes) {
            let element = element?;
            match element.kind {
                MODEL_VERSION => version = Some(number(&element)?),
                NODE_ID => start = Some(place(&element)?),
                NAMED => named = Some(number(&element)?),
                NODE if nodes.len() < MAX_NODES => nodes.push(parse_node(element.value, nodes.len())?),
                NODE => return Err(SchemaError::TooLarge(nodes.len() + 1)),
                SYMBOL => {
                    let [tag, name] = tlv::fields(element.value, &[TAG, IDENTIFIER])?;
                    let tag = tlv::integer(tag.ok_or(Error::Missing(TAG))?, TAG)?;
                    symbols.insert(tag, text(name.ok_or(Error::Missing(IDENTIFIER))?));
                }
                kind => unknown(kind)?,
            }
        }
        match version.ok_or(Error::Missing(MODEL_VERSION))? {
            VERSION => {}
            other => return Err(SchemaError::Version(other)),
        }
        let (start, named) = (start.ok_or(Error::Missing(NODE_ID))?, named.ok_or(Error::Missing(NAMED))?);
        let schema = Self { nodes, start, named, symbols };
        schema.check()?;
        Ok(schema)
    }

    /// Checks that the model is a tree, and that its keys do not sign each other in a loop.
    fn check(&self) -> Result<(), SchemaError> {
        // A start with a parent could be in a loop.
        if self.nodes.get(self.start).is_none_or(|start| start.parent.is_some()) {
            return Err(SchemaError::Node(self.start));
        }
        let mut reached = BTreeSet::new();
        for (place, node) in self.nodes.iter().enumerate() {
            let values = node.values.iter().map(|(_, to)| *to);
            for to in values.chain(node.patterns.iter().map(|pattern| pattern.to)) {
                let parent = self.nodes.get(to).and_then(|node| node.parent);
                if parent != Some(place) || !reached.insert(to) {
                    return Err(SchemaError::Edge(place));
                }
            }
            if node.keys.iter().any(|key| *key >= self.nodes.len()) {
                return Err(SchemaError::Key(place));
            }
        }
        self.check_loops()
    }

    /// Checks that keys do not sign each other in a loop. Takes each node out of a copy of the tree if no remaining
    /// node names it as a key node. Returns an error if nodes remain at the end, because their keys sign each other in
    /// a loop.
    fn check_loops(&self) -> Result<(), SchemaError> {
        let mut signed = vec![0usize; self.nodes.len()];
        for key in self.nodes.iter().flat_map(|node| &node.keys) {
            if let Some(count) = signed.get_mut(*key) {
                *count += 1;
            }
        }
        let is_free = |(place, count): (usize, &usize)| (*count == 0).then_some(place);
        let mut free: Vec<usize> = signed.iter().enumerate().filter_map(is_free).collect();
        let mut left = self.nodes.len();
        while let Some(node) = free.pop() {
            left -= 1;
            for key in self.nodes.get(node).into_iter().flat_map(|node| &node.keys) {
                if let Some(count) = signed.get_mut(*key) {
                    *count -= 1;
                    if *count == 0 {
                        free.push(*key);
                    }
                }
            }
        }
        if left == 0 { Ok(()) } else { Err(SchemaError::Loop) }
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns false, because a model has a start node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the names of all rules.
    pub fn rules(&self) -> BTreeSet<&str> {
        self.nodes.iter().flat_map(|node| &node.rules).map(String::as_str).collect()
    }

    /// Returns the rules of the roots of trust. The keys of a root of trust may sign other names, but the schema allows
    /// no key to sign the names of the root of trust itself.
    pub fn roots(&self) -> Vec<String> {
        let keys: BTreeSet<usize> = self.nodes.iter().flat_map(|node| node.keys.iter().copied()).collect();
        let roots = keys.into_iter().filter(|key| self.nodes.get(*key).is_some_and(|node| node.keys.is_empty()));
        let names: BTreeSet<String> = roots.flat_map(|root| self.names_of(root)).collect();
        names.into_iter().collect()
    }

    fn names_of(&self, place: usize) -> Vec<String> {
        match self.nodes.get(place) {
            Some(node) if !node.rules.is_empty() => node.rules.clone(),
            _ => vec![format!("#_{place}")],
        }
    }

    /// Returns all matches of a name.
    pub fn matches(&self, name: &Name<'_>) -> Vec<Match> {
        let components = components_of(name);
        let found = self.find(&components, Bound::new());
        let matched = found.into_iter().map(|(place, bound)| Match {
            rules: self.names_of(place),
            bound: bound.into_iter().map(|(tag, value)| (self.symbol_of(tag), value.to_vec())).collect(),
        });
        matched.collect()
    }

    fn symbol_of(&self, tag: u64) -> String {
        self.symbols.get(&tag).cloned().unwrap_or_else(|| tag.to_string())
    }

    /// Returns the rules that match a name.
    pub fn rules_of(&self, name: &Name<'_>) -> BTreeSet<String> {
        self.matches(name).into_iter().flat_map(|found| found.rules).collect()
    }

    /// Returns true if the key of a certificate may sign a packet.
    pub fn allows(&self, packet: &Name<'_>, certificate: &Name<'_>) -> bool {
        let (packet, certificate) = (components_of(packet), components_of(certificate));
        self.find(&packet, Bound::new()).into_iter().any(|(place, bound)| {
            let keys = self.nodes.get(place).map_or(&[][..], |node| &node.keys);
            !keys.is_empty() && self.find(&certificate, bound).iter().any(|(key, _)| keys.contains(key))
        })
    }

    /// Finds the nodes that a name matches. Each node of the tree is reached at most once.
    fn find<'n>(&self, components: &[&'n [u8]], bound: Bound<'n>) -> Vec<(usize, Bound<'n>)> {
        // The empty name matches nothing.
        if components.is_empty() {
            return Vec::new();
        }
        let mut reached = vec![(self.start, bound)];
        for component in components {
            let mut next = Vec::new();
            for (place, bound) in reached {
                let Some(node) = self.nodes.get(place) else { continue };
                // Of equal values the first one counts.
                if let Some((_, to)) = node.values.iter().find(|(value, _)| value == component) {
                    next.push((*to, bound.clone()));
                }
                for pattern in &node.patterns {
                    if let Some(bound) = self.follow(pattern, component, &bound) {
                        next.push((pattern.to, bound));
                    }
                }
            }
            reached = next;
        }
        reached
    }

    /// Follows an edge. If the tag of the edge is bound, the component must be equal to the bound component. If the tag
    /// is not bound, the component must fulfil the constraints, and is then bound to the tag. Returns `None` if the
    /// edge does not accept the component.
    fn follow<'n>(&self, pattern: &Pattern, component: &'n [u8], bound: &Bound<'n>) -> Option<Bound<'n>> {
        if let Some(known) = bound.get(&pattern.tag) {
            return (*known == component).then(|| bound.clone());
        }
        let holds = |options: &Vec<Choice>| options.iter().any(|choice| choice.holds(component, bound));
        if !pattern.constraints.iter().all(holds) {
            return None;
        }
        let mut bound = bound.clone();
        if pattern.tag <= self.named {
            bound.insert(pattern.tag, component);
        }
        Some(bound)
    }
}

impl Choice {
    fn holds(&self, component: &[u8], bound: &Bound<'_>) -> bool {
        match self {
            Self::Value(value) => value == component,
            Self::Tag(tag) => bound.get(tag).is_some_and(|known| *known == component),
            Self::Call(function, arguments) => arguments.iter().all(|argument| {
                let known = argument.tag.and_then(|tag| bound.get(&tag).copied());
                known.or(argument.value.as_deref()).is_some_and(|value| match function {
                    Function::Eq => value == component,
                    Function::EqType => type_of(value) == type_of(component),
                })
            }),
        }
    }
}

fn type_of(component: &[u8]) -> Option<Type> {
    Some(Elements::of(component).next()?.ok()?.kind)
}

/// Returns the encoded components of a name, without an implicit digest at the end.
fn components_of<'n>(name: &Name<'n>) -> Vec<&'n [u8]> {
    let bytes = name.as_bytes();
    let elements: Vec<Element<'n>> = Elements::of(bytes).map_while(Result::ok).collect();
    let elements = match elements.split_last() {
        Some((last, others)) if last.kind == Type::IMPLICIT_DIGEST => others,
        _ => &elements,
    };
    elements.iter().filter_map(|element| bytes.get(element.start..element.end)).collect()
}

fn parse_node(value: &[u8], place_of_node: usize) -> Result<Node, SchemaError> {
    let mut node = Node::default();
    let mut id = None;
    for element in Elements::of(value) {
        let element = element?;
        match element.kind {
            NODE_ID => id = Some(place(&element)?),
            PARENT => node.parent = Some(place(&element)?),
            IDENTIFIER => node.rules.push(text(element.value)),
            VALUE_EDGE => {
                let [to, value] = tlv::fields(element.value, &[NODE_ID, COMPONENT])?;
                let to = index(to.ok_or(SchemaError::Edge(place_of_node))?, NODE_ID)?;
                let value = value.ok_or(SchemaError::Edge(place_of_node))?;
                node.values.push((component(value, place_of_node)?, to));
            }
            PATTERN_EDGE => node.patterns.push(parse_pattern(element.value, place_of_node)?),
            KEY_NODE => node.keys.push(place(&element)?),
            kind => unknown(kind)?,
        }
    }
    if id == Some(place_of_node) { Ok(node) } else { Err(SchemaError::Node(place_of_node)) }
}

/// Reads the value of an element, which must be exactly one component of a name.
fn component(value: &[u8], node: usize) -> Result<Vec<u8>, SchemaError> {
    let is_one = Name::parse(value).is_ok_and(|name| name.len() == 1);
    if is_one { Ok(value.to_vec()) } else { Err(SchemaError::Option(node)) }
}

fn parse_pattern(value: &[u8], node: usize) -> Result<Pattern, SchemaError> {
    let (mut to, mut tag) = (None, None);
    let mut constraints = Vec::new();
    for element in Elements::of(value) {
        let element = element?;
        match element.kind {
            NODE_ID => to = Some(place(&element)?),
            TAG => tag = Some(number(&element)?),
            CONSTRAINT => {
                let mut options = Vec::new();
                for option in Elements::of(element.value) {
                    let option = option?;
                    match option.kind {
                        OPTION => options.push(parse_choice(option.value, node)?),
                        kind => unknown(kind)?,
                    }
                }
                constraints.push(options);
            }
            kind => unknown(kind)?,
        }
    }
    let wrong = SchemaError::Edge(node);
    Ok(Pattern { to: to.ok_or_else(|| wrong.clone())?, tag: tag.ok_or(wrong)?, constraints })
}

fn parse_choice(value: &[u8], node: usize) -> Result<Choice, SchemaError> {
    match tlv::fields(value, &[COMPONENT, TAG, CALL])? {
        [Some(value), None, None] => Ok(Choice::Value(component(value, node)?)),
        [None, Some(tag), None] => Ok(Choice::Tag(tlv::integer(tag, TAG)?)),
        [None, None, Some(call)] => parse_call(call, node),
        _ => Err(SchemaError::Option(node)),
    }
}

fn parse_call(value: &[u8], node: usize) -> Result<Choice, SchemaError> {
    let mut function = None;
    let mut arguments = Vec::new();
    for element in Elements::of(value) {
        let element = element?;
        match element.kind {
            FUNCTION => {
                function = Some(match element.value {
                    b"$eq" => Function::Eq,
                    b"$eq_type" => Function::EqType,
                    _ => return Err(SchemaError::Function(text(element.value))),
                });
            }
            ARGUMENT => {
                let [value, tag] = tlv::fields(element.value, &[COMPONENT, TAG])?;
                let value = value.map(|value| component(value, node)).transpose()?;
                arguments.push(Argument { tag: tag.map(|tag| tlv::integer(tag, TAG)).transpose()?, value });
            }
            kind => unknown(kind)?,
        }
    }
    Ok(Choice::Call(function.ok_or(SchemaError::Option(node))?, arguments))
}
