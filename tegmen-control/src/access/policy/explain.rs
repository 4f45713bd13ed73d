//! Explains the decision of a policy.

use super::rule::{Rule, words};
use super::{Decision, Policy, Question, RuleId};
use std::fmt;

/// Maximum number of rules in [`Explanation::near`].
const MAX_NEAR: usize = 5;

/// The part of a request to which a condition of a rule refers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The party that makes the request.
    Subject,
    /// The party that has the resource.
    Publisher,
    /// The method and the path.
    Request,
}

impl Part {
    /// Returns the name of this part of a request, which is a key of a `[[test]]` in a policy file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::Publisher => "publisher",
            Self::Request => "request",
        }
    }
}

/// A rule that covers all parts of a request except one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NearRule {
    /// The rule.
    pub rule: RuleId,
    /// The part of the request that the rule does not cover.
    pub part: Part,
    /// A text with the file and the line of the rule, and with the condition of the rule that the request does not
    /// meet.
    pub message: String,
}

/// The decision on a request, with its reasons, for an operator. A peer never receives this.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The decision.
    pub decision: Decision,
    /// The decision in words, with the rule that decided.
    pub message: String,
    /// Further rules that cover the request, in the order of the file. If the deciding rule did not exist, one of these
    /// rules would decide.
    pub also: Vec<RuleId>,
    /// Rules with the opposite effect that cover all parts of the request except one. The parts are the subject, the
    /// publisher, and the method with the path. For a denied request these rules allow, and for an allowed request they
    /// deny. If there are more than 5 such rules, this field contains the first 5 rules in the file.
    pub near: Vec<NearRule>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.near.iter().try_for_each(|near| write!(f, "\n  near: {}", near.message))
    }
}

impl Policy {
    /// Explains the decision on a request: names the rule that decided, and the rules that cover all parts of the
    /// request except one. Examines each rule of the policy.
    pub fn explain(&self, question: &Question<'_>) -> Explanation {
        let decision = self.decide(question);
        let verdict = if decision.is_allowed() { "allowed" } else { "refused" };
        let reason = match decision {
            Decision::Allowed(rule) | Decision::Denied(rule) => format!("by {}", self.describe(rule)),
            Decision::NoRule => "no rule allows it".to_owned(),
            Decision::BadPath => "its path has an empty segment, or a segment that is . or ..".to_owned(),
            Decision::TooManyTags => "a party has too many tags".to_owned(),
        };
        let message = format!("{question}: {verdict}: {reason}");
        let mut also = Vec::new();
        let mut near = Vec::new();
        for (place, rule) in
            (0..).zip(&self.rules).filter(|_| !matches!(decision, Decision::BadPath | Decision::TooManyTags))
        {
            let id = RuleId(place);
            match missing(rule, question)[..] {
                [] if decision.rule() != Some(id) => also.push(id),
                [part] if rule.effect != decision.effect() && near.len() < MAX_NEAR => {
                    near.push(NearRule { rule: id, part, message: self.near(rule, question, part) });
                }
                _ => {}
            }
        }
        Explanation { decision, message, also, near }
    }

    fn near(&self, rule: &Rule, question: &Question<'_>, part: Part) -> String {
        let at = self.describe_rule(rule);
        match part {
            Part::Subject => format!("{at}: the subject {} is not {}", question.subject, words(&rule.subjects)),
            Part::Publisher => format!("{at}: the publisher {} is not {}", question.publisher, words(&rule.publishers)),
            Part::Request => format!("{at}: {} {} is none of these", question.method.name(), question.path),
        }
    }
}

/// Returns the parts of a request that a rule does not cover.
fn missing(rule: &Rule, question: &Question<'_>) -> Vec<Part> {
    let covered = [
        (Part::Subject, rule.covers_subject(&question.subject)),
        (Part::Publisher, rule.covers_publisher(&question.publisher)),
        (Part::Request, rule.covers_request(question.method, question.path)),
    ];
    covered.into_iter().filter(|(_, covered)| !covered).map(|(part, _)| part).collect()
}
