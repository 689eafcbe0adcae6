//! SmallBank's profiles: the benchmark's own profile, and the profiles of papers.
//!
//! Invariant: the note of each profile names every deviation from the benchmark's own definition.

use super::SAVINGS_CENTS;
use crate::distribution::Mix;
use crate::workload::Profile;

pub(super) struct Variant {
    pub(super) profile: Profile,
    pub(super) accounts: u64,
    pub(super) zipf: f64,
    pub(super) hot: Hot,
    pub(super) mix: &'static Mix,
    /// The amount that TransactSavings adds.
    pub(super) savings_cents: i64,
}

/// The accounts that transactions use more often than other accounts.
#[derive(Clone, Copy)]
pub(super) enum Hot {
    None,
    /// `percent` of the draws choose one of the first `accounts` accounts.
    Accounts { percent: u64, accounts: u64 },
    /// `percent` of the draws choose one of the first `of_accounts` percent of the accounts.
    Share { percent: u64, of_accounts: u64 },
}

/// The shares in percent of Amalgamate, Balance, DepositChecking, SendPayment, TransactSavings and
/// WriteCheck.
const SPEC: &Mix = &Mix::new(&[15, 15, 15, 25, 15, 15]);
const NO_BALANCE: &Mix = &Mix::new(&[20, 0, 20, 20, 25, 15]);

const fn variant(
    name: &'static str,
    note: &'static str,
    accounts: u64,
    zipf: f64,
    hot: Hot,
    mix: &'static Mix,
) -> Variant {
    let savings_cents = SAVINGS_CENTS;
    Variant { profile: Profile { name, note }, accounts, zipf, hot, mix, savings_cents }
}

pub(super) const VARIANTS: &[Variant] = &[
    variant(
        "spec",
        "H-Store/BenchBase: 1 M accounts, uniform, 15/15/15/25/15/15",
        1_000_000,
        0.0,
        Hot::None,
        SPEC,
    ),
    Variant {
        savings_cents: -SAVINGS_CENTS,
        ..variant(
            "withdraw",
            "spec, with BenchBase's sign: TransactSavings withdraws; as Amalgamate empties savings, \
             most withdrawals of a long run are refused",
            1_000_000,
            0.0,
            Hot::None,
            SPEC,
        )
    },
    variant(
        "hotspot",
        "spec, but 25 % of the accounts drawn are among 100: the hotspot that BenchBase names in \
         its constants and never draws",
        1_000_000,
        0.0,
        Hot::Accounts { percent: 25, accounts: 100 },
        SPEC,
    ),
    variant(
        "lotus",
        "LOTUS: 20 M accounts, records of 8 + 8 B, uniform",
        20_000_000,
        0.0,
        Hot::None,
        SPEC,
    ),
    variant(
        "lotus-zipf",
        "LOTUS: 20 M accounts, records of 8 + 8 B, Zipf .99",
        20_000_000,
        0.99,
        Hot::None,
        SPEC,
    ),
    variant(
        "crest",
        "CREST: 100 K accounts, Zipf .99; the benchmark's own mix",
        100_000,
        0.99,
        Hot::None,
        SPEC,
    ),
    variant(
        "crest-code",
        "as crest, with the mix of its public code: no Balance, the others 20/20/20/25/15",
        100_000,
        0.99,
        Hot::None,
        NO_BALANCE,
    ),
    variant(
        "dandelion",
        "Dandelion: 18 M keys (9 M accounts in two tables), 8 + 8 B, uniform",
        9_000_000,
        0.0,
        Hot::None,
        SPEC,
    ),
    variant(
        "dandelion-hot",
        "as dandelion; 90 % of the accounts drawn are among 4 % of them",
        9_000_000,
        0.0,
        Hot::Share { percent: 90, of_accounts: 4 },
        SPEC,
    ),
];
