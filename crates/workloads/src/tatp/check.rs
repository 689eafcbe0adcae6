//! Checks the invariants of TATP's tables when no transaction runs.
//!
//! Invariant: the check scans the tables and compares them with the loaded rows, which the population
//! computes again. The check uses only the tally's numbers of inserted and deleted forwardings.

use super::population::{Population, belongings, fixed_columns};
use super::tables::{ACCESS_INFO, CALL_FORWARDING, SPECIAL_FACILITY, START_TIMES, SUBSCRIBER, SUBSCRIBER_NUMBER, byte2, digits, end_time, forwarded_to, hex, is_active, msc_location, number, numberx, parts, s_id, sub_nbr};
use super::{Tally, Tatp};
use crate::workload::{Invariant, Workload};
use tarn_engine::site::Context;
use tarn_engine::admin::inspect::scan;
use tarn_store::ids::Failure;
use tarn_store::schema::row::Row;

pub(super) async fn check(
    population: &Population,
    cx: &Context,
    tally: &Tally,
) -> Result<Vec<Invariant>, Failure> {
    Ok(vec![
        subscribers(population, cx, tally).await?,
        numbers(population, cx).await?,
        access_rights(population, cx).await?,
        facilities(population, cx).await?,
        forwardings(population, cx, tally).await?,
    ])
}

fn verdict(name: &'static str, found: u64, expected: u64, wrong: u64) -> Invariant {
    let ok = found == expected && wrong == 0;
    let detail = format!("{found} rows, {expected} expected, {wrong} wrong");
    Invariant { name, ok, detail, of_memory: true }
}

async fn subscribers(
    population: &Population,
    cx: &Context,
    tally: &Tally,
) -> Result<Invariant, Failure> {
    let (mut found, mut wrong) = (0, tally.torn);
    scan(cx, SUBSCRIBER, |stored| {
        found += 1;
        wrong += u64::from(!is_whole_subscriber(stored.key, &stored.row));
    })
    .await?;
    Ok(verdict("subscribers as loaded, reads whole", found, population.subscribers, wrong))
}

fn is_whole_subscriber(id: u64, row: &Row<'_>) -> bool {
    let (fixed_hex, fixed_byte2, msc) = fixed_columns(id);
    row.bytes(number()) == digits(sub_nbr(id))
        && row.bytes(hex()) == fixed_hex
        && row.bytes(byte2()) == fixed_byte2
        && row.u64(msc_location()) == msc
}

async fn numbers(population: &Population, cx: &Context) -> Result<Invariant, Failure> {
    let (mut found, mut wrong) = (0, 0);
    scan(cx, SUBSCRIBER_NUMBER, |stored| {
        found += 1;
        let id = stored.row.u64(s_id());
        let known = (1..=population.subscribers).contains(&id);
        wrong += u64::from(!known || stored.key != sub_nbr(id));
    })
    .await?;
    Ok(verdict("every number leads to its subscriber", found, population.subscribers, wrong))
}

/// Returns whether the subscriber exists and the given mask of the subscriber contains the type.
fn belongs(population: &Population, id: u64, of_type: u8, mask: impl Fn(u64) -> u8) -> bool {
    let known = (1..=population.subscribers).contains(&id) && (1..=4).contains(&of_type);
    known && mask(id) & (1 << (of_type - 1)) != 0
}

async fn access_rights(population: &Population, cx: &Context) -> Result<Invariant, Failure> {
    let (mut found, mut wrong) = (0, 0);
    scan(cx, ACCESS_INFO, |stored| {
        found += 1;
        let (id, ai_type, _) = parts(stored.key);
        wrong +=
            u64::from(!belongs(population, id, ai_type, |id| belongings(id).access_types));
    })
    .await?;
    Ok(verdict("every access right has its subscriber", found, population.counts[1], wrong))
}

async fn facilities(population: &Population, cx: &Context) -> Result<Invariant, Failure> {
    let (mut found, mut wrong) = (0, 0);
    scan(cx, SPECIAL_FACILITY, |stored| {
        found += 1;
        let (id, sf_type, _) = parts(stored.key);
        let own = belongs(population, id, sf_type, |id| belongings(id).facility_types);
        wrong += u64::from(!own || stored.row.u64(is_active()) > 1);
    })
    .await?;
    Ok(verdict("every facility has its subscriber", found, population.counts[2], wrong))
}

async fn forwardings(
    population: &Population,
    cx: &Context,
    tally: &Tally,
) -> Result<Invariant, Failure> {
    let (mut found, mut wrong) = (0i64, 0);
    scan(cx, CALL_FORWARDING, |stored| {
        found += 1;
        let (id, sf_type, start_time) = parts(stored.key);
        let own = belongs(population, id, sf_type, |id| belongings(id).facility_types);
        // The benchmark does not require that an inserted forwarding ends after its start time.
        let end = stored.row.u64(end_time());
        let timed = START_TIMES.contains(&start_time) && (1..=24).contains(&end);
        let whole = stored.row.bytes(numberx()) == forwarded_to(stored.key, end as u8);
        wrong += u64::from(!own || !timed || !whole);
    })
    .await?;
    let successes = |name: &str| {
        let kind = Tatp::TRANSACTIONS.iter().position(|&other| other == name);
        kind.map_or(0, |kind| tally.successes[kind])
    };
    let (inserted, deleted) =
        (successes("insert_call_forwarding"), successes("delete_call_forwarding"));
    let expected = (population.counts[3] + inserted) as i64 - deleted as i64;
    let untold = tally.untold;
    Ok(Invariant {
        name: "forwardings: loaded + inserted - deleted",
        ok: untold.admits(found, expected) && wrong == 0,
        detail: format!("{found} rows, {expected} expected{untold}, {wrong} wrong"),
        of_memory: false,
    })
}
