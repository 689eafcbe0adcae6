//! Figure 12: TPC-C, where most transactions write.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::ORDERS;
use super::{
    Done, Jobs, Missing, Section, everybody, everybody_as, median, throughput, throughput_latency,
    versus, versus_lowest,
};

pub(super) const SECTION: Section = Section {
    name: "fig-12",
    title: "Figure 12: TPC-C, 8 warehouses, 32 coordinators",
    targets: ORDERS,
    jobs,
    fill,
};

fn jobs(extent: &Extent) -> Jobs {
    Jobs { cases: everybody(extent.tpcc(), &extent.tpcc_coordinators), ..Jobs::default() }
}

/// One kind of transaction apart, of everybody or alone.
const PARTS: [&str; 12] = [
    "Order-Status over OCC's",
    "Order-Status over DrTM's",
    "Order-Status over DSLR's",
    "New-Order over OCC's",
    "New-Order over DrTM's",
    "New-Order over DSLR's",
    "Delivery over OCC's",
    "Delivery over DrTM's",
    "Delivery over DSLR's",
    "Order-Status",
    "Payment",
    "Payment over DSLR's",
];

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let (bench, runs) = (done.extent.tpcc(), done.runs);
    for other in [Who::Occ, Who::Drtm] {
        let metric = format!("throughput over {}'s", other.name());
        sheet.fill("TPC-C", &metric, &|form| versus(runs, bench, (other, form), throughput));
    }
    for (what, of) in [("throughput", throughput as super::OfPoint), ("median latency", median)] {
        let metric = format!("{what} below DSLR's");
        sheet.fill("TPC-C", &metric, &|form| versus(runs, bench, (Who::Dslr, form), of));
    }
    sheet.fill("TPC-C", "median latency over the lowest of the others", &|form| {
        versus_lowest(runs, bench, form, median)
    });
    for metric in PARTS {
        sheet.fill("TPC-C", metric, &|form| {
            // Whoever cannot run the mix cannot run a part of it.
            versus(runs, bench, (Who::Occ, form), throughput)?;
            Err(Missing(
                "the mix is run as a whole, and what a kind's rate is there is not said".into(),
            ))
        });
    }
    sheet.draw(throughput_latency(runs, &everybody_as(Form::Corrected, bench, &[]), "TPC-C"));
    sheet.note(
        "needs ordered indexes. The rates by kind are not in the mix's proportions (282 K of Order-Status, 1.5 K of Payment, of \
         which ten times as many are drawn): each kind must have been run, or counted, in a way that is not said. Table IV's shares add up \
         to 97 %",
    );
}
