//! The scope that a peer gets at a device.

use super::config::{DeviceConfig, NO_SCOPE};
use crate::access::policy::Party;
use crate::service::Service;
use crate::state::State;
use tegmen_coap::Rule;
use tegmen_store::Store;

/// The rights of peers, as a policy grants them.
pub trait Rights: Send + Sync {
    /// Returns true if the policy now allows the peer to send all requests of `rules` to the device.
    fn allow(&self, peer: &str, device: &Party<'_>, rules: &[Rule<'_>]) -> bool;
}

/// Decides with the policy that is in force at the access control server.
impl<S: Store> Rights for Service<S> {
    fn allow(&self, peer: &str, device: &Party<'_>, rules: &[Rule<'_>]) -> bool {
        self.state().allow(peer, device, rules)
    }
}

/// Decides with the policy in force. A peer that no operator registered has a name and no tags. A disabled peer has no
/// rights.
impl<S: Store> Rights for State<S> {
    fn allow(&self, peer: &str, device: &Party<'_>, rules: &[Rule<'_>]) -> bool {
        let (policy, registered) = {
            let view = self.view();
            if !view.is_current() {
                return false;
            }
            (view.in_force().policy, view.device(peer).map(|device| (device.party.clone(), device.disabled)))
        };
        let subject = match &registered {
            Some((_, true)) => return false,
            Some((party, false)) => party.party(),
            None => Party::named(peer),
        };
        rules.iter().all(|rule| policy.allows_all(&subject, device, rule))
    }
}

/// Returns the index of the first scope of the device whose rules are all allowed for the peer; `None` if there is no
/// such scope.
pub(super) fn scope(rights: &dyn Rights, peer: &str, device: &Party<'_>, config: &DeviceConfig) -> Option<u8> {
    let is_allowed = |scope: &Vec<String>| allows(rights, peer, device, scope);
    config.scopes.iter().position(is_allowed).and_then(|index| u8::try_from(index).ok())
}

/// Returns true if the policy still allows the peer all rules of this scope. Also returns true for [`NO_SCOPE`], which
/// gives no rights.
pub(super) fn stands(rights: &dyn Rights, peer: &str, device: &Party<'_>, config: &DeviceConfig, scope: u8) -> bool {
    let rules = config.scopes.get(usize::from(scope));
    scope == NO_SCOPE || rules.is_some_and(|rules| allows(rights, peer, device, rules))
}

fn allows(rights: &dyn Rights, peer: &str, device: &Party<'_>, scope: &[String]) -> bool {
    let rules: Option<Vec<Rule<'_>>> = scope.iter().map(|rule| Rule::parse(rule)).collect();
    rules.is_some_and(|rules| rights.allow(peer, device, &rules))
}
