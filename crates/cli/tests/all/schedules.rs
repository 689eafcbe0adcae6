//! Runs random schedules through the program. The program must find every planted bug, and the printed command must
//! run the bug again with the same trace.
//!
//! Invariant checked: each bug shows within `FOUND_WITHIN` seeds. The program, called with the printed replay
//! command, ends with exit code 1, the same digest and the same counterexample.

use crate::common::{assert_refused, tarn_line};
use serde_json::Value;
use tarn_engine::protocol::ALL;
use tarn_lab::schedules::Subject;
use tarn_lab::schedules::many::{Order, run_all};
use tarn_lab::schedules::report::Sum;

/// The number of seeds within which every planted bug must show, counted from the first seed that the test tries. The
/// medians over twenty first seeds were below 120 for most bugs when they were measured; those of FORD's and Motor's
/// `prove-absent` are 340 and 380.
const FOUND_WITHIN: u64 = 2_000;

/// Each rule of a protocol that the test turns off, and the damage that its absence does.
const PLANTED: &[(&str, &str, &str)] = &[
    ("ford", "-validate-reads", "skipped validation"),
    ("ford", "-refuse-locked", "read past a lock"),
    ("ford", "-unlock-late", "unlocked before the backups had acknowledged"),
    ("ford", "-release-granted", "foreign locks cleared"),
    ("ford", "-write-after-validation", "lost rollback"),
    ("ford", "-fuse-log", "an aborted transaction of a dead node taken for a committed one"),
    ("ford", "-protect-absent", "unprotected absent reads"),
    ("ford", "-release-on-abort", "locks that outlive their transaction"),
    ("ford", "unsafe-no-lock-cas", "locks that are only assumed"),
    ("ford", "-fence-before-recovery", "the dead still write while they are recovered"),
    ("ford", "-release-own", "recovery clears what others hold by now"),
    ("ford", "-validate-after-locks", "reads validated before all locks are held"),
    ("ford", "-keep-version", "versions that begin anew"),
    ("ford", "-lock-at-primary", "locks at backups, which stay when one is promoted"),
    ("ford", "-protect-ranges", "gaps that are not protected"),
    ("ford", "-check-fences", "remembered ways that are believed"),
    ("ford", "-prove-absent", "keys missed by a READ whose lines come in another order"),
    ("motor", "-validate-reads", "skipped validation"),
    ("motor", "-refuse-locked", "read past a lock"),
    ("motor", "-wait-for-locked", "snapshots of half a commit"),
    ("motor", "-check-head", "values and deltas of several moments"),
    ("motor", "-too-old", "snapshots of what is not kept any more"),
    ("motor", "-await-replicas", "acknowledged before anything had landed"),
    ("motor", "-unlock-late", "unlocked before the backups had acknowledged"),
    ("motor", "-undo-log", "half of what a dead node committed"),
    ("motor", "-protect-absent", "unprotected absent reads"),
    ("motor", "-release-granted", "foreign locks cleared"),
    ("motor", "-release-on-abort", "locks that outlive their transaction"),
    ("motor", "unsafe-no-lock-cas", "locks that are only assumed"),
    ("motor", "-fence-before-recovery", "the dead still write while they are recovered"),
    ("motor", "-release-own", "recovery clears what others hold by now"),
    ("motor", "-protect-ranges", "gaps that are not protected"),
    ("motor", "-prove-absent", "keys missed by a READ whose lines come in another order"),
    ("occ", "-validate-reads", "skipped validation"),
    ("occ", "-refuse-locked", "read past a lock"),
    ("occ", "-unlock-late", "unlocked before the backups had acknowledged"),
    ("occ", "-release-granted", "foreign locks cleared"),
    ("occ", "-log-after-validation", "a log of a transaction that was not validated"),
    ("occ", "-protect-absent", "unprotected absent reads"),
    ("occ", "-release-on-abort", "locks that outlive their transaction"),
    ("occ", "unsafe-no-lock-cas", "locks that are only assumed"),
    ("occ", "-fence-before-recovery", "the dead still write while they are recovered"),
    ("occ", "-release-own", "recovery clears what others hold by now"),
    ("occ", "-keep-version", "versions that begin anew"),
    ("occ", "-protect-ranges", "gaps that are not protected"),
    ("occ", "-check-fences", "remembered ways that are believed"),
    ("occ", "-sibling-with-split", "a node that is split in two transactions"),
    ("oocc", "-validate-read-write", "writers that do not validate"),
    ("oocc", "-refuse-locked", "read past a lock"),
    ("oocc", "-check-lines", "records of several moments"),
    ("oocc", "-unlock-late", "unlocked before the backups had acknowledged"),
    ("oocc", "-writer-tag", "a log replayed of a transaction that was not decided"),
    ("oocc", "-release-granted", "foreign locks cleared"),
    ("oocc", "-keep-version", "versions that begin anew"),
    ("oocc", "-protect-absent", "unprotected absent reads"),
    ("oocc", "unsafe-no-lock-cas", "locks that are only assumed"),
    ("oocc", "-fence-before-recovery", "the dead still write while they are recovered"),
    ("oocc", "-release-own", "recovery clears what others hold by now"),
    ("oocc", "-followed-is-released", "acknowledged, followed, and told to have aborted"),
    ("oocc", "-compare-lease", "a lease that nobody waits for any more"),
    ("oocc", "-protect-ranges", "gaps that are not protected"),
    ("oocc", "-check-fences", "remembered ways that are believed"),
    ("drtm", "-confirm-leases", "leases that have ended"),
    ("drtm", "-wait-out-leases", "leases that nobody waits for"),
    ("drtm", "-refuse-locked", "read past a lock"),
    ("drtm", "-unlock-late", "unlocked before the backups had acknowledged"),
    ("drtm", "-release-granted", "foreign locks cleared"),
    ("drtm", "-protect-absent", "unprotected absent reads"),
    ("drtm", "-release-on-abort", "locks that outlive their transaction"),
    ("drtm", "unsafe-no-lock-cas", "locks that are only assumed"),
    ("drtm", "-fence-before-recovery", "the dead still write while they are recovered"),
    ("drtm", "-release-own", "recovery clears what others hold by now"),
    ("drtm", "-keep-version", "versions that begin anew"),
    ("drtm", "-protect-ranges", "gaps that are not protected"),
    ("drtm", "-check-fences", "remembered ways that are believed"),
    ("drtm", "-sibling-with-split", "a node that is split in two transactions"),
    ("dslr", "-wait-turn", "locks that are held as soon as a ticket is taken"),
    ("dslr", "-pass-in-turn", "tickets that are passed on before their turn"),
    ("dslr", "-wide-counts,-reset-at-rest", "counts that are set back while some wait"),
    ("dslr", "-validate-reads", "unvalidated absences"),
    ("dslr", "-refuse-locked", "looked at again past a lock"),
    ("dslr", "-protect-absent", "unprotected absent reads"),
    ("dslr", "-release-on-abort", "locks that outlive their transaction"),
    ("dslr", "-keep-version", "versions that begin anew"),
    ("dslr", "-protect-ranges", "gaps that are not protected"),
    ("dslr", "-check-fences", "remembered ways that are believed"),
    ("2pl", "-unlock-late", "unlocked before the backups had acknowledged"),
    ("2pl", "-release-granted", "foreign locks cleared"),
    ("2pl", "-protect-absent", "unprotected absent reads"),
    ("2pl", "-release-on-abort", "locks that outlive their transaction"),
    ("2pl", "unsafe-no-lock-cas", "locks that are only assumed"),
    ("2pl", "-fence-before-recovery", "the dead still write while they are recovered"),
    ("2pl", "-release-own", "recovery clears what others hold by now"),
    ("2pl", "-keep-version", "versions that begin anew"),
    ("2pl", "-protect-ranges", "gaps that are not protected"),
    ("2pl", "-validate-reads", "unvalidated absences"),
    ("2pl", "-refuse-locked", "looked at again past a lock"),
    ("2pl/fisslock", "-dead-holds-stay", "locks of the dead that are free before recovery"),
    ("2pl/fisslock", "-validate-reads", "unvalidated absences"),
    ("2pl/fisslock", "-protect-absent", "unprotected absent reads"),
    ("2pl/fisslock", "-release-on-abort", "locks that outlive their transaction"),
    ("2pl/fisslock", "-fence-before-recovery", "the dead still write while they are recovered"),
    ("2pl/fisslock", "-keep-version", "versions that begin anew"),
    ("2pl/fisslock", "-protect-ranges", "gaps that are not protected"),
];

/// For bugs that only one seed of many shows, the seed at which the test begins to search. With the present engine this
/// seed shows the bug. A change of the engine gives seeds other schedules; then the test searches for longer, and prints
/// the seed that it found.
const RARE: &[(&str, &str, u64)] = &[
    ("ford", "-unlock-late", 52),
    ("ford", "-fence-before-recovery", 438),
    ("ford", "-release-own", 1186),
    ("ford", "-lock-at-primary", 110),
    ("ford", "-check-fences", 375),
    ("ford", "-prove-absent", 395),
    ("motor", "-wait-for-locked", 606),
    ("motor", "-check-head", 183),
    ("motor", "-too-old", 74),
    ("motor", "-await-replicas", 51),
    ("motor", "-fence-before-recovery", 438),
    ("motor", "-prove-absent", 395),
    ("occ", "-log-after-validation", 86),
    ("occ", "-fence-before-recovery", 87),
    ("occ", "-release-own", 528),
    ("occ", "-check-fences", 1050),
    ("occ", "-sibling-with-split", 1373),
    ("oocc", "-fence-before-recovery", 51),
    ("oocc", "-release-own", 90),
    ("oocc", "-followed-is-released", 368),
    ("oocc", "-compare-lease", 648),
    ("oocc", "-check-fences", 344),
    ("drtm", "-wait-out-leases", 81),
    ("drtm", "-unlock-late", 92),
    ("drtm", "-protect-absent", 69),
    ("drtm", "-fence-before-recovery", 438),
    ("drtm", "-release-own", 289),
    ("drtm", "-check-fences", 173),
    ("drtm", "-sibling-with-split", 1115),
    ("dslr", "-check-fences", 156),
    ("2pl", "-fence-before-recovery", 368),
    ("2pl", "-release-own", 1328),
    ("2pl/fisslock", "-dead-holds-stay", 462),
    ("2pl/fisslock", "-fence-before-recovery", 412),
];

/// Switches that have an effect only in two cases. Either a coordinator runs under a dead coordinator's number, or a
/// node dies between two writes of a growth. The first case did not show here in 1,000 seeds, the second case in one
/// seed of a hundred thousand. The explorer and the engine's own schedules of crashes and of growth that dies show
/// the absence of these rules.
const IN_CRASHES: &[(&str, &str)] = &[
    ("ford", "-settle-before-log"),
    ("motor", "-settle-before-log"),
    ("occ", "-settle-before-log"),
    ("2pl", "-settle-before-log"),
    ("oocc", "-settle-before-log"),
    ("drtm", "-settle-before-log"),
    ("oocc", "-header-first"),
];

/// Switches whose absence the explorer shows (`crates/cli/tests/all/explore.rs`). The absence of such a rule shows
/// only with a snapshot of one moment, a death between two writes (of a split: here one seed of six thousand), or a
/// window that just ends. The absence of OOCC's switches did not show here in 2,000 seeds.
const IN_THE_EXPLORER: &[(&str, &str)] = &[
    ("motor", "-stamp-first"),
    ("ford", "-sibling-with-split"),
    ("oocc", "-raise-before-validation"),
    ("oocc", "-first-line-first"),
    ("oocc", "-count-from-acks"),
    ("oocc", "-refuse-intent"),
    ("oocc", "-implicit,-count-before-reading"),
    ("oocc", "-implicit,-ask-behind-locks"),
    // With an earlier build this bug showed here in one seed of nine thousand. Now it shows in none of a hundred
    // thousand seeds.
    ("oocc", "-implicit,-count-at-once"),
    ("oocc", "-sibling-with-split"),
    // The first of these two bugs showed here in one seed of three thousand, and the second in no seed.
    ("2pl", "-check-fences"),
    ("2pl", "-sibling-with-split"),
];

/// Switches whose absence shows in a separate test, which begins at a later seed.
const LATE: &[(&str, &str)] = &[("oocc", "-mark-decided")];

/// Switches whose absence a test of the engine shows, at one exact moment. Without `copy-under-locks` a WRITE must reach the
/// joining copy three rounds of the copier before it reaches the primary, and no later WRITE may repair the copy. No seed
/// of 2,000 has that (the engine's `granted_copies.rs`).
const IN_THE_ENGINE: &[(&str, &str)] = &[("2pl/fisslock", "-copy-under-locks")];

/// Switches that change only the cost, even if nodes die.
const HARMLESS: &[(&str, &str)] = &[
    ("ford", "-log-every-group"),
    ("ford", "-write-changes-only"),
    ("ford", "-share-doorbells"),
    ("ford", "-await-log"),
    ("motor", "-read-together"),
    ("motor", "-deltas"),
    ("motor", "-at-once"),
    ("motor", "-share-doorbells"),
    ("motor", "-deltas,-at-once"),
    ("oocc", "-intent"),
    ("oocc", "-write-unlock"),
    ("oocc", "-lease"),
    ("oocc", "-implicit"),
    ("oocc", "-exclusive-if-reads"),
    ("oocc", "-stillness"),
    ("oocc", "-half-lines"),
    // This switch has an effect only with near memory, which these tests do not use. The engine's `multi_get.rs`
    // shows the bug on real threads.
    ("oocc", "-announce-writes"),
    // This bug needs a death of a memory node and of a compute node after a refusal. No seed of 20,000 had both
    // deaths. The engine's `taken_back.rs` tests this case.
    ("oocc", "-take-log-back"),
    // This bug needs five transactions in one order, and did not show here. The engine's `explicit_leases.rs` tests
    // this order.
    ("oocc", "-implicit,-exclusive-if-explicit"),
    ("drtm", "-share-leases"),
    ("drtm", "-lock-together"),
    ("dslr", "-wide-counts"),
    // This switch has an effect only if nodes die, and DSLR gives no guarantee in this case.
    ("dslr", "-sibling-with-split"),
];

fn sum(subject: &Subject, first_seed: u64, schedules: u64) -> Sum {
    let order = Order {
        subject: subject.clone(),
        first_seed,
        schedules,
        jobs: 2,
        budget: None,
        failures_max: 1,
    };
    let mut sum = run_all(&order, &|_| {}).expect("a subject");
    sum.finish(subject);
    sum
}

/// Asserts that the program finds the bug, and that the printed command finds the bug again.
#[track_caller]
fn is_found_and_replayed(subject: &Subject, first_seed: u64, bug: &str) {
    let sum = sum(subject, first_seed, FOUND_WITHIN);
    let failed = sum.failed.unwrap_or_else(|| panic!("{bug}: not found by {FOUND_WITHIN} seeds"));
    println!("{bug}: seed {}, {:?}: {}", failed.seed, failed.kind, failed.replay);
    let line = failed.replay.strip_prefix("tarn ").expect("a command of this program");
    let replayed = tarn_line(&format!("{line} --json"));
    assert_eq!(replayed.code, Some(1), "{bug}: {}", replayed.err);
    assert!(replayed.err.contains(&failed.replay), "{bug}: {}", replayed.err);
    let report: Value = serde_json::from_str(&replayed.out).expect("one object");
    assert_eq!(report["failed"]["digest"], failed.digest, "{bug}: another trace");
    assert_eq!(report["failed"]["counterexample"], failed.counterexample, "{bug}");
}

#[test]
fn every_planted_bug_is_found_and_replayed_to_the_same_trace() {
    let is_planted =
        |rare: &(&str, &str, u64)| PLANTED.iter().any(|it| (it.0, it.1) == (rare.0, rare.1));
    assert!(RARE.iter().all(is_planted));
    for (protocol, missing, bug) in PLANTED {
        let rare = RARE.iter().find(|it| (it.0, it.1) == (*protocol, *missing));
        let subject = Subject::of(protocol, &format!("corrected,{missing}"));
        is_found_and_replayed(&subject, rare.map_or(0, |it| it.2), bug);
    }
    let ford = |variant: &str| Subject::of("ford", variant);
    is_found_and_replayed(&ford("literal"), 0, "the paper's text");
    is_found_and_replayed(&ford("measured"), 0, "the public code");
    let torn = Subject { torn_lines: true, ..ford("corrected") };
    is_found_and_replayed(&torn, 0, "torn lines");
}

#[test]
fn every_switch_is_planted_or_harmless() {
    // Another file, `lotus.rs` of the laboratory, tests the switches of LOTUS.
    for info in ALL.iter().filter(|info| info.name != "lotus") {
        for switch in info.switches {
            let is_it = |&(protocol, missing): &(&str, &str)| {
                // If an entry of the list turns off several switches, the entry tests the last of them.
                let last = missing.rsplit(',').next().unwrap_or(missing);
                let name = last.trim_start_matches("unsafe-no").trim_start_matches('-');
                protocol == info.name && name == switch.name
            };
            let planted = PLANTED.iter().any(|&(protocol, missing, _)| is_it(&(protocol, missing)));
            let harmless = HARMLESS.iter().any(is_it);
            let elsewhere = IN_CRASHES.iter().chain(IN_THE_EXPLORER).chain(IN_THE_ENGINE);
            let in_crashes = elsewhere.chain(LATE).any(is_it);
            let kinds = [planted, in_crashes, harmless].into_iter().filter(|it| *it).count();
            assert!(kinds == 1, "{} {}: planted or harmless?", info.name, switch.name);
        }
    }
    for (protocol, missing) in HARMLESS {
        let sum = sum(&Subject::of(protocol, &format!("corrected,{missing}")), 0, 100);
        assert_eq!(sum.failed, None, "{sum}");
    }
}

#[test]
fn bad_flags_end_in_one_line_with_the_allowed_values() {
    let refused = [
        ("--schedules 0", "error: --schedules = 0; allowed: ", "1 to "),
        ("--schedules many", "error: --schedules = many; ", "a whole number"),
        ("--jobs 0", "error: --jobs = 0; allowed: ", "1 to 1024"),
        ("--seconds 0", "error: --seconds = 0; allowed: ", "0.001 to "),
        ("--seconds nan", "error: --seconds = NaN; allowed: ", "0.001 to "),
        ("--seed -1", "error: --seed = -1; ", "a whole number"),
        ("--seed 1 --first-seed 2", "error: --seed = given together with ", "--first-seed"),
        ("--workload none", "error: --workload = none; allowed: ", "mixture, kvs"),
        ("--variant none", "error: --variant = none; allowed: ", "corrected"),
        ("--protocol none", "error: --protocol = none; allowed: ", "ford"),
        ("--plant none", "error: --plant = none; allowed: ", "torn-lines"),
        (
            "--plant drift",
            "error: --plant = drift, with the protocol ford; allowed: ",
            "rests on clocks",
        ),
        (
            "--schedules 2 --first-seed 18446744073709551615",
            "error: --schedules = 2; ",
            "1 to 1 from",
        ),
    ];
    assert_refused("sim random", &refused);
}

#[test]
fn a_budget_of_time_ends_the_run_with_a_sum() {
    let ended = tarn_line("sim random --seconds 1 --first-seed 5000 --workload smallbank --json");
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).expect("one object");
    assert!(report["seeds_passed"].as_u64().is_some_and(|seeds| seeds > 0));
    assert_eq!(report["first_seed"], 5000);
    for key in ["aborts", "phases", "conflicts", "events", "digest", "not_reached", "elsewhere"] {
        assert!(report.get(key).is_some(), "{key}");
    }
    assert!(report["wall"]["seeds_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
    assert!(tarn_line("sim random --help").out.contains("Examples:"));
}
