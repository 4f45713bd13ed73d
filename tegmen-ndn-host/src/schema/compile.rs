//! Compiles the text of a Light VerSec schema to a model. The bytes of the model are equal to those that the compiler
//! of python-ndn makes.

mod parse;

use super::types::{
    ARGUMENT, CALL, COMPONENT, CONSTRAINT, FUNCTION, IDENTIFIER, KEY_NODE, MAX_NODES, MODEL_VERSION, NAMED, NODE,
    NODE_ID, OPTION, PARENT, PATTERN_EDGE, SYMBOL, TAG, VALUE_EDGE, VERSION,
};
use crate::management::bytes_of;
use parse::{Item, Part, Rule};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;
use std::rc::Rc;
use tegmen_base::hex::to_hex;
use tegmen_ndn::tlv::{self, Type};

/// Maximum number of components of a name. If the name refers to a rule, the components of that rule's name count too.
pub const MAX_COMPONENTS: usize = 128;

/// A mistake in the text of a schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The mistake.
    pub message: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for TextError {}

fn wrong(line: usize, message: impl Into<String>) -> TextError {
    TextError { line, message: message.into() }
}

/// Compiles the text of a schema to a model.
///
/// # Errors
/// [`TextError`], also if the model has more than [`MAX_NODES`] nodes, or names have more than [`MAX_COMPONENTS`] components.
pub fn compile(text: &str) -> Result<Vec<u8>, TextError> {
    let rules = sort(parse::rules(text)?)?;
    let mut numbers = Numbers::default();
    let rules = rules.into_iter().map(|rule| numbers.number(rule)).collect::<Result<Vec<_>, _>>()?;
    let chains = replicate(&rules)?;
    let mut tree = Tree { next_tag: numbers.named.len() as i64, ..Tree::default() };
    let all: Vec<&Chain> = chains.values().flatten().collect();
    tree.grow(0, &all, None, &BTreeSet::new()).map_err(|TooLarge| wrong(1, format!("more than {MAX_NODES} nodes")))?;
    tree.encode(&numbers, &chains)
}

/// Sorts the rules. In the result each rule is after the rules to which it refers.
fn sort(mut rules: Vec<Rule>) -> Result<Vec<Rule>, TextError> {
    // Each rule whose name begins with an underscore is one of its own.
    let mut count = 0;
    for rule in rules.iter_mut().filter(|rule| rule.id.starts_with("#_")) {
        count += 1;
        rule.id = format!("{}#{count}", rule.id);
    }
    let mut references: BTreeMap<String, usize> = rules.iter().map(|rule| (rule.id.clone(), 0)).collect();
    let mut graph: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for rule in &rules {
        let referred = graph.entry(rule.id.clone()).or_default();
        for part in &rule.name {
            let Part::Rule(id) = part else { continue };
            if id.starts_with("#_") {
                return Err(wrong(rule.line, format!("{id} is of one use: a name cannot refer to it")));
            }
            let count = references.get_mut(id);
            *count.ok_or_else(|| wrong(rule.line, format!("the rule {id} does not exist")))? += 1;
            referred.push(id.clone());
        }
    }
    let mut order: Vec<String> = Vec::new();
    while !references.is_empty() {
        let round: Vec<String> =
            references.iter().filter(|(_, count)| **count == 0).map(|(id, _)| id.clone()).collect();
        if round.is_empty() {
            let line = rules.iter().find(|rule| references.contains_key(&rule.id)).map_or(1, |rule| rule.line);
            return Err(wrong(line, "rules refer to each other in a loop"));
        }
        for id in round {
            references.remove(&id);
            for referred in graph.get(&id).into_iter().flatten() {
                if let Some(count) = references.get_mut(referred) {
                    *count -= 1;
                }
            }
            order.push(id);
        }
    }
    let places: BTreeMap<&String, usize> = order.iter().rev().enumerate().map(|(place, id)| (id, place)).collect();
    rules.sort_by_key(|rule| places.get(&rule.id).copied());
    Ok(rules)
}

/// A component of a name: a value, the number of a pattern, or a reference to a rule. The number of a pattern without a
/// name is negative.
#[derive(Clone)]
enum Step {
    Value(Vec<u8>),
    Pattern(i64),
    Rule(String),
}

/// A constraint of patterns.
struct Term {
    tags: Vec<i64>,
    options: Vec<Choice>,
}

enum Choice {
    Value(Vec<u8>),
    Tag(i64),
    Call(String, Vec<Choice>),
}

struct Numbered {
    id: String,
    line: usize,
    name: Vec<Step>,
    sets: Vec<Vec<Rc<Term>>>,
    keys: Vec<(usize, String)>,
}

/// The numbers of patterns.
#[derive(Default)]
struct Numbers {
    named: BTreeMap<String, i64>,
    nameless: i64,
}

impl Numbers {
    fn number(&mut self, rule: Rule) -> Result<Numbered, TextError> {
        let mut nameless: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        let mut name = Vec::new();
        for part in rule.name {
            name.push(match part {
                Part::Value(value) => Step::Value(value),
                Part::Rule(id) => Step::Rule(id),
                Part::Pattern(pattern) if pattern.starts_with('_') => {
                    self.nameless -= 1;
                    nameless.entry(pattern).or_default().push(self.nameless);
                    Step::Pattern(self.nameless)
                }
                Part::Pattern(pattern) => {
                    let next = self.named.len() as i64 + 1;
                    Step::Pattern(*self.named.entry(pattern).or_insert(next))
                }
            });
        }
        let mut sets = Vec::new();
        for set in rule.constraints {
            let mut terms = Vec::new();
            for (line, pattern, options) in set {
                let tags = match pattern.starts_with('_') {
                    true => nameless.get(&pattern).cloned(),
                    false => self.named.get(&pattern).map(|tag| vec![*tag]),
                };
                let tags = tags.ok_or_else(|| wrong(line, format!("the pattern {pattern} is in no name before")))?;
                let options = options.into_iter().map(|item| self.choice(line, item)).collect::<Result<Vec<_>, _>>()?;
                terms.push(Rc::new(Term { tags, options }));
            }
            sets.push(terms);
        }
        let mut keys = rule.keys;
        keys.sort_by(|one, other| one.1.cmp(&other.1));
        Ok(Numbered { id: rule.id, line: rule.line, name, sets, keys })
    }

    fn choice(&self, line: usize, item: Item) -> Result<Choice, TextError> {
        Ok(match item {
            Item::Value(value) => Choice::Value(value),
            Item::Pattern(pattern) if pattern.starts_with('_') => {
                return Err(wrong(line, format!("{pattern} has no name: a constraint cannot compare with it")));
            }
            Item::Pattern(pattern) => {
                let tag = self.named.get(&pattern).copied();
                Choice::Tag(tag.ok_or_else(|| wrong(line, format!("the pattern {pattern} is in no name before")))?)
            }
            Item::Call(function, arguments) => {
                let arguments = arguments.into_iter().map(|item| self.choice(line, item));
                Choice::Call(function, arguments.collect::<Result<_, _>>()?)
            }
        })
    }
}

/// A rule whose name contains no references to other rules.
struct Chain {
    id: String,
    name: Vec<Step>,
    terms: Vec<Rc<Term>>,
    keys: Vec<(usize, String)>,
}

/// Replaces each reference to a rule by the name of that rule. A rule with several sets of constraints becomes several
/// [`Chain`]s.
fn replicate(rules: &[Numbered]) -> Result<BTreeMap<String, Vec<Chain>>, TextError> {
    let mut all: BTreeMap<String, Vec<Chain>> = BTreeMap::new();
    let mut count = 0;
    for rule in rules {
        let none = [Vec::new()];
        let sets = if rule.sets.is_empty() { &none[..] } else { &rule.sets };
        let new = |name, terms| Chain { id: rule.id.clone(), name, terms, keys: rule.keys.clone() };
        let mut chains: Vec<Chain> = sets.iter().map(|set| new(Vec::new(), set.clone())).collect();
        for step in &rule.name {
            if let Step::Rule(id) = step {
                let referred = all.get(id).map_or(&[][..], Vec::as_slice);
                if chains.len().saturating_mul(referred.len()) > MAX_NODES {
                    return Err(wrong(rule.line, format!("more than {MAX_NODES} combinations of constraints")));
                }
                let both = |chain: &Chain, referred: &Chain| {
                    let terms = [&chain.terms[..], &referred.terms].concat();
                    new([&chain.name[..], &referred.name].concat(), terms)
                };
                chains = referred.iter().flat_map(|one| chains.iter().map(move |chain| both(chain, one))).collect();
            } else {
                chains.iter_mut().for_each(|chain| chain.name.push(step.clone()));
            }
            if chains.iter().any(|chain| chain.name.len() > MAX_COMPONENTS) {
                return Err(wrong(rule.line, format!("a name has more than {MAX_COMPONENTS} components")));
            }
        }
        count += chains.len();
        if count > MAX_NODES {
            return Err(wrong(rule.line, format!("more than {MAX_NODES} combinations of constraints")));
        }
        all.entry(rule.id.clone()).or_default().extend(chains);
    }
    Ok(all)
}

struct TooLarge;

struct Edge<'c> {
    to: usize,
    tag: i64,
    terms: Vec<&'c Term>,
}

#[derive(Default)]
struct Node<'c> {
    parent: Option<usize>,
    rules: Vec<&'c str>,
    keys: Vec<&'c (usize, String)>,
    values: Vec<(Vec<u8>, usize)>,
    patterns: Vec<Edge<'c>>,
}

#[derive(Default)]
struct Tree<'c> {
    nodes: Vec<Node<'c>>,
    /// The highest number that was given to a pattern until now. The next pattern without a name gets the number after
    /// it.
    next_tag: i64,
}

impl<'c> Tree<'c> {
    /// Adds a node to the tree, and all nodes below it. `chains` are the names that begin with the path from the root
    /// to this node, and `depth` is the number of components of this path. Returns the number of the node.
    fn grow(
        &mut self,
        depth: usize,
        chains: &[&'c Chain],
        parent: Option<usize>,
        before: &BTreeSet<i64>,
    ) -> Result<usize, TooLarge> {
        let place = self.nodes.len();
        if place >= MAX_NODES {
            return Err(TooLarge);
        }
        let mut node = Node { parent, ..Node::default() };
        let mut values: BTreeMap<&Vec<u8>, Vec<&'c Chain>> = BTreeMap::new();
        let mut patterns: BTreeMap<String, (Edge<'c>, Vec<&'c Chain>)> = BTreeMap::new();
        for chain in chains {
            match chain.name.get(depth) {
                None => {
                    node.rules.push(&chain.id);
                    node.keys.extend(&chain.keys);
                }
                Some(Step::Value(value)) => values.entry(value).or_default().push(chain),
                Some(Step::Pattern(tag)) => {
                    let terms = chain.terms_of(*tag, before);
                    let key = describe(*tag, &terms);
                    let edge = Edge { to: 0, tag: *tag, terms };
                    patterns.entry(key).or_insert((edge, Vec::new())).1.push(chain);
                }
                Some(Step::Rule(_)) => {}
            }
        }
        self.nodes.push(node);
        for (value, chains) in values {
            let to = self.grow(depth + 1, &chains, Some(place), before)?;
            if let Some(node) = self.nodes.get_mut(place) {
                node.values.push((value.clone(), to));
            }
        }
        for (mut edge, chains) in patterns.into_values() {
            let mut before = before.clone();
            before.insert(edge.tag);
            if edge.tag < 0 {
                self.next_tag += 1;
                edge.tag = self.next_tag;
            }
            edge.to = self.grow(depth + 1, &chains, Some(place), &before)?;
            if let Some(node) = self.nodes.get_mut(place) {
                node.patterns.push(edge);
            }
        }
        Ok(place)
    }

    /// Encodes the model.
    fn encode(&self, numbers: &Numbers, chains: &BTreeMap<String, Vec<Chain>>) -> Result<Vec<u8>, TextError> {
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, node) in self.nodes.iter().enumerate() {
            for rule in &node.rules {
                places.entry(rule).or_default().push(place);
            }
        }
        let mut model = [number(MODEL_VERSION, VERSION), number(NODE_ID, 0)].concat();
        model.extend(number(NAMED, numbers.named.len() as u64));
        for (place, node) in self.nodes.iter().enumerate() {
            let mut keys = Vec::new();
            for (line, key) in &node.keys {
                let found = places.get(key.as_str()).filter(|_| chains.contains_key(key));
                keys.extend(found.ok_or_else(|| wrong(*line, format!("the rule {key} does not exist")))?);
            }
            keys.sort_unstable();
            model.extend(element(NODE, &node.encode(place, &keys)));
        }
        let mut symbols: Vec<(&i64, &String)> = numbers.named.iter().map(|(name, tag)| (tag, name)).collect();
        symbols.sort_unstable();
        for (tag, name) in symbols {
            let symbol = [number(TAG, tag.unsigned_abs()), element(IDENTIFIER, name.as_bytes())].concat();
            model.extend(element(SYMBOL, &symbol));
        }
        Ok(model)
    }
}

impl Chain {
    /// Returns the constraints of a pattern. Returns an empty list if the pattern is in `before`, because only the
    /// first occurrence of a pattern in a name has constraints.
    fn terms_of(&self, tag: i64, before: &BTreeSet<i64>) -> Vec<&Term> {
        let terms = self.terms.iter().filter(|term| term.tags.contains(&tag) && !before.contains(&tag));
        terms.map(AsRef::as_ref).collect()
    }
}

/// Describes an edge as a text. Equal edges have equal texts, and the order of the texts is the order of the edges.
fn describe(tag: i64, terms: &[&Term]) -> String {
    let mut text = format!("{tag}:");
    for term in terms {
        text.push('{');
        for choice in &term.options {
            choice.describe(&mut text);
            text.push(',');
        }
        text.push('}');
    }
    text
}

impl Choice {
    fn describe(&self, text: &mut String) {
        match self {
            Self::Value(value) => {
                let _ = write!(text, "v={}", to_hex(value));
            }
            Self::Tag(tag) => {
                let _ = write!(text, "t={tag}");
            }
            Self::Call(function, arguments) => {
                let _ = write!(text, "{function}(");
                arguments.iter().for_each(|argument| argument.describe(text));
                text.push(')');
            }
        }
    }

    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Value(value) => element(COMPONENT, value),
            Self::Tag(tag) => number(TAG, tag.unsigned_abs()),
            Self::Call(function, arguments) => {
                let mut call = element(FUNCTION, function.as_bytes());
                arguments.iter().for_each(|argument| call.extend(element(ARGUMENT, &argument.encode())));
                element(CALL, &call)
            }
        }
    }
}

impl Node<'_> {
    fn encode(&self, place: usize, keys: &[usize]) -> Vec<u8> {
        let mut node = number(NODE_ID, place as u64);
        if let Some(parent) = self.parent {
            node.extend(number(PARENT, parent as u64));
        }
        self.rules.iter().for_each(|rule| node.extend(element(IDENTIFIER, rule.as_bytes())));
        for (value, to) in &self.values {
            let edge = [number(NODE_ID, *to as u64), element(COMPONENT, value)].concat();
            node.extend(element(VALUE_EDGE, &edge));
        }
        for edge in &self.patterns {
            let mut value = [number(NODE_ID, edge.to as u64), number(TAG, edge.tag.unsigned_abs())].concat();
            for term in &edge.terms {
                let options = term.options.iter().flat_map(|option| element(OPTION, &option.encode()));
                value.extend(element(CONSTRAINT, &options.collect::<Vec<_>>()));
            }
            node.extend(element(PATTERN_EDGE, &value));
        }
        keys.iter().for_each(|key| node.extend(number(KEY_NODE, *key as u64)));
        node
    }
}

fn element(kind: Type, value: &[u8]) -> Vec<u8> {
    bytes_of(value.len() + 12, |out| tlv::write(out, kind, value))
}

fn number(kind: Type, number: u64) -> Vec<u8> {
    bytes_of(16, |out| tlv::write_integer(out, kind, number))
}
