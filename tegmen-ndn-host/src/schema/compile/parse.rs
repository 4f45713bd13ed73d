//! The grammar of Light VerSec.

use super::{TextError, wrong};
use crate::client::name_bytes;
use tegmen_ndn::Name;

/// The functions of constraints.
const FUNCTIONS: [&str; 2] = ["$eq", "$eq_type"];

/// A component in the name of a rule.
pub(super) enum Part {
    Value(Vec<u8>),
    Pattern(String),
    Rule(String),
}

/// The right side of a constraint, or an argument.
pub(super) enum Item {
    Value(Vec<u8>),
    Pattern(String),
    Call(String, Vec<Item>),
}

/// A rule as it is in the text, with the names of patterns.
pub(super) struct Rule {
    pub(super) id: String,
    pub(super) line: usize,
    pub(super) name: Vec<Part>,
    /// Alternative sets of constraints: all constraints of at least one set must be fulfilled. The values of a
    /// constraint are the number of its line in the text, the name of its pattern, and its options.
    pub(super) constraints: Vec<Vec<(usize, String, Vec<Item>)>>,
    /// References to other rules, which match the names of keys. These keys may sign packets whose names match this
    /// rule. Each reference consists of the number of its line in the text, and the name of the other rule.
    pub(super) keys: Vec<(usize, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'t> {
    /// `#name`
    Rule(&'t str),
    /// `name`
    Pattern(&'t str),
    /// `$name`
    Function(&'t str),
    /// `"text"`, without the quotes.
    Text(&'t str),
    Mark(&'t str),
}

/// Returns the length of the name at the front of `text`.
fn identifier(text: &str) -> usize {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return 0;
    }
    text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(text.len())
}

/// Returns the length of the text after an opening quote; `None` if the line has no closing quote. A quote that a
/// backslash escapes does not close the text.
fn quoted(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (place, letter) in text.char_indices() {
        match letter {
            '\n' => return None,
            '"' if !is_escaped => return Some(place),
            _ => is_escaped = letter == '\\' && !is_escaped,
        }
    }
    None
}

fn tokens(text: &str) -> Result<Vec<(usize, Token<'_>)>, TextError> {
    let (mut tokens, mut rest, mut line) = (Vec::new(), text, 1);
    while let Some(first) = rest.chars().next() {
        let (token, len) = match first {
            ' ' | '\t' | '\r' | '\n' | '\x0c' => (None, 1),
            '/' if rest.starts_with("//") => (None, rest.find('\n').unwrap_or(rest.len())),
            '"' => {
                let inside = rest.get(1..).unwrap_or_default();
                let len = quoted(inside).ok_or_else(|| wrong(line, "the text has no quote at its end"))?;
                (Some(Token::Text(inside.get(..len).unwrap_or_default())), len + 2)
            }
            '#' | '$' => {
                let len = 1 + identifier(rest.get(1..).unwrap_or_default());
                let name = rest.get(..len).filter(|name| name.len() > 1);
                let name = name.ok_or_else(|| wrong(line, format!("a name does not follow {first}")))?;
                (Some(if first == '#' { Token::Rule(name) } else { Token::Function(name) }), len)
            }
            _ if rest.starts_with("<=") => (rest.get(..2).map(Token::Mark), 2),
            ':' | '/' | '&' | '|' | '{' | '}' | ',' | '(' | ')' => (rest.get(..1).map(Token::Mark), 1),
            _ => {
                let len = identifier(rest);
                let name = rest.get(..len).filter(|name| !name.is_empty());
                (Some(Token::Pattern(name.ok_or_else(|| wrong(line, format!("{first} is not expected")))?)), len)
            }
        };
        tokens.extend(token.map(|token| (line, token)));
        let (passed, behind) = rest.split_at_checked(len).unwrap_or((rest, ""));
        line += passed.matches('\n').count();
        rest = behind;
    }
    Ok(tokens)
}

struct Parser<'t> {
    tokens: std::iter::Peekable<std::vec::IntoIter<(usize, Token<'t>)>>,
    line: usize,
}

/// Parses the rules of a text.
pub(super) fn rules(text: &str) -> Result<Vec<Rule>, TextError> {
    let mut parser = Parser { tokens: tokens(text)?.into_iter().peekable(), line: 1 };
    let mut rules = Vec::new();
    while parser.tokens.peek().is_some() {
        rules.push(parser.rule()?);
    }
    if rules.is_empty() { Err(wrong(1, "it has no rule, as #sensor: \"house\"/sensor <= #key")) } else { Ok(rules) }
}

impl<'t> Parser<'t> {
    fn next(&mut self, wanted: &str) -> Result<Token<'t>, TextError> {
        let (line, token) = self.tokens.next().ok_or_else(|| wrong(self.line, format!("{wanted} is missing")))?;
        self.line = line;
        Ok(token)
    }

    /// Reads the punctuation `mark` if it is the next token. Returns true if it was read.
    fn has(&mut self, mark: &str) -> bool {
        let found = self.tokens.next_if(|(_, token)| *token == Token::Mark(mark));
        self.line = found.map_or(self.line, |(line, _)| line);
        found.is_some()
    }

    fn expect(&mut self, mark: &str) -> Result<(), TextError> {
        if self.next(mark)? == Token::Mark(mark) {
            Ok(())
        } else {
            Err(wrong(self.line, format!("{mark} is expected")))
        }
    }

    fn rule_id(&mut self) -> Result<String, TextError> {
        match self.next("a rule")? {
            Token::Rule(id) => Ok(id.to_owned()),
            _ => Err(wrong(self.line, "a rule, as #sensor, is expected")),
        }
    }

    fn rule(&mut self) -> Result<Rule, TextError> {
        let id = self.rule_id()?;
        let mut rule = Rule { id, line: self.line, name: Vec::new(), constraints: Vec::new(), keys: Vec::new() };
        self.expect(":")?;
        let _at_begin = self.has("/");
        loop {
            rule.name.push(match self.next("a name")? {
                Token::Text(text) => Part::Value(self.value(text)?),
                Token::Pattern(pattern) => Part::Pattern(pattern.to_owned()),
                Token::Rule(id) => Part::Rule(id.to_owned()),
                _ => return Err(wrong(self.line, "a component is expected: \"text\", pattern or #rule")),
            });
            if !self.has("/") {
                break;
            }
        }
        if self.has("&") {
            rule.constraints.push(self.set()?);
            while self.has("|") {
                rule.constraints.push(self.set()?);
            }
        }
        if self.has("<=") {
            let key = self.rule_id()?;
            rule.keys.push((self.line, key));
            while self.has("|") {
                let key = self.rule_id()?;
                rule.keys.push((self.line, key));
            }
        }
        Ok(rule)
    }

    fn set(&mut self) -> Result<Vec<(usize, String, Vec<Item>)>, TextError> {
        self.expect("{")?;
        let mut terms = Vec::new();
        loop {
            let Token::Pattern(pattern) = self.next("a pattern")? else {
                return Err(wrong(self.line, "a pattern is expected, as in {floor: \"1\"}"));
            };
            let line = self.line;
            self.expect(":")?;
            let mut options = vec![self.item(true)?];
            while self.has("|") {
                options.push(self.item(true)?);
            }
            terms.push((line, pattern.to_owned(), options));
            if !self.has(",") {
                break;
            }
        }
        self.expect("}")?;
        Ok(terms)
    }

    fn item(&mut self, may_call: bool) -> Result<Item, TextError> {
        match self.next("a value")? {
            Token::Text(text) => Ok(Item::Value(self.value(text)?)),
            Token::Pattern(pattern) => Ok(Item::Pattern(pattern.to_owned())),
            Token::Function(function) if may_call => {
                if !FUNCTIONS.contains(&function) {
                    return Err(wrong(
                        self.line,
                        format!("the function {function} is not known, only $eq and $eq_type"),
                    ));
                }
                self.expect("(")?;
                let mut arguments = Vec::new();
                while !self.has(")") {
                    if !arguments.is_empty() {
                        self.expect(",")?;
                    }
                    arguments.push(self.item(false)?);
                }
                Ok(Item::Call(function.to_owned(), arguments))
            }
            _ => Err(wrong(self.line, "a value is expected: \"text\", pattern or function")),
        }
    }

    /// Parses a component.
    fn value(&self, text: &str) -> Result<Vec<u8>, TextError> {
        if text.is_empty() {
            return Ok(vec![8, 0]);
        }
        let bytes = name_bytes(&format!("/{text}")).map_err(|error| wrong(self.line, format!("{text}: {error}")))?;
        let is_one = Name::of_checked(&bytes).len() == 1 && !text.contains('/');
        is_one.then_some(bytes).ok_or_else(|| wrong(self.line, format!("{text} is not one component: divide it by /")))
    }
}
