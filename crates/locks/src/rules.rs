//! The rules whose absence breaks the published protocol, each of which can be taken away.
//!
//! Invariant: [`Rules::ALL`] is the protocol that ships. A check that claims to find violations has to find one for each rule that is
//! taken away ([`Rules::without`]).

/// A rule of the protocol.
///
/// F1 to F8 are faults that were found in Zhang, Cheng, Chen, Chen, "Fast and Scalable In-network Lock Management Using Lock Fission",
/// OSDI 2024.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// F1. A release goes to the agent's machine. Off: the decider frees a lock on a release from the agent's machine.
    ReleaseAtAgent,
    /// F2. Each acquire has a number, and a number is counted once. Off: agents count the copies of shared acquires.
    NumberAcquires,
    /// F3. A holder is a request. Off: a holder is a thread.
    HoldersAreRequests,
    /// F4. A grant is for the request that it names. Off: it is for the thread's current request.
    GrantsAreForRequests,
    /// F5. A counter never returns to a number that may still be under way. Off: it has two bits.
    WideCounters,
    /// F6. An agent tells a shared request that it lets in. Off: it believes that the decider has told it.
    AgentGrants,
    /// F7. A release counts its own acquire. Off: it does not, and is lost where no agent is.
    ReleaseCounts,
    /// F8. A link accepts the next number alone. Off: any number above the last.
    NextNumberOnly,
    /// Recovery. A machine drops packets of other views. Off: it takes them.
    ViewsAreChecked,
    /// Recovery. A machine submits all holds of its clients. Off: only those whose agent is on the machine.
    AllHoldsAreSubmitted,
}

impl Rule {
    /// All rules, in the order of the faults.
    pub const ALL: [Rule; 10] = [
        Rule::ReleaseAtAgent,
        Rule::NumberAcquires,
        Rule::HoldersAreRequests,
        Rule::GrantsAreForRequests,
        Rule::WideCounters,
        Rule::AgentGrants,
        Rule::ReleaseCounts,
        Rule::NextNumberOnly,
        Rule::ViewsAreChecked,
        Rule::AllHoldsAreSubmitted,
    ];

    /// The name of the rule on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Rule::ReleaseAtAgent => "release-at-agent",
            Rule::NumberAcquires => "number-acquires",
            Rule::HoldersAreRequests => "holders-are-requests",
            Rule::GrantsAreForRequests => "grants-are-for-requests",
            Rule::WideCounters => "wide-counters",
            Rule::AgentGrants => "agent-grants",
            Rule::ReleaseCounts => "release-counts",
            Rule::NextNumberOnly => "next-number-only",
            Rule::ViewsAreChecked => "views-are-checked",
            Rule::AllHoldsAreSubmitted => "all-holds-are-submitted",
        }
    }
}

/// The rules that are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules(u16);

impl Rules {
    /// The protocol that ships.
    pub const ALL: Rules = Rules(u16::MAX);

    /// All rules but one.
    #[must_use]
    pub const fn without(rule: Rule) -> Rules {
        Rules(!(1 << rule as u8))
    }

    /// Whether a rule is kept.
    #[inline]
    #[must_use]
    pub const fn keep(self, rule: Rule) -> bool {
        self.0 & 1 << rule as u8 != 0
    }
}
