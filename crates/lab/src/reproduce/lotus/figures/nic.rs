//! Section 2.2: what one NIC answers. The profile's constants were taken from these figures, so that they
//! say whether the model charges what the profile says.

use super::super::Sheet;
use super::super::targets::NIC;
use super::{Done, Jobs, Section};
use crate::reproduce::paper::case::Missing;
use crate::reproduce::paper::sheet::{Answer, Found};
use crate::simulate::nic::{Point, Verbs, measure};
use tarn_fabric::round::VerbKind;

pub(super) const SECTION: Section = Section {
    name: "nic",
    title: "Section 2.2: what one NIC answers",
    targets: NIC,
    jobs: |_| Jobs::default(),
    fill,
};

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let rate = |verb| -> Answer {
        let point = Point::Verbs(Verbs { verb, ..Verbs::clients(8) });
        let measured = measure(done.profile, "inbound", point);
        let measured = measured.map_err(|error| Missing(error.to_string()))?;
        let busy = measured.busy.iter().take(2);
        let busy: Vec<String> =
            busy.map(|it| format!("{} {:.0} %", it.part, it.share * 100.0)).collect();
        Ok(Found { value: measured.rate_mops, busy: busy.join(", ") })
    };
    sheet.fill("one NIC", "inbound WRITE of 8 B", &|_| rate(VerbKind::Write));
    sheet.fill("one NIC", "inbound CAS of 8 B", &|_| rate(VerbKind::CompareAndSwap));
    sheet.note(
        "both rates are constants of the profile: these rows say that the model charges them",
    );
}
