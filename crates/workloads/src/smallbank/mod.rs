//! SmallBank: a bank of customers with a savings and a checking account each.
//!
//! Alomari, Cahill, Fekete, Röhm, "The cost of serializability on platforms that use snapshot
//! isolation", ICDE 2008. We implement the version of H-Store and BenchBase. This version adds
//! SendPayment, and defines the amounts and the mix (Difallah, Pavlo, Curino, Cudré-Mauroux,
//! "OLTP-Bench: an extensible testbed for benchmarking relational databases", VLDB 2013).
//!
//! All profiles differ from the definition in the following points. No table maps a customer's name
//! to an id, because a name is the id in decimal and is computed. Balances are whole cents.
//! BenchBase's code differs from the paper's text in three points. TransactSavings subtracts its
//! amount, Amalgamate empties the wrong accounts, and an overdrawn check costs 1.00 less, not more.
//! In these three points we follow the paper's text. Only the profile `withdraw` subtracts the amount
//! in TransactSavings.
//!
//! Invariant checked: no money is created or lost. The balances add up to the loaded amount, plus
//! deposits and savings transactions, minus checks and penalties. No account appears or disappears.

mod amalgamate;
mod balance;
mod deposit_checking;
mod profiles;
mod send_payment;
mod transact_savings;
mod write_check;

use crate::distribution::{Dice, Keys};
use crate::untold::{Slack, Untold};
use crate::workload::{Invariant, Profile, Settings, Workload, procedure, profiles_of};
use profiles::{Hot, VARIANTS, Variant};
use tarn_engine::site::Context;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::admin::inspect::scan;
use tarn_engine::admin::load::Loader;
use tarn_store::ids::{Failure, Mode, UsageError};
use tarn_store::schema::procedure::Procedure;
use tarn_store::schema::{Cells, ColumnId, ColumnType, TableId, TableSchema};
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;
use tarn_fabric::rng::{Rng, mix};

const SAVINGS: TableId = TableId(0);
const CHECKING: TableId = TableId(1);
const BALANCE: ColumnId = ColumnId(0);

const SEND_CENTS: i64 = 500;
const DEPOSIT_CENTS: i64 = 130;
const SAVINGS_CENTS: i64 = 2020;
const CHECK_CENTS: i64 = 500;
const PENALTY_CENTS: i64 = 100;

/// The benchmark SmallBank with the user's choices.
pub struct SmallBank {
    accounts: Keys,
    zipf: f64,
    /// The percentage of draws that choose one of the first `hot_accounts` accounts.
    hot_percent: u64,
    hot_accounts: u64,
    variant: &'static Variant,
}

/// The input of one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// Moves all of the first customer's money to the second customer's checking account.
    Amalgamate(u64, u64),
    /// Reads both balances of a customer.
    Balance(u64),
    /// Pays an amount into a customer's checking account.
    DepositChecking(u64),
    /// Moves an amount from the first customer's checking account to the second customer's checking
    /// account.
    SendPayment(u64, u64),
    /// Pays an amount into a customer's savings account, or withdraws it.
    TransactSavings(u64),
    /// Cashes a check against the sum of the customer's two balances.
    WriteCheck(u64),
}

/// The sums over a coordinator's committed transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// The amount paid into checking accounts, in cents.
    pub deposited: i64,
    /// The amount paid into savings accounts, in cents. The amount is negative if money was
    /// withdrawn.
    pub saved: i64,
    /// The amount paid by checks, in cents.
    pub checks: i64,
    /// The sum of the penalties for overdrawn checks, in cents.
    pub penalties: i64,
    /// The number of withdrawals and payments that were rolled back because the balance was too low.
    pub refused: u64,
    /// The change of the total balance, in cents, that uncounted transactions may have made.
    pub untold: Slack,
}

/// Returns the initial balance of an account of a table, which is 10,000.00 to 50,000.00.
fn initial_cents(table: TableId, account: u64) -> i64 {
    let word = mix(account ^ mix(u64::from(table.0) + 0x5ba));
    1_000_000 + Dice::from_word(word).roll(4_000_001) as i64
}

/// Returns a fetched account's balance. An account that does not exist rolls the transaction back,
/// as the benchmark requires.
#[inline(always)]
fn balance_of(tx: &Transaction<'_>, account: Handle) -> Result<i64, Failure> {
    match tx.get(account) {
        Some(row) => Ok(row.i64(BALANCE)),
        None => tx.abort(),
    }
}

impl SmallBank {
    #[inline]
    fn draw_account(&self, rng: &mut Rng) -> (u64, Dice) {
        if self.hot_percent > 0 {
            let mut dice = Dice::new(rng);
            if dice.roll(100) < self.hot_percent {
                return (dice.roll(self.hot_accounts), dice);
            }
        }
        self.accounts.draw_with_dice(rng)
    }

    /// Draws an account that is not `other`.
    #[inline]
    fn draw_another(&self, rng: &mut Rng, other: u64) -> u64 {
        loop {
            let (account, _) = self.draw_account(rng);
            if account != other {
                return account;
            }
        }
    }
}

impl Workload for SmallBank {
    const NAME: &'static str = "smallbank";
    const PROFILES: &'static [Profile] = profiles_of!(VARIANTS);
    const TRANSACTIONS: &'static [&'static str] = &[
        "amalgamate",
        "balance",
        "deposit_checking",
        "send_payment",
        "transact_savings",
        "write_check",
    ];
    const GIVES_UP: &'static str = "insufficient funds";
    type Input = Input;
    type Tally = Tally;

    fn new(settings: &Settings) -> Result<SmallBank, UsageError> {
        let variant = crate::workload::choose(VARIANTS, |v| v.profile.name, settings)?;
        let zipf = settings.zipf.unwrap_or(variant.zipf);
        let accounts = Keys::new(settings.records.unwrap_or(variant.accounts), zipf)?;
        let count = accounts.records();
        if count < 2 {
            let (field, allowed) = ("records".into(), "2 or more accounts".into());
            return Err(UsageError { field, value: count.to_string(), allowed });
        }
        // If the user requests a skew, this skew replaces the profile's hotspot.
        let hot = if settings.zipf.is_some() { Hot::None } else { variant.hot };
        let (hot_percent, hot_accounts) = match hot {
            Hot::None => (0, 0),
            Hot::Accounts { percent, accounts } => (percent, accounts),
            Hot::Share { percent, of_accounts } => (percent, count * of_accounts / 100),
        };
        // At least two accounts are hot, because a payment between hot accounts needs two of them.
        let hot_accounts = hot_accounts.clamp(2, count);
        Ok(SmallBank { accounts, zipf, hot_percent, hot_accounts, variant })
    }

    fn profile(&self) -> Profile {
        self.variant.profile
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        vec![
            ("accounts", self.accounts.records().to_string()),
            ("zipf", self.zipf.to_string()),
            ("hot_percent", self.hot_percent.to_string()),
            ("hot_accounts", self.hot_accounts.to_string()),
            ("mix", self.variant.mix.percents(Self::TRANSACTIONS.len())),
        ]
    }

    fn schemas(&self) -> Vec<TableSchema> {
        ["savings", "checking"]
            .map(|name| {
                TableSchema::new(name, self.accounts.records())
                    .critical_bits(u64::MAX)
                    .column("balance", ColumnType::I64)
            })
            .into()
    }

    fn procedures(&self) -> Vec<Procedure> {
        let savings = |mode| (SAVINGS, mode, Cells::ALL);
        let checking = |mode| (CHECKING, mode, Cells::ALL);
        let (read, update) = (Mode::Read, Mode::Update);
        vec![
            procedure("amalgamate", &[savings(update), checking(update), checking(update)]),
            procedure("balance", &[savings(read), checking(read)]),
            procedure("deposit_checking", &[checking(update)]),
            procedure("send_payment", &[checking(update), checking(update)]),
            procedure("transact_savings", &[savings(update)]),
            procedure("write_check", &[savings(read), checking(update)]),
        ]
    }

    fn lines_per_transaction(&self) -> usize {
        4
    }

    async fn load(&self, loader: &mut Loader<'_>) -> Result<(), Failure> {
        for account in 0..self.accounts.records() {
            for table in [SAVINGS, CHECKING] {
                let cents = initial_cents(table, account);
                loader.insert(table, account, |row| row.set(BALANCE, cents)).await?;
            }
        }
        Ok(())
    }

    fn records(&self) -> u64 {
        2 * self.accounts.records()
    }

    #[inline]
    fn draw(&self, rng: &mut Rng) -> Input {
        let (account, mut dice) = self.draw_account(rng);
        match self.variant.mix.draw(&mut dice) {
            0 => Input::Amalgamate(account, self.draw_another(rng, account)),
            1 => Input::Balance(account),
            2 => Input::DepositChecking(account),
            3 => Input::SendPayment(account, self.draw_another(rng, account)),
            4 => Input::TransactSavings(account),
            _ => Input::WriteCheck(account),
        }
    }

    #[inline]
    fn kind(input: &Input) -> usize {
        match input {
            Input::Amalgamate(..) => 0,
            Input::Balance(_) => 1,
            Input::DepositChecking(_) => 2,
            Input::SendPayment(..) => 3,
            Input::TransactSavings(_) => 4,
            Input::WriteCheck(_) => 5,
        }
    }

    #[inline]
    fn first_key(input: &Input) -> Option<u64> {
        use Input::{
            Amalgamate, Balance, DepositChecking, SendPayment, TransactSavings, WriteCheck,
        };
        match *input {
            Amalgamate(account, _) | SendPayment(account, _) => Some(account),
            Balance(account) | DepositChecking(account) => Some(account),
            TransactSavings(account) | WriteCheck(account) => Some(account),
        }
    }

    fn further_keys(input: &Input, see: &mut dyn FnMut(TableId, u64)) {
        match *input {
            Input::Amalgamate(from, to) => {
                see(CHECKING, from);
                see(CHECKING, to);
            }
            Input::Balance(account) | Input::WriteCheck(account) => see(CHECKING, account),
            Input::SendPayment(_, to) => see(CHECKING, to),
            Input::DepositChecking(_) | Input::TransactSavings(_) => {}
        }
    }

    #[inline]
    async fn run(
        &self,
        coordinator: &mut Coordinator,
        input: &Input,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        match *input {
            Input::Amalgamate(from, to) => amalgamate::run(coordinator, from, to).await,
            Input::Balance(account) => balance::run(coordinator, account).await,
            Input::DepositChecking(account) => {
                deposit_checking::run(coordinator, account, tally).await
            }
            Input::SendPayment(from, to) => send_payment::run(coordinator, from, to, tally).await,
            Input::TransactSavings(account) => {
                transact_savings::run(coordinator, account, self.variant.savings_cents, tally).await
            }
            Input::WriteCheck(account) => write_check::run(coordinator, account, tally).await,
        }
    }

    fn untold(&self, input: &Input, ended: Untold, tally: &mut Tally) {
        let savings = self.variant.savings_cents;
        let (least, most) = match input {
            Input::Amalgamate(..) | Input::Balance(_) | Input::SendPayment(..) => (0, 0),
            Input::DepositChecking(_) => (DEPOSIT_CENTS, DEPOSIT_CENTS),
            Input::TransactSavings(_) => (savings, savings),
            Input::WriteCheck(_) => (-CHECK_CENTS - PENALTY_CENTS, -CHECK_CENTS),
        };
        tally.untold.note(ended, least, most);
    }

    fn merge(into: &mut Tally, other: Tally) {
        into.untold.add(other.untold);
        into.deposited += other.deposited;
        into.saved += other.saved;
        into.checks += other.checks;
        into.penalties += other.penalties;
        into.refused += other.refused;
    }

    fn outcomes(&self, tally: &Tally) -> Vec<(&'static str, String)> {
        vec![
            ("refused", tally.refused.to_string()),
            ("overdrawn_checks", (tally.penalties / PENALTY_CENTS).to_string()),
        ]
    }

    async fn check(&self, cx: &Context, tally: &Tally) -> Result<Vec<Invariant>, Failure> {
        let (mut start, mut left, mut records) = (0i64, 0i64, [0u64; 2]);
        for table in [SAVINGS, CHECKING] {
            scan(cx, table, |stored| {
                records[usize::from(table.0)] += 1;
                left += stored.row.i64(BALANCE);
            })
            .await?;
            start += (0..self.accounts.records()).map(|it| initial_cents(table, it)).sum::<i64>();
        }
        let (paid_in, paid_out) = (tally.deposited + tally.saved, tally.checks + tally.penalties);
        let expected = start + paid_in - paid_out;
        let accounts = self.accounts.records();
        Ok(vec![
            Invariant {
                name: "money is neither made nor lost",
                ok: tally.untold.admits(left, expected),
                detail: format!(
                    "{left} cents found, {expected} expected{}: {start} + {paid_in} - {paid_out}",
                    tally.untold
                ),
                of_memory: false,
            },
            Invariant {
                name: "every customer has both accounts",
                ok: records == [accounts; 2],
                detail: format!("{records:?} of {accounts}"),
                of_memory: true,
            },
        ])
    }
}
