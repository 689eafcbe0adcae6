//! The commands of `tarn lock`, without their command line.

use super::common::Cluster;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tarn_locks::service::Patience;
use tarn_locks::value::{LockId, Mode};
use tarn_net::program::{self, Held, OnLoss, ProgramError};

fn held(lock: u32, patience: Patience, command: &[&str]) -> Held {
    Held {
        lock: LockId(lock),
        mode: Mode::Exclusive,
        patience,
        on_loss: OnLoss::Kill,
        command: command.iter().map(Into::into).collect(),
    }
}

fn run(cluster: &Cluster, held: &Held) -> (Result<u8, ProgramError>, Vec<String>) {
    let told = Mutex::new(Vec::new());
    let never = AtomicBool::new(false);
    let tell = |line| told.lock().expect("no panic").push(line);
    let ended = program::run(&cluster.config.file, held, &never, tell);
    (ended, told.into_inner().expect("no panic"))
}

#[test]
fn a_command_gets_its_token_and_gives_its_exit_code() {
    let cluster = Cluster::start();
    let shell = "test \"$TARN_LOCK_TOKEN\" = 1.1 && exit 7";
    let held = held(3, Patience::Forever, &["sh", "-c", shell]);
    assert_eq!(run(&cluster, &held).0, Ok(7));
    assert_ne!(run(&cluster, &held).0, Ok(7), "each holder has a token of its own");
}

#[test]
fn a_command_without_its_lock_does_not_run() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let _held = client.acquire_blocking(LockId(3), Mode::Exclusive).expect("granted");
    let marker = cluster.folder.path().join("marker");
    let touch = ["touch", marker.to_str().expect("a name")];
    // The time is also for joining the cluster, on a machine that runs other tests.
    for patience in [Patience::Try, Patience::Nanos(2_000_000_000)] {
        let Err(ProgramError::Failed(text)) = run(&cluster, &held(3, patience, &touch)).0 else {
            panic!("it runs")
        };
        assert!(text.starts_with("lock 3: "), "{text}");
    }
    assert!(!marker.exists());
    let Err(ProgramError::Usage(text)) = run(&cluster, &held(1_000, Patience::Try, &touch)).0
    else {
        panic!("no such lock")
    };
    assert_eq!(text, "--lock = 1000; allowed: 0 to 999");
    let missing = run(&cluster, &held(4, Patience::Try, &["no/such/program"])).0;
    assert!(matches!(missing, Err(ProgramError::Usage(_))), "{missing:?}");
}

/// A time-out ends the wait for a decider as it ends the wait for a lock.
#[test]
fn a_command_waits_for_a_decider_only_as_long_as_it_may() {
    let mut cluster = Cluster::start();
    cluster.decider.stop();
    let never = AtomicBool::new(false);
    for (patience, least_ms) in [(Patience::Try, 0), (Patience::Nanos(500_000_000), 500)] {
        let begun = Instant::now();
        let held = held(3, patience, &["true"]);
        let ended = program::run(&cluster.config.file, &held, &never, |_| {});
        let took = begun.elapsed();
        let Err(ProgramError::Failed(text)) = ended else { panic!("{ended:?}") };
        assert!(text.contains("no decider at "), "{text}");
        // A client without a time-out waits for 10 s.
        assert!(took >= Duration::from_millis(least_ms), "{took:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

#[test]
fn a_command_whose_lock_is_lost_is_ended() {
    let mut cluster = Cluster::start();
    let held = held(3, Patience::Forever, &["sleep", "30"]);
    std::thread::scope(|scope| {
        let file = cluster.config.file.clone();
        let runs = scope.spawn(move || {
            let told = Mutex::new(Vec::new());
            let never = AtomicBool::new(false);
            let tell = |line| told.lock().expect("no panic").push(line);
            let ended = program::run(&file, &held, &never, tell);
            (ended, told.into_inner().expect("no panic"))
        });
        let begun = Instant::now();
        while program::status(&cluster.config.file).map_or(0, |status| status.held) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(10), "the command does not run");
            std::thread::sleep(Duration::from_millis(10));
        }
        let begun = Instant::now();
        cluster.decider.stop();
        let (ended, told) = runs.join().expect("no panic");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(matches!(ended, Err(ProgramError::Failed(_))), "{ended:?}");
        assert_eq!(told.len(), 1, "{told:?}");
    });
}

#[test]
fn the_state_is_told_and_a_view_can_be_begun() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let guard = client.acquire_blocking(LockId(3), Mode::Exclusive).expect("granted");
    let status = program::status(&cluster.config.file).expect("an answer");
    assert_eq!((status.view, status.is_serving, status.held), (1, true, 1));
    assert_eq!(status.members.len(), 1);
    let said = program::recover(Some(&cluster.config.file), None).expect("a new view");
    assert!(said.starts_with("view 2 "), "{said}");
    let begun = Instant::now();
    while client.status().life.is_none_or(|(_, view)| view.0 < 2) || client.status().is_paused {
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", client.status());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(guard.is_valid(), "a holder that lives keeps its lock");
    let text = program::status_text(&program::status(&cluster.config.file).expect("an answer"));
    assert!(text.starts_with("view 2: serves; 1 of 1000 locks are held; 1 machines"), "{text}");
}
