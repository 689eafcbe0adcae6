//! Tests of the pool that runs points of a sweep. The pool's reports must equal the reports of points that run alone.
//! An error must name its point.
//!
//! Invariant: no process outlives its pool.

use crate::common::tarn;
use serde_json::Value;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use tarn_lab::sweep::pool::{Done, Pool, PoolError, Silent, Watch};
use tarn_lab::sweep::{Axis, Point, grid};

const BASE: [&str; 6] = ["sim", "kvs", "--records", "500", "--coordinators", "8"];

fn pool(jobs: usize) -> Pool {
    Pool::new(PathBuf::from(env!("CARGO_BIN_EXE_tarn")), jobs)
}

fn points(axes: &[&str]) -> Vec<Point> {
    let axes: Vec<Axis> = axes.iter().map(|text| Axis::parse(text).expect("an axis")).collect();
    grid(&BASE.map(String::from), &axes).expect("a grid")
}

fn without_wall(mut report: Value) -> Value {
    report.as_object_mut().expect("an object").remove("wall").expect("wall");
    report
}

#[test]
fn a_point_beside_others_reports_the_same_as_alone() {
    let points = points(&["virtual-ms=0.2", "replicas=1,3", "seed=1,2,3"]);
    let done = pool(3).run(&points, &Silent, &AtomicBool::new(false)).expect("reports");
    assert_eq!(done.len(), 6);
    for (point, done) in points.iter().zip(done) {
        assert!(done.passed && done.seconds > 0.0);
        let mut arguments = point.arguments.clone();
        arguments.push("--json".into());
        let alone = serde_json::from_str(&tarn(&arguments).out).expect("an object");
        assert_eq!(without_wall(done.report), without_wall(alone), "{}", point.name());
    }
}

#[test]
fn a_failing_point_is_named_with_its_error() {
    let points = points(&["replicas=1,3", "memory-nodes=3,2"]);
    let error = pool(2).run(&points, &Silent, &AtomicBool::new(false)).expect_err("3 of 2");
    let PoolError::Failed { point, why, is_usage } = error else { panic!("{error}") };
    assert_eq!((point.as_str(), is_usage), ("replicas=3 memory-nodes=2", true));
    assert!(why.starts_with("--replicas = 3; allowed: 1 to 2"), "{why}");

    let nowhere = Pool::new(PathBuf::from("no/such/program"), 1);
    let error = nowhere.run(&points, &Silent, &AtomicBool::new(false)).expect_err("no program");
    assert!(error.to_string().contains("no/such/program does not start"), "{error}");
}

/// Stops the pool when the first point of the sweep has ended.
struct Stopper<'a> {
    stop: &'a AtomicBool,
    begun: RefCell<Vec<String>>,
}

impl Watch for Stopper<'_> {
    fn begins(&self, point: &Point) {
        self.begun.borrow_mut().push(point.name());
    }

    fn ended(&self, _: &Point, _: &Done, finished: usize, of: usize) {
        assert_eq!((finished, of), (1, 3));
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_interruption_names_unfinished_points() {
    // The second point takes minutes, unless the pool ends it.
    let points = points(&["virtual-ms=0.2,60000,0.3"]);
    let stop = AtomicBool::new(false);
    let watch = Stopper { stop: &stop, begun: RefCell::default() };
    let error = pool(2).run(&points, &watch, &stop).expect_err("it was stopped");
    let PoolError::Interrupted { running, finished, of } = &error else { panic!("{error}") };
    assert_eq!((finished, of), (&1, &3));
    assert!(running.contains(&"virtual-ms=60000".to_owned()), "{error}");
    assert!(error.to_string().starts_with("interrupted after 1 of 3 points; not finished: "));
}

#[test]
fn points_wait_for_memory_but_one_always_runs() {
    let mut points = points(&["virtual-ms=0.2", "seed=1,2,3"]);
    points.iter_mut().for_each(|point| point.memory_bytes = u64::MAX / 8);
    struct Alone(RefCell<usize>);
    impl Watch for Alone {
        fn begins(&self, _: &Point) {
            *self.0.borrow_mut() += 1;
            assert_eq!(*self.0.borrow(), 1, "two at once");
        }
        fn ended(&self, _: &Point, _: &Done, _: usize, _: usize) {
            *self.0.borrow_mut() -= 1;
        }
    }
    let done = pool(3).run(&points, &Alone(RefCell::default()), &AtomicBool::new(false));
    assert_eq!(done.map(|done| done.len()), Ok(3));
}
