//! Tests of axes and grids.
//!
//! Invariant checked: a grid contains each combination of the axes' values exactly once. A text that describes no
//! axis is refused, and the error names the text.

use super::*;

#[test]
fn axes_are_read_and_bad_ones_named() {
    let axis = Axis::parse("replicas=1, 3").expect("an axis");
    assert_eq!((axis.name.as_str(), axis.values), ("replicas", vec!["1".into(), "3".into()]));
    let axis = Axis::parse("variant=literal;corrected,-fuse-log").expect("an axis");
    assert_eq!(axis.values, ["literal", "corrected,-fuse-log"]);
    for (text, allowed) in [
        ("", "PARAMETER="),
        ("replicas", "PARAMETER="),
        ("=1", "PARAMETER="),
        ("replicas=", "none empty"),
        ("replicas=1,,3", "none empty"),
        ("replicas=1,1", "every value once"),
    ] {
        let error = Axis::parse(text).expect_err(text);
        assert!(error.allowed.contains(allowed), "{text}: {error}");
    }
}

#[test]
fn a_grid_has_every_combination_once_and_is_limited() {
    let axis = |text| Axis::parse(text).expect("an axis");
    let base = ["sim".to_owned(), "kvs".to_owned()];
    let points = grid(&base, &[axis("a=1,2"), axis("b=x,y,z")]).expect("a grid");
    let names: Vec<String> = points.iter().map(Point::name).collect();
    assert_eq!(names, ["a=1 b=x", "a=1 b=y", "a=1 b=z", "a=2 b=x", "a=2 b=y", "a=2 b=z"]);
    assert_eq!(points[3].arguments, ["sim", "kvs", "--a=2", "--b=x"]);
    assert!(grid(&base, &[axis("a=1"), axis("a=2")]).is_err());
    assert!(grid(&base, &[]).is_err());
    let many: Vec<String> = (0..POINTS_MAX).map(|value| value.to_string()).collect();
    let many = Axis { name: "seed".into(), values: many };
    assert_eq!(grid(&base, std::slice::from_ref(&many)).map(|it| it.len()), Ok(POINTS_MAX));
    let error = grid(&base, &[many, axis("b=1,2")]).expect_err("too many");
    assert_eq!(error.value, "2000 points");
}
