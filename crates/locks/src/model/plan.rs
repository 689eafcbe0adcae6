//! The searches that `tarn lock check` makes, each with the outcome that it has to have.
//!
//! Invariant: the protocol that ships has no violation, and each rule that is taken away has one. A search that finds nothing where something has to
//! be found is a failure, too.

use super::bounds::Bounds;
use super::search::Outcome;
use crate::decider::Fanout;
use crate::rules::{Rule, Rules};
use crate::value::Policy;

/// A search, with the outcome that it has to have.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in tables.
    pub name: String,
    /// Its size.
    pub bounds: Bounds,
    /// Whether a violation has to be found.
    pub finds: bool,
}

/// The verdict on the outcome of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The outcome is the one that the case has to have.
    Passed,
    /// The search found a violation of the protocol that ships.
    Violated,
    /// The search found no violation although a rule was taken away.
    Blind,
    /// The search ended before it had looked at all states.
    Unfinished,
}

impl Case {
    /// The verdict on an outcome.
    #[must_use]
    pub fn verdict(&self, outcome: &Outcome) -> Verdict {
        match (self.finds, &outcome.found) {
            (true, Some(_)) => Verdict::Passed,
            (false, Some(_)) => Verdict::Violated,
            (_, None) if !outcome.is_exhausted => Verdict::Unfinished,
            (true, None) => Verdict::Blind,
            (false, None) => Verdict::Passed,
        }
    }
}

/// The name of a policy on command lines.
#[must_use]
pub fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::ReadsFirst => "reads-first",
        Policy::WritesFirst => "writes-first",
        Policy::InOrder => "in-order",
    }
}

/// The name of a decider's way of sending.
#[must_use]
pub fn fanout_name(fanout: Fanout) -> &'static str {
    match fanout {
        Fanout::Sends => "sends",
        Fanout::Answers => "answers",
    }
}

const POLICIES: [Policy; 3] = [Policy::ReadsFirst, Policy::WritesFirst, Policy::InOrder];
const FANOUTS: [Fanout; 2] = [Fanout::Sends, Fanout::Answers];

/// Two machines with clients on both, without faults.
fn bounds(clients: &[u16], requests: u8, policy: Policy, fanout: Fanout) -> Bounds {
    Bounds {
        clients: clients.to_vec(),
        machines: 2,
        requests,
        losses: 0,
        repetitions: 0,
        time_outs: 0,
        policy,
        fanout,
        rules: Rules::ALL,
        crashes: false,
    }
}

fn case(name: &str, bounds: Bounds) -> Case {
    let (policy, fanout) = (policy_name(bounds.policy), fanout_name(bounds.fanout));
    let name = format!("{name}, {policy}, decider {fanout}");
    Case { name, finds: bounds.rules != Rules::ALL, bounds }
}

/// A loss, a repetition and a time-out, with this number of requests of three clients.
fn faults(requests: u8, policy: Policy, fanout: Fanout) -> Case {
    let bounds = bounds(&[1, 1, 2], requests, policy, fanout);
    case("faults", Bounds { losses: 1, repetitions: 1, time_outs: 1, ..bounds })
}

/// One crash at any step: of a machine, of the decider, or of both.
fn crashes(clients: &[u16], policy: Policy, fanout: Fanout) -> Case {
    case("crash", Bounds { crashes: true, ..bounds(clients, 3, policy, fanout) })
}

/// The protocol without one rule, within bounds that suffice to show the fault.
fn without(rule: Rule, fanout: Fanout) -> Case {
    let (requests, time_outs, policy) = match rule {
        Rule::HoldersAreRequests => (4, 0, Policy::ReadsFirst),
        Rule::GrantsAreForRequests => (3, 1, Policy::ReadsFirst),
        Rule::AgentGrants => (3, 0, Policy::WritesFirst),
        Rule::ViewsAreChecked | Rule::AllHoldsAreSubmitted => (3, 0, Policy::ReadsFirst),
        _ => (3, 0, Policy::ReadsFirst),
    };
    let crashes = matches!(rule, Rule::ViewsAreChecked | Rule::AllHoldsAreSubmitted);
    let bounds = bounds(&[1, 1, 2], requests, policy, fanout);
    case(rule.name(), Bounds { time_outs, crashes, rules: Rules::without(rule), ..bounds })
}

/// Every rule taken away in turn.
#[must_use]
pub fn rules() -> Vec<Case> {
    Rule::ALL.iter().map(|rule| without(*rule, Fanout::Sends)).collect()
}

/// One crash at every step, under all policies and for both kinds of deciders.
#[must_use]
pub fn recovery() -> Vec<Case> {
    let mut cases = Vec::new();
    for (policy, fanout) in POLICIES.into_iter().flat_map(|it| FANOUTS.map(|fanout| (it, fanout))) {
        cases.extend([&[1, 2][..], &[1, 1]].map(|clients| crashes(clients, policy, fanout)));
    }
    cases
}

/// Searches of a few seconds.
#[must_use]
pub fn quick() -> Vec<Case> {
    let mut cases: Vec<Case> = POLICIES.map(|policy| faults(2, policy, Fanout::Sends)).into();
    cases.extend(POLICIES.map(|policy| faults(2, policy, Fanout::Answers)));
    cases.extend([crashes(&[1, 1], Policy::InOrder, Fanout::Sends)]);
    cases.extend([crashes(&[1, 2], Policy::WritesFirst, Fanout::Answers)]);
    cases.extend(rules());
    cases
}

/// The searches on which the claims about the protocol rest; minutes on two cores.
#[must_use]
pub fn full() -> Vec<Case> {
    let mut cases = rules();
    cases.extend(recovery());
    let policies = [Policy::ReadsFirst, Policy::WritesFirst];
    cases.extend(policies.map(|policy| faults(4, policy, Fanout::Sends)));
    cases
}

/// [`full`], and the largest searches for the remaining policy and for deciders that answer the sender alone.
#[must_use]
pub fn all() -> Vec<Case> {
    let mut cases = full();
    cases.push(faults(4, Policy::InOrder, Fanout::Sends));
    cases.extend(POLICIES.map(|policy| faults(4, policy, Fanout::Answers)));
    cases
}
