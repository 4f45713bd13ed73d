//! Runs the tests of a policy.

use super::index::Index;
use super::rule::Test;
use super::{Decision, Policy, Question};
use std::fmt;
use std::ops::Deref;

/// A test that fails: the rules of the policy give another answer than the test expects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedTest {
    /// The name of the policy's file.
    pub file: String,
    /// The line of the test, from 1.
    pub line: usize,
    /// The request of the test, the expected answer and the answer of the rules.
    pub message: String,
}

impl fmt::Display for FailedTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl std::error::Error for FailedTest {}

/// A policy that passed its own tests. Only such a policy can be applied.
#[derive(Debug)]
pub struct TestedPolicy(Policy);

impl Deref for TestedPolicy {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.0
    }
}

impl TestedPolicy {
    /// Returns the policy without rules and tests, which allows nothing.
    pub fn without_rules() -> Self {
        Self(Policy { file: String::new(), rules: Vec::new(), tests: Vec::new(), index: Index::new(&[]) })
    }
}

impl Policy {
    /// Returns the tests that fail.
    pub fn failed_tests(&self) -> Vec<FailedTest> {
        self.tests.iter().filter_map(|test| self.failure(test)).collect()
    }

    /// Runs the tests of the policy.
    ///
    /// # Errors
    /// The tests that fail. Such a policy cannot be applied.
    pub fn tested(self) -> Result<TestedPolicy, Vec<FailedTest>> {
        let failed = self.failed_tests();
        if failed.is_empty() { Ok(TestedPolicy(self)) } else { Err(failed) }
    }

    fn failure(&self, test: &Test) -> Option<FailedTest> {
        let (subject, publisher) = (test.subject.party(), test.publisher.party());
        let question = Question { subject, publisher, method: test.method, path: &test.path };
        let decision = self.decide(&question);
        let decided = |by: &str| decision.rule().and_then(|rule| self.name_of(rule)) == Some(by);
        let right = decision.effect() == test.expect && test.by.as_deref().is_none_or(decided);
        if right {
            return None;
        }
        let by = test.by.as_ref().map_or_else(String::new, |by| format!(" by the rule \"{by}\""));
        let decided = match decision {
            Decision::Allowed(rule) | Decision::Denied(rule) => format!("decided by {}", self.describe(rule)),
            Decision::NoRule => "no rule covers it".to_owned(),
            Decision::BadPath => "no request has this path".to_owned(),
            Decision::TooManyTags => "a party has too many tags".to_owned(),
        };
        let message = format!(
            "{question}: the test expects {}{by}, the policy decides {}: {decided}",
            test.expect.name(),
            decision.effect().name()
        );
        Some(FailedTest { file: self.file.clone(), line: test.line, message })
    }
}
