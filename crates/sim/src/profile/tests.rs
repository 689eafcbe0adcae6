//! Tests that the built-in profiles are complete, and that the error for a bad profile names the bad
//! constant.

use super::*;

fn text() -> &'static str {
    EMBEDDED[0].1
}

fn refusal(from: &str, to: &str) -> String {
    assert!(text().contains(from), "the planted text is there: {from}");
    Profile::parse("planted.toml", &text().replacen(from, to, 1)).expect_err("refused").to_string()
}

#[test]
fn every_profile_loads_under_its_own_name() {
    for name in Profile::names() {
        let profile = Profile::load(name).unwrap();
        assert_eq!(profile.name, name);
        assert_eq!(profile.constants().len(), 57);
    }
}

#[test]
fn an_unknown_profile_names_the_known_ones() {
    let text = Profile::load("cx9").expect_err("refused").to_string();
    assert!(text.contains("profile = cx9"), "{text}");
    assert!(text.contains("cx3-56g, cx5-100g, cx6-200g"), "{text}");
    let text = Profile::load("none/at/all.toml").expect_err("refused").to_string();
    assert!(text.contains("none/at/all.toml"), "{text}");
}

#[test]
fn an_unknown_constant_is_refused() {
    let text = refusal("switch_ns = {", "swicth_ns = {");
    assert!(text.contains("planted.toml") && text.contains("swicth_ns"), "{text}");
    assert!(text.contains("expected one of") && text.contains("`switch_ns`"), "{text}");
}

#[test]
fn impossible_values_and_missing_sources_are_refused() {
    let profile = || Profile::load("cx3-56g").unwrap();
    let text = profile().with("nic.read_mops", -1.0).expect_err("refused").to_string();
    assert_eq!(text, "cx3-56g: nic.read_mops = -1; allowed: 0.001 to 10000");
    let text = profile().with("nic.raed_mops", 1.0).expect_err("refused").to_string();
    assert!(
        text.contains("no constant `nic.raed_mops`") && text.contains("nic.read_mops"),
        "{text}"
    );
    let text = refusal("standing = \"measured\"", "standing = \"guessed\"");
    assert!(text.contains("guessed") && text.contains("`assumed`"), "{text}");
    let mut nameless = profile();
    nameless.link.switch_ns.source = " ".into();
    let text = nameless.validate("planted.toml").expect_err("refused").to_string();
    assert!(text.contains("planted.toml: link.switch_ns.source is empty"), "{text}");
}

#[test]
fn a_replaced_constant_says_so() {
    let profile = Profile::load("cx6-200g").unwrap().with("link.switch_ns", 7.0).unwrap();
    assert_eq!(profile.link.switch_ns.value, 7.0);
    assert_eq!(profile.link.switch_ns.standing, Standing::Assumed);
}

#[test]
fn a_set_constant_is_remembered_with_its_old_value() {
    let profile = || Profile::load("cx5-100g").unwrap();
    assert_eq!(profile().changes, []);
    let set =
        profile().set("nic.read_mops", "20").unwrap().set("form.atomic_unit", "serial").unwrap();
    assert_eq!((set.nic.read_mops.value, set.form.atomic_unit.value), (20.0, AtomicUnit::Serial));
    let text = |change: &Change| format!("{} {} {}", change.key, change.value, change.was);
    let changes: Vec<String> = set.changes.iter().map(text).collect();
    assert_eq!(changes, ["nic.read_mops 20 75", "form.atomic_unit serial per-address"]);
    let refused = |key, text| profile().set(key, text).expect_err("refused").to_string();
    assert_eq!(
        refused("nic.read_mops", "fast"),
        "cx5-100g: nic.read_mops = fast; allowed: a number"
    );
    assert_eq!(
        refused("nic.read_mops", "NaN"),
        "cx5-100g: nic.read_mops = NaN; allowed: 0.001 to 10000"
    );
    let text = refused("form.framing", "token-ring");
    assert!(text.contains("token-ring") && text.contains("`roce-v2`"), "{text}");
    assert!(
        refused("nic", "1").contains("form.doorbells, form.framing, cpu.switch_ns"),
        "{}",
        refused("nic", "1")
    );
}
