//! The scopes of a device.

use crate::delegation::MAX_SCOPES;
use tegmen_coap::{Code, Rule};

/// The scopes of a device, each a list of rules such as `GET /temp`. A ticket contains the index of a scope.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Scopes(Vec<Vec<String>>);

impl Scopes {
    /// Reads scopes. Each text has the rules of one scope, separated by commas.
    ///
    /// # Errors
    /// A text that explains how to correct the scopes, if a rule is not valid, or if there are more scopes than a
    /// ticket can name.
    pub fn parse(texts: &[String]) -> Result<Self, String> {
        if texts.len() > MAX_SCOPES {
            return Err(format!("a device has at most {MAX_SCOPES} scopes; this has {}", texts.len()));
        }
        texts.iter().map(|text| Self::rules(text)).collect::<Result<_, _>>().map(Self)
    }

    fn rules(text: &str) -> Result<Vec<String>, String> {
        let rules: Vec<String> = text.split(',').map(|rule| rule.trim().to_owned()).collect();
        match rules.iter().find(|rule| Rule::parse(rule).is_none()) {
            Some(rule) => Err(format!("{} is no rule: a rule is {}", rule.escape_debug(), Rule::EXPECTED)),
            None => Ok(rules),
        }
    }

    /// Returns the number of scopes.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the scope with this index allows this method at the path that consists of these bytes.
    pub(super) fn allows(&self, index: u8, code: Code, path: impl Iterator<Item = u8> + Clone) -> bool {
        let rules = self.0.get(usize::from(index)).into_iter().flatten();
        rules.filter_map(|rule| Rule::parse(rule)).any(|rule| rule.covers(code, path.clone()))
    }
}

#[cfg(test)]
mod tests;
