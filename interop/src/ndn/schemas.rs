//! Random trust schemas from a seed, and names that match or nearly match their rules.

use std::collections::BTreeMap;
use tegmen::crypto::{Crypto as _, RustCrypto};

/// Number of random schemas.
pub(super) const SCHEMAS: usize = 200;
/// Number of pairs of names for each schema.
pub(super) const PAIRS: usize = 25;

/// The components from which names are drawn. Schemas and names write a component in the same way.
const VALUES: [&str; 6] = ["a", "b", "KEY", "v=1", "v=2", "32=c"];
const PATTERNS: [&str; 6] = ["x", "y", "z", "_", "_w", "x"];

/// The text of a schema, and pairs of a packet name and a key name.
pub(super) struct Drawn {
    pub(super) text: String,
    pub(super) pairs: Vec<(String, String)>,
}

enum Part {
    Value(&'static str),
    Pattern(&'static str),
    Rule(usize),
}

struct Rule {
    name: Vec<Part>,
    keys: Vec<usize>,
}

struct Draw(RustCrypto);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        let mut bytes = [0; 4];
        self.0.random(&mut bytes);
        u32::from_be_bytes(bytes) as usize % limit.max(1)
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// Makes the rule with the number `before`. Its name may refer to rules with lower numbers, and some of these rules
    /// may sign the packets of this rule.
    fn rule(&mut self, before: usize) -> Rule {
        let mut name = Vec::new();
        for _ in 0..=self.below(3) {
            name.push(match self.below(if before == 0 { 7 } else { 8 }) {
                0..3 => Part::Value(self.of(&VALUES)),
                3..7 => Part::Pattern(self.of(&PATTERNS)),
                _ => Part::Rule(self.below(before)),
            });
        }
        let keys = (0..before).filter(|_| self.below(2) == 0).collect();
        Rule { name, keys }
    }

    /// Makes the right side of a constraint. `known` are the named patterns of the rule.
    fn option(&mut self, known: &[&str], with_functions: bool) -> String {
        let operand = |draw: &mut Self| match draw.below(2) {
            0 if !known.is_empty() => draw.of(known).to_owned(),
            _ => format!("\"{}\"", draw.of(&VALUES)),
        };
        match self.below(if with_functions { 4 } else { 2 }) {
            0 | 1 => operand(self),
            function => {
                let name = if function == 2 { "$eq" } else { "$eq_type" };
                let arguments: Vec<String> = (0..self.below(3)).map(|_| operand(self)).collect();
                format!("{name}({})", arguments.join(", "))
            }
        }
    }

    fn constraints(&mut self, rule: &Rule, with_functions: bool) -> String {
        let patterns: Vec<&str> = rule
            .name
            .iter()
            .filter_map(|part| if let Part::Pattern(name) = part { Some(*name) } else { None })
            .collect();
        if patterns.is_empty() || self.below(2) == 0 {
            return String::new();
        }
        let known: Vec<&str> = patterns.iter().copied().filter(|name| !name.starts_with('_')).collect();
        let mut sets = Vec::new();
        for _ in 0..=self.below(2) {
            let mut terms = Vec::new();
            for _ in 0..=self.below(2) {
                let options: Vec<String> = (0..=self.below(3)).map(|_| self.option(&known, with_functions)).collect();
                terms.push(format!("{}: {}", self.of(&patterns), options.join(" | ")));
            }
            sets.push(format!("{{{}}}", terms.join(", ")));
        }
        format!(" & {}", sets.join(" | "))
    }

    /// Makes the components of a name from the name pattern of a rule. Replaces a few components by random values, and
    /// does not check the constraints of the rule. So not every name matches the rule.
    fn expand(&mut self, rules: &[Rule], rule: usize, bound: &mut BTreeMap<&'static str, &'static str>) -> Vec<String> {
        let mut name = Vec::new();
        for part in &rules[rule].name {
            match part {
                Part::Rule(rule) => name.extend(self.expand(rules, *rule, bound)),
                _ if self.below(20) == 0 => name.push(self.of(&VALUES).to_owned()),
                Part::Value(value) => name.push((*value).to_owned()),
                Part::Pattern(pattern) => {
                    let drawn = self.of(&VALUES);
                    let value = if pattern.starts_with('_') { drawn } else { bound.entry(pattern).or_insert(drawn) };
                    name.push(value.to_owned());
                }
            }
        }
        name
    }
}

impl Drawn {
    pub(super) fn new(seed: u64, with_functions: bool) -> Self {
        let mut key = [u8::from(with_functions); 32];
        key[..8].copy_from_slice(&seed.to_be_bytes());
        let mut draw = Draw(RustCrypto::new(key));
        let count = 2 + draw.below(5);
        let rules: Vec<Rule> = (0..count).map(|place| draw.rule(place)).collect();
        let mut text = String::from("// A drawn schema.\n");
        for (place, rule) in rules.iter().enumerate() {
            let part = |part: &Part| match part {
                Part::Value(value) => format!("\"{value}\""),
                Part::Pattern(name) => (*name).to_owned(),
                Part::Rule(rule) => format!("#r{rule}"),
            };
            let name: Vec<String> = rule.name.iter().map(part).collect();
            let constraints = draw.constraints(rule, with_functions);
            let keys: Vec<String> = rule.keys.iter().map(|key| format!("#r{key}")).collect();
            let keys = if keys.is_empty() { String::new() } else { format!(" <= {}", keys.join(" | ")) };
            text += &format!("#r{place}: {}{constraints}{keys}\n", name.join("/"));
        }
        let mut pairs = Vec::new();
        for _ in 0..PAIRS {
            let packet = draw.below(count);
            let key = if rules[packet].keys.is_empty() { draw.below(count) } else { draw.of(&rules[packet].keys) };
            let mut bound = BTreeMap::new();
            let packet = draw.expand(&rules, packet, &mut bound);
            if draw.below(4) == 0 {
                bound.clear();
            }
            let key = draw.expand(&rules, key, &mut bound);
            pairs.push((format!("/{}", packet.join("/")), format!("/{}", key.join("/"))));
        }
        Self { text, pairs }
    }
}
