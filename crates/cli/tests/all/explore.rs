//! Runs the litmus suite through the program. If a rule is turned off, the program must find the error in a short
//! trace, and the printed replay must print the same again.
//!
//! Invariant checked: each switch of each protocol is turned off in this file, or is known to change only the cost. A
//! planted bug shows in the named litmus within `STEPS_MAX` verbs and events.

use crate::common::{assert_refused, tarn, tarn_line};
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use tarn_engine::protocol::ALL;
use tarn_lab::explore::order::{FaultKind, Order};
use tarn_lab::explore::report::Sum;
use tarn_lab::explore::run::run;
use tarn_lab::schedules::mixture::Layout;
use tarn_sim::explore::Bounds;
use tarn_store::history::fingerprint;

/// The greatest number of verbs that took effect and other events in a whole execution.
const STEPS_MAX: usize = 30;

/// Limits for items that a test does not explore completely. A number of executions is the same on every machine, but
/// a number of seconds is not.
const BOUNDED: Bounds = Bounds { executions: 2_000, ..Bounds::NONE };
const BRIEF: Bounds = Bounds { executions: 100, ..Bounds::NONE };

/// A rule that is turned off, and the litmus, shape and fault with which its absence shows.
struct Planted {
    protocol: &'static str,
    missing: &'static str,
    litmus: &'static str,
    shape: &'static str,
    fault: FaultKind,
}

const fn planted(
    protocol: &'static str,
    (missing, litmus): (&'static str, &'static str),
    shape: &'static str,
    fault: FaultKind,
) -> Planted {
    Planted { protocol, missing, litmus, shape, fault }
}

const PLANTED: &[Planted] = &[
    planted("ford", ("-validate-reads", "write-skew"), "2x2", FaultKind::None),
    planted("ford", ("-refuse-locked", "fractured-read"), "2x2", FaultKind::None),
    planted("ford", ("-unlock-late", "lost-update"), "2x2", FaultKind::None),
    planted("ford", ("-release-granted", "lost-update"), "2x2", FaultKind::None),
    planted("ford", ("-write-after-validation", "dirty-read"), "2x2", FaultKind::None),
    planted("ford", ("-protect-absent", "phantom"), "2x2", FaultKind::None),
    planted("ford", ("-release-on-abort", "user-abort"), "2x2", FaultKind::None),
    planted("ford", ("unsafe-no-lock-cas", "lost-update"), "2x2", FaultKind::None),
    planted("ford", ("-validate-after-locks", "write-skew"), "2x2", FaultKind::None),
    planted("ford", ("-keep-version", "stale-address"), "1x1", FaultKind::None),
    planted("ford", ("-fuse-log", "intermediate-read"), "2x2", FaultKind::Zombie),
    planted("ford", ("-fence-before-recovery", "intermediate-read"), "1x1", FaultKind::Compute),
    planted("ford", ("-settle-before-log", "successor"), "1x1", FaultKind::Compute),
    planted("ford", ("-release-own", "three-writers"), "1x1", FaultKind::Compute),
    planted("ford", ("-protect-ranges", "range-phantom"), "1x1", FaultKind::None),
    planted("ford", ("-sibling-with-split", "split-lost"), "1x1", FaultKind::Compute),
    planted("ford", ("-check-fences", "split-leaf"), "1x1", FaultKind::None),
    planted("motor", ("-validate-reads", "write-skew"), "1x1", FaultKind::None),
    planted("motor", ("-refuse-locked", "write-skew"), "1x1", FaultKind::None),
    planted("motor", ("-wait-for-locked", "half-commit"), "1x1", FaultKind::None),
    planted("motor", ("-stamp-first", "read-only-anomaly"), "1x1", FaultKind::None),
    planted("motor", ("-check-head", "torn-row"), "1x1", FaultKind::None),
    planted("motor", ("-too-old", "delete-reader"), "1x1", FaultKind::None),
    planted("motor", ("-await-replicas", "lost-update"), "1x1", FaultKind::Compute),
    planted("motor", ("-unlock-late", "lost-update"), "2x2", FaultKind::None),
    planted("motor", ("-undo-log", "lost-update"), "1x1", FaultKind::Compute),
    planted("motor", ("-protect-absent", "phantom"), "1x1", FaultKind::None),
    planted("motor", ("-release-granted", "lost-update"), "1x1", FaultKind::None),
    planted("motor", ("-release-on-abort", "user-abort"), "2x2", FaultKind::None),
    planted("motor", ("unsafe-no-lock-cas", "lost-update"), "2x2", FaultKind::None),
    planted("motor", ("-settle-before-log", "successor"), "1x1", FaultKind::Compute),
    planted("lotus", ("-lower-bound", "half-commit"), "1x1", FaultKind::None),
    planted("lotus", ("-keep-newest", "long-reader"), "1x1", FaultKind::None),
    planted("lotus", ("-too-old", "long-reader"), "1x1", FaultKind::None),
    planted("lotus", ("-release-on-abort", "user-abort"), "1x1", FaultKind::None),
    planted("lotus", ("-any-visible", "half-commit"), "2x1", FaultKind::Zombie),
    planted("lotus", ("-fence-before-recovery", "lost-update"), "1x1", FaultKind::Compute),
    planted("lotus", ("-settle-before-log", "successor"), "2x1", FaultKind::Compute),
    planted("lotus", ("-protect-ranges", "range-skew"), "1x1", FaultKind::None),
    planted("lotus", ("-mark-nodes", "range-phantom"), "1x1", FaultKind::None),
    planted("lotus", ("-keep-unchanged", "cache-fill"), "1x1", FaultKind::None),
    planted("motor", ("-protect-ranges", "range-phantom"), "1x1", FaultKind::None),
    planted("occ", ("-validate-reads", "write-skew"), "2x2", FaultKind::None),
    planted("occ", ("-refuse-locked", "fractured-read"), "2x2", FaultKind::None),
    planted("occ", ("-unlock-late", "lost-update"), "2x2", FaultKind::None),
    planted("occ", ("-release-granted", "lost-update"), "2x2", FaultKind::None),
    planted("occ", ("-protect-absent", "phantom"), "2x2", FaultKind::None),
    planted("occ", ("-release-on-abort", "user-abort"), "2x2", FaultKind::None),
    planted("occ", ("unsafe-no-lock-cas", "lost-update"), "2x2", FaultKind::None),
    planted("occ", ("-keep-version", "stale-address"), "1x1", FaultKind::None),
    planted("occ", ("-log-after-validation", "write-skew"), "2x2", FaultKind::Compute),
    planted("occ", ("-fence-before-recovery", "intermediate-read"), "1x1", FaultKind::Compute),
    planted("occ", ("-settle-before-log", "successor"), "1x1", FaultKind::Compute),
    planted("occ", ("-release-own", "three-writers"), "1x1", FaultKind::Compute),
    planted("occ", ("-protect-ranges", "range-phantom"), "1x1", FaultKind::None),
    planted("occ", ("-sibling-with-split", "split-lost"), "1x1", FaultKind::Compute),
    planted("occ", ("-check-fences", "split-leaf"), "1x1", FaultKind::None),
    planted("oocc", ("-validate-read-write", "write-skew"), "2x2", FaultKind::None),
    planted("oocc", ("-refuse-locked", "fractured-read"), "2x2", FaultKind::None),
    planted("oocc", ("-refuse-intent", "read-only-anomaly"), "2x2", FaultKind::None),
    planted("oocc", ("-raise-before-validation", "late-read"), "2x2", FaultKind::None),
    planted("oocc", (INTENT_FOR_ALL, "read-only-anomaly"), "2x2", FaultKind::None),
    planted("oocc", ("-check-lines", "torn-row"), "2x2", FaultKind::None),
    planted("oocc", ("-count-from-acks", "fractured-read"), "2x2", FaultKind::None),
    planted("oocc", ("-implicit,-count-before-reading", "fractured-read"), "2x2", FaultKind::None),
    planted("oocc", ("-implicit,-ask-behind-locks", "fractured-read"), "2x2", FaultKind::None),
    planted("oocc", ("-implicit,-count-at-once", "later-read"), "2x2", FaultKind::None),
    planted("oocc", ("-unlock-late", "lost-update"), "2x2", FaultKind::None),
    planted("oocc", ("-unlock-late", "lost-update"), "2x2", FaultKind::Memory),
    planted("oocc", ("-protect-absent", "phantom"), "2x2", FaultKind::None),
    planted("oocc", ("-release-granted", "lost-update"), "2x2", FaultKind::None),
    planted("oocc", ("unsafe-no-lock-cas", "lost-update"), "2x2", FaultKind::None),
    planted("oocc", ("-keep-version", "stale-address"), "1x1", FaultKind::None),
    planted("oocc", ("-writer-tag", "write-skew"), "2x2", FaultKind::Compute),
    planted("oocc", ("-first-line-first", "torn-row"), "2x2", FaultKind::Compute),
    planted("oocc", ("-fence-before-recovery", "intermediate-read"), "1x1", FaultKind::Compute),
    planted("oocc", ("-settle-before-log", "successor"), "1x1", FaultKind::Compute),
    planted("oocc", ("-protect-ranges", "range-phantom"), "1x1", FaultKind::None),
    planted("oocc", ("-sibling-with-split", "split-lost"), "1x1", FaultKind::Compute),
    planted("oocc", ("-check-fences", "split-leaf"), "1x1", FaultKind::None),
    planted("drtm", ("-confirm-leases", "fractured-read"), "2x2", FaultKind::None),
    planted("drtm", ("-wait-out-leases", "fractured-read"), "2x2", FaultKind::None),
    planted("drtm", ("-refuse-locked", "write-skew"), "2x2", FaultKind::None),
    planted("drtm", ("-unlock-late", "lost-update"), "2x2", FaultKind::None),
    planted("drtm", ("-release-granted", "lost-update"), "2x2", FaultKind::None),
    planted("drtm", ("-protect-absent", "phantom"), "2x2", FaultKind::None),
    planted("drtm", ("-release-on-abort", "user-abort"), "2x2", FaultKind::None),
    planted("drtm", ("unsafe-no-lock-cas", "lost-update"), "2x2", FaultKind::None),
    planted("drtm", ("-keep-version", "stale-address"), "1x1", FaultKind::None),
    planted("drtm", ("-fence-before-recovery", "intermediate-read"), "1x1", FaultKind::Compute),
    planted("drtm", ("-settle-before-log", "successor"), "1x1", FaultKind::Compute),
    planted("drtm", ("-release-own", "three-writers"), "1x1", FaultKind::Compute),
    planted("drtm", ("-protect-ranges", "range-phantom"), "1x1", FaultKind::None),
    planted("drtm", ("-sibling-with-split", "split-lost"), "1x1", FaultKind::Compute),
    planted("drtm", ("-check-fences", "split-leaf"), "1x1", FaultKind::None),
    planted("dslr", ("-wait-turn", "dirty-read"), "2x2", FaultKind::None),
    planted("dslr", ("-validate-reads", "absent-skew"), "2x2", FaultKind::None),
    planted("dslr", ("-refuse-locked", "absent-skew"), "2x2", FaultKind::None),
    planted("dslr", ("-protect-absent", "phantom"), "2x2", FaultKind::None),
    planted("dslr", ("-release-on-abort", "user-abort"), "2x2", FaultKind::None),
    planted("dslr", ("-keep-version", "stale-address"), "2x2", FaultKind::None),
    planted("dslr", ("-protect-ranges", "range-phantom"), "1x1", FaultKind::None),
    planted("dslr", ("-check-fences", "split-leaf"), "1x1", FaultKind::None),
    planted("2pl", ("-validate-reads", "absent-skew"), "2x2", FaultKind::None),
    planted("2pl", ("-refuse-locked", "absent-skew"), "2x2", FaultKind::None),
    planted("2pl", ("-unlock-late", "lost-update"), "2x2", FaultKind::None),
    planted("2pl", ("-release-granted", "lost-update"), "2x2", FaultKind::None),
    planted("2pl", ("-protect-absent", "phantom"), "2x2", FaultKind::None),
    planted("2pl", ("-release-on-abort", "user-abort"), "2x2", FaultKind::None),
    planted("2pl", ("unsafe-no-lock-cas", "lost-update"), "2x2", FaultKind::None),
    planted("2pl", ("-keep-version", "stale-address"), "1x1", FaultKind::None),
    planted("2pl", ("-fence-before-recovery", "intermediate-read"), "1x1", FaultKind::Compute),
    planted("2pl", ("-settle-before-log", "successor"), "1x1", FaultKind::Compute),
    planted("2pl", ("-release-own", "three-writers"), "1x1", FaultKind::Compute),
    planted("2pl", ("-protect-ranges", "range-phantom"), "1x1", FaultKind::None),
    planted("2pl", ("-sibling-with-split", "split-lost"), "1x1", FaultKind::Compute),
    planted("2pl", ("-check-fences", "split-leaf"), "1x1", FaultKind::None),
    // In the explorer a request to a lock service is granted or refused at once. The crate `tarn-locks` searches all
    // orders of the service itself.
    planted("2pl/fisslock", ("-dead-holds-stay", "lost-update"), "1x1", FaultKind::Compute),
    planted("2pl/fisslock", ("-validate-reads", "absent-skew"), "2x2", FaultKind::None),
    planted("2pl/fisslock", ("-protect-absent", "absent-skew"), "1x1", FaultKind::None),
    planted("2pl/fisslock", ("-release-on-abort", "user-abort"), "2x2", FaultKind::None),
    planted("2pl/fisslock", ("-keep-version", "stale-address"), "1x1", FaultKind::None),
    planted("2pl/fisslock", FENCED, "1x1", FaultKind::Compute),
    planted("2pl/fisslock", ("-protect-ranges", "range-phantom"), "1x1", FaultKind::None),
];

/// The rule that no dead node writes while it is recovered, and its litmus.
const FENCED: (&str, &str) = ("-fence-before-recovery", "intermediate-read");

/// Two switches that are turned off together. The second switch alone costs a round and breaks nothing, because the
/// mark that lets readers pass is still raised in time.
const INTENT_FOR_ALL: &str = "-raise-before-validation,-exclusive-if-reads";

/// The greatest number of steps for stale cached paths. A path is stale only if a leaf was split after the path was
/// read and the separator of the new leaf was entered. The split and the entry alone take some forty verbs.
const STEPS_MAX_BY_STALE_WAYS: usize = 60;

/// Switches that change only the cost.
const HARMLESS: &[(&str, &str)] = &[
    ("ford", "-log-every-group"),
    ("ford", "-write-changes-only"),
    ("ford", "-share-doorbells"),
    ("ford", "-await-log"),
    ("motor", "-read-together"),
    ("motor", "-deltas"),
    ("motor", "-at-once"),
    ("motor", "-share-doorbells"),
    ("lotus", "-newest-in-sr"),
    ("lotus", "-version-cache"),
    ("lotus", "-locks-apart"),
    ("oocc", "-intent"),
    ("oocc", "-write-unlock"),
    ("oocc", "-lease"),
    ("oocc", "-implicit"),
    ("oocc", "-stillness"),
    ("oocc", "-half-lines"),
    ("drtm", "-share-leases"),
    ("drtm", "-lock-together"),
    ("dslr", "-wide-counts"),
    // This switch has an effect only if nodes die, and DSLR gives no guarantee in this case.
    ("dslr", "-sibling-with-split"),
];

/// Switches whose absence no exploration shows. Memory of versions is used again only after half a second, and
/// explored time does not pass (the engine's `lotus_torn.rs`). The rules `backups-first` and `whole-decision` have an
/// effect only if a memory node and a coordinator die while a reader runs. Half a million executions do not reach
/// this case (the engine's tests bring it about: `lotus_memory.rs`). The rule `await-survivors` has an effect when a
/// node opens shards of dead nodes, which no node does here. No transaction here repeats the reads to which
/// `stray-cells` applies. No index grows here, so the rules of splits have no effect (the engine's `growth_lotus.rs`,
/// `growth_weak.rs` and `growth_dies.rs`). Memory is not near here, and only readers of near memory check for writers
/// (the engine's `multi_get.rs`, and the fabric's models).
const UNSEEN: &[(&str, &str)] = &[
    ("lotus", "-checksum"),
    ("lotus", "-backups-first"),
    ("lotus", "-whole-decision"),
    ("lotus", "-stray-cells"),
    ("lotus", "-await-survivors"),
    ("lotus", "-second-look"),
    ("lotus", "-lock-moved"),
    ("lotus", "-bucket-names"),
    ("lotus", "-forget-moved"),
    ("oocc", "-header-first"),
    ("oocc", "-announce-writes"),
    // This bug needs the death of a memory node after a refusal, and the death of the refused node (the engine's
    // `taken_back.rs`).
    ("oocc", "-take-log-back"),
    // This bug needs five transactions, which have too many orders to explore. The engine's `explicit_leases.rs` runs
    // the order that shows the bug.
    ("oocc", "-implicit,-exclusive-if-explicit"),
    // This bug needs the death of a memory node, and a copy beside a transaction. A hundred thousand steps lead there (the
    // engine's `granted_copies.rs`).
    ("2pl/fisslock", "-copy-under-locks"),
];

/// Switches whose absence no litmus shows within the time of a test. The random schedules show their absence:
/// `crates/cli/tests/all/schedules.rs`.
const IN_SCHEDULES: &[(&str, &str)] = &[
    // No bucket is read whole in the explorer.
    ("ford", "-prove-absent"),
    ("motor", "-prove-absent"),
    ("motor", "-fence-before-recovery"),
    ("motor", "-release-own"),
    ("lotus", "-drop-at-grant"),
    ("oocc", "-release-own"),
    // This bug needs the death of a memory node and of a compute node, and a transaction that has written between
    // them.
    ("oocc", "-followed-is-released"),
    // No manager changes leases in the explorer. Small programs in the simulator's tests have lease words that
    // change.
    ("oocc", "-compare-lease"),
    // This bug needs a dead writer that has changed a leaf on one node, and has not changed a record on another node.
    ("oocc", "-mark-decided"),
    // In the explorer a waiting transaction aborts when no other transaction can act, and only a few transactions
    // wait for one word.
    ("dslr", "-pass-in-turn"),
    ("dslr", "-wide-counts,-reset-at-rest"),
];

/// A switch that changes only the cost as long as no backup is promoted. The random schedules show its effect after a
/// promotion: `crates/cli/tests/all/schedules.rs`.
const HARMLESS_WITHOUT_DEATHS: &[(&str, &str)] = &[("ford", "-lock-at-primary")];

fn order(planted: &Planted) -> Order {
    let crashes = u32::from(planted.fault != FaultKind::None);
    Order {
        litmuses: vec![planted.litmus.to_owned()],
        shape: Some(planted.shape.parse().expect("a shape")),
        crashes,
        fault: (crashes > 0).then_some(planted.fault),
        ..Order::all(planted.protocol, &format!("corrected,{}", planted.missing))
    }
}

fn explored(order: &Order) -> Sum {
    run(order, &|_| {}).expect("an order that can be")
}

/// Tests readers that read by one call, with rounds. These readers also show the absence of each rule.
#[test]
fn missing_rules_are_found_by_readers_in_one_call() {
    let missing = [
        ("ford", "-validate-reads"),
        ("ford", "-refuse-locked"),
        ("occ", "-validate-reads"),
        ("occ", "-refuse-locked"),
        ("oocc", "-refuse-locked"),
        ("oocc", "-count-from-acks"),
    ];
    for (protocol, missing) in missing {
        for litmus in ["fractured-get", "get-in-turn"] {
            let sum =
                explored(&order(&planted(protocol, (missing, litmus), "2x2", FaultKind::None)));
            assert!(sum.total.violations > 0, "{protocol} {missing} {litmus}: {sum}");
        }
    }
}

/// Tests two records that share a line and, under OOCC, do not name their last writers. A correct variant stays
/// correct, even if nodes die. The test shows the absence of the rules that recovery needs for such records.
#[test]
fn records_of_half_a_line_are_explored() {
    let of = |litmus: &str, missing: &str, fault| {
        let variant = format!("corrected{missing}");
        let crashes = u32::from(fault != FaultKind::None);
        let (fault, litmuses) = ((crashes > 0).then_some(fault), vec![litmus.to_owned()]);
        // The test explores until the absence of the rule shows.
        let bounds = if missing.is_empty() { BOUNDED } else { Bounds::NONE };
        let order = Order { litmuses, crashes, fault, jobs: 2, ..Order::all("oocc", &variant) };
        explored(&Order { layout: Some(Layout::Half), bounds, ..order })
    };
    let all = of("all", "", FaultKind::None);
    assert!(all.is_good() && all.total.exhausted > all.total.items / 2, "{all}");
    for fault in FaultKind::ALL {
        for litmus in ["write-skew", "lost-update", "intermediate-read"] {
            let sum = of(litmus, "", fault);
            assert!(sum.is_good() && sum.litmus[0].broken > 0, "{sum}");
        }
    }
    let planted = [
        ("-writer-tag", "write-skew", FaultKind::Compute),
        ("-unlock-late", "lost-update", FaultKind::Memory),
        ("-refuse-locked", "fractured-read", FaultKind::None),
    ];
    for (missing, litmus, fault) in planted {
        let sum = of(litmus, &format!(",{missing}"), fault);
        let found = sum.violations().next().unwrap_or_else(|| panic!("{missing}: {sum}")).1;
        assert!(found.replay.contains(" --layout half "), "{}", found.replay);
        assert_eq!(tarn(&arguments(&found.replay)).code, Some(1), "{}", found.replay);
    }
}

/// Returns the arguments of the replay command, in the form in which the program takes them.
fn arguments(replay: &str) -> Vec<&str> {
    let line = replay.strip_prefix("tarn ").expect("a command of this program");
    line.split_whitespace().collect()
}

/// Two threads share the rules. Each rule is explored alone, and the table has the order of the rules.
#[test]
fn every_missing_rule_is_found_in_a_short_trace_and_replayed_byte_for_byte() {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut lines = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(planted) = PLANTED.get(at) else { return lines };
            lines.push((at, replay_of(planted)));
        }
    };
    let mut found = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mine = work();
        let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        [mine, other].concat()
    });
    found.sort_by_key(|(at, _)| *at);
    let replays: String = found.into_iter().map(|(_, line)| line).collect();
    assert_kept(&replays);
}

/// Finds a violation without the rule, replays it twice, and returns its line of the table.
fn replay_of(planted: &Planted) -> String {
    let sum = explored(&order(planted));
    let missing = planted.missing;
    let (row, found) = sum.violations().next().unwrap_or_else(|| panic!("{missing}: {sum}"));
    let kind = found.text.split(':').next().unwrap_or_default();
    println!(
        "{missing}: {} {} {}: {} steps, {} executions, {kind}",
        row.litmus, row.shape, row.fault, found.steps, row.executions
    );
    let most = match missing {
        "-check-fences" => STEPS_MAX_BY_STALE_WAYS,
        // Timestamps, and values that are stored apart from their heads, need more verbs for the same
        // transaction.
        _ if planted.protocol != "ford" => STEPS_MAX_BY_STALE_WAYS,
        _ => STEPS_MAX,
    };
    assert!(found.steps < most, "{missing}: {} steps\n{sum}", found.steps);
    let ended = tarn(&arguments(&found.replay));
    assert_eq!(ended.code, Some(1), "{missing}: {}", ended.err);
    assert!(ended.out.contains(found.text.lines().next().expect("a word")), "{}", ended.out);
    assert!(ended.out.contains("begins a transaction"), "{}", ended.out);
    assert_eq!(ended.out, tarn(&arguments(&found.replay)).out, "{missing}");
    let Planted { protocol, litmus, shape, .. } = planted;
    let (fault, print) = (row.fault, fingerprint(ended.out.trim_end().as_bytes()));
    let replay = &found.replay;
    format!("{protocol} {missing} {litmus} {shape} {fault} {print:016x} {replay}\n")
}

/// Compares the found replays with the stored table of replays. The table has the columns protocol, rule, litmus,
/// shape, fault, fingerprint of the drawn trace, and command. `TARN_BLESS=1 cargo test -p tarn-cli --test all
/// every_missing_rule` renews the table.
fn assert_kept(replays: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/replays.txt");
    if std::env::var_os("TARN_BLESS").is_some() {
        std::fs::write(path, replays).expect("the table can be written");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let differ = kept.lines().zip(replays.lines()).find(|(kept, found)| kept != found);
    assert!(kept == replays, "{path}: TARN_BLESS=1 renews it; kept and found: {differ:?}");
}

#[test]
fn every_switch_is_planted_or_harmless() {
    for info in ALL {
        for switch in info.switches {
            let is_it = |&(protocol, missing): &(&str, &str)| {
                // If an entry of the list turns off several switches, the entry tests the last of them.
                let last = missing.rsplit(',').next().unwrap_or(missing);
                let name = last.trim_start_matches("unsafe-no").trim_start_matches('-');
                protocol == info.name && name == switch.name
            };
            let planted = PLANTED.iter().any(|it| is_it(&(it.protocol, it.missing)));
            let elsewhere = HARMLESS.iter().chain(HARMLESS_WITHOUT_DEATHS).chain(IN_SCHEDULES);
            let elsewhere = elsewhere.chain(UNSEEN);
            let elsewhere = elsewhere.into_iter().any(is_it);
            assert!(planted != elsewhere, "{} {}: planted or harmless?", info.name, switch.name);
        }
    }
    for (protocol, missing) in HARMLESS.iter().chain(HARMLESS_WITHOUT_DEATHS) {
        // The other protocols have more orders of each litmus.
        let bounds = if *protocol == "ford" { BOUNDED } else { BRIEF };
        let order = Order::all(protocol, &format!("corrected,{missing}"));
        let sum = explored(&Order { bounds, jobs: 2, ..order });
        assert_eq!(sum.total.violations, 0, "{sum}");
    }
}

#[test]
fn a_replay_is_drawn_as_a_picture_that_appears_whole() {
    let sum = explored(&order(&PLANTED[2]));
    let (_, found) = sum.violations().next().expect("it is found");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.svg");
    let mut line = arguments(&found.replay);
    line.extend(["--svg", file.to_str().expect("a name")]);
    let mut pictures = Vec::new();
    for _ in 0..2 {
        let ended = tarn(&line);
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{}", ended.err);
        pictures.push(std::fs::read_to_string(&file).expect("it was written"));
    }
    assert!(pictures[0].starts_with("<svg") && pictures[0].ends_with("</svg>\n"));
    assert!(pictures[0].contains("x@M1 v2"), "what became of the backup");
    assert_eq!(pictures[0], pictures[1]);
}

#[test]
fn the_object_says_how_much_was_explored() {
    let ended = tarn_line("explore write-skew --json");
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).expect("one object");
    for part in [&report["total"], &report["litmus"][0]] {
        assert_eq!(part["outcome"], "exhausted");
        for key in ["executions", "states", "steps", "steps_per_s"] {
            assert!(part[key].as_f64().is_some_and(|number| number > 0.0), "{key}");
        }
    }
    assert_eq!(report["litmus"][0]["violations"], serde_json::json!([]));
    let ended = tarn_line("explore phantom --executions 3 --json");
    let report: Value = serde_json::from_str(&ended.out).expect("one object");
    assert_eq!(report["litmus"][0]["outcome"], "bounded");
    assert_eq!(report["litmus"][0]["bounded_by"], "executions");
}

#[test]
fn a_budget_is_shared_and_kept() {
    let ended = tarn_line("explore all --crashes 1 --budget 3 --json");
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let report: Value = serde_json::from_str(&ended.out).expect("one object");
    let seconds = report["total"]["seconds"].as_f64().expect("a number");
    assert!(seconds < 20.0, "{seconds} s of real time on a machine that others use too");
    assert!(report["litmus"].as_array().is_some_and(|rows| rows.len() > 40));
}

#[test]
fn bad_flags_end_in_one_line_with_the_allowed_values() {
    let refused = [
        ("none", "error: LITMUS = none; allowed: all, ", "write-skew"),
        ("", "error: LITMUS = nothing; allowed: all, ", "write-skew"),
        ("no/such.toml", "error: LITMUS = no/such.toml; allowed: ", "can be read"),
        ("all --protocol none", "error: --protocol = none; allowed: ", "ford"),
        ("all --variant none", "error: --variant = none; allowed: ", "corrected"),
        ("all --crashes 9", "error: --crashes = 9; allowed: ", "0 to 3"),
        ("all --fault flood", "error: --fault = flood; allowed: ", "compute, zombie, memory"),
        ("all --fault memory", "error: --fault = memory; allowed: ", "--crashes"),
        ("all --shape 1x2", "error: --shape = 1x2; allowed: ", "NODESxREPLICAS"),
        ("all --budget 0", "error: --budget = 0; allowed: ", "0.001 to "),
        ("all --jobs 0", "error: --jobs = 0; allowed: ", "1 to 1024"),
        ("all --depth 0", "error: --depth = 0; allowed: ", "1 to "),
        ("all --states none", "error: --states = none; ", "a whole number"),
        ("write-skew write-skew", "error: LITMUS = write-skew; allowed: ", "each litmus once"),
        ("write-skew all", "error: LITMUS = all; allowed: ", "each litmus once"),
        ("all write-skew", "error: LITMUS = write-skew; allowed: ", "each litmus once"),
        ("all --replay 0", "error: --replay = 0; allowed: ", "one litmus"),
        ("write-skew --replay 0-!", "error: --replay = 0-!; allowed: ", "base 36"),
        ("write-skew --svg x.svg", "error: ", "--replay"),
        ("write-skew --replay zz", "error: --replay = ", "tarn explore write-skew --shape 2x2"),
        ("write-skew --shape 2x2+9", "error: --shape = 2x2+9; allowed: ", "+SPARES"),
    ];
    assert_refused("explore", &refused);
    assert!(tarn_line("explore --help").out.contains("Examples:"));
    assert!(tarn_line("explore --list").out.contains("real-time"));
}
