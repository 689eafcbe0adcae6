//! TPC-C: an order-entry company with warehouses, in nine tables and five transactions.
//!
//! Transaction Processing Performance Council, "TPC Benchmark C, Standard Specification", revision
//! 5.11, February 2010. The clauses that these files name are clauses of this specification.
//!
//! All profiles differ from the specification in the following points. A workload draws inputs
//! without knowing the terminal. So it draws the home warehouse, and Stock-Level's district, for each
//! transaction. Delivery runs when it is requested, and is not deferred. Stock-Level is serializable,
//! not read committed. Transactions read the data that a screen would show, and then drop the data.
//! `tables.rs` says how columns are packed. Rows do not repeat their key as columns. `lines.rs` says
//! why ORDER-LINE has no ordered index. No result of this workload is an official TPC-C result,
//! because results were not audited and data is not durable.
//!
//! Keys sort in the order of their parts. The warehouse is the critical field. Three indexes are
//! ordered: customers by name, orders by customer, and new orders by number. No column of a table
//! simulates one of these indexes.
//!
//! Invariant checked: the consistency conditions 1 to 12 of clause 3.3.2, checked on every row. The
//! stocks also agree with the lines that were ordered from them.

mod by_name;
mod check;
mod delivery;
mod input;
mod lines;
mod missing;
mod new_order;
mod order_status;
mod payment;
mod population;
mod profiles;
mod random;
mod scale;
mod stock_level;
mod tables;
mod tally;
mod wait;

pub use input::{Input, Line, Lines, Who};
pub use tally::Tally;

use crate::untold::Untold;
use crate::workload::{Invariant, Profile, Settings, Workload, procedure, profiles_of};
use input::{Draws, unused_item};
use new_order::Buyer;
use payment::Paid;
use profiles::{VARIANTS, Variant};
use scale::Scale;
use std::sync::atomic::AtomicU64;
use tables::{CUSTOMER, DISTRICT, HISTORY, ITEM, NEW_ORDER, ORDERS, ORDER_LINE, STOCK, WAREHOUSE, customer_key, district_key, order_key, stock_key, warehouse_key};
use tarn_engine::site::Context;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::admin::load::Loader;
use tarn_store::ids::{Failure, Mode, UsageError};
use tarn_store::schema::procedure::Procedure;
use tarn_store::schema::{Cells, TableId, TableSchema};
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::Rng;

/// The benchmark TPC-C with the user's choices.
pub struct Tpcc {
    scale: Scale,
    draws: Draws,
    variant: &'static Variant,
    critical: CriticalField,
    /// The number of the next session of HISTORY that a coordinator will take.
    sessions: AtomicU64,
}

/// The field of the key by which locks are sharded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CriticalField {
    /// The locks are sharded by the warehouse.
    #[default]
    Warehouse,
    /// The locks are sharded by the district's number within its warehouse.
    District,
    /// The locks are sharded by the customer's number within its district.
    Customer,
}

impl CriticalField {
    /// Returns the field's name in the specification.
    pub fn name(self) -> &'static str {
        match self {
            CriticalField::Warehouse => "W_ID",
            CriticalField::District => "D_ID",
            CriticalField::Customer => "C_ID",
        }
    }
}

impl Tpcc {
    /// Shards the locks of the tables by another field than the warehouse.
    pub fn sharded_by(self, critical: CriticalField) -> Tpcc {
        Tpcc { critical, ..self }
    }
}

/// Returns the current date: whole seconds since day zero, never 0.
#[inline]
fn date(coordinator: &Coordinator) -> u32 {
    let seconds = coordinator.context().port.now().0 / 1_000_000_000;
    population::LOADED_AT + 1 + seconds as u32
}

impl Workload for Tpcc {
    const NAME: &'static str = "tpcc";
    const PROFILES: &'static [Profile] = profiles_of!(VARIANTS);
    const TRANSACTIONS: &'static [&'static str] =
        &["new_order", "payment", "order_status", "delivery", "stock_level"];
    const GIVES_UP: &'static str = "an item number that is not used, in 1 % of New-Orders";
    type Input = Input;
    type Tally = Tally;

    fn new(settings: &Settings) -> Result<Tpcc, UsageError> {
        let variant = crate::workload::choose(VARIANTS, |v| v.profile.name, settings)?;
        if let Some(zipf) = settings.zipf {
            let (field, allowed) = ("zipf".into(), "none: TPC-C draws its keys by NURand".into());
            return Err(UsageError { field, value: zipf.to_string(), allowed });
        }
        let warehouses = settings.records.unwrap_or(variant.sizes.warehouses);
        let scale = Scale::new(warehouses, variant.sizes)?;
        let sessions = AtomicU64::new(population::LOADED_SESSION + 1);
        let critical = CriticalField::default();
        Ok(Tpcc { scale, draws: Draws::new(&scale), variant, critical, sessions })
    }

    fn profile(&self) -> Profile {
        self.variant.profile
    }

    fn describe(&self) -> Vec<(&'static str, String)> {
        let raw = self.scale.raw_bytes_per_warehouse();
        let stored = tables::bytes_per_warehouse(&self.scale);
        vec![
            ("warehouses", self.scale.warehouses.to_string()),
            ("records", self.records().to_string()),
            ("customers_a_district", self.scale.customers.to_string()),
            ("items", self.scale.items.to_string()),
            ("mix", self.variant.mix.percents(Self::TRANSACTIONS.len())),
            (
                "bytes_a_warehouse",
                format!(
                    "{stored} laid out for its rows, without indexes; {raw} by the row lengths of \
                     clause 1.2.1"
                ),
            ),
        ]
    }

    fn schemas(&self) -> Vec<TableSchema> {
        tables::schemas_by(&self.scale, self.critical)
    }

    fn procedures(&self) -> Vec<Procedure> {
        let (read, update, insert, all) = (Mode::Read, Mode::Update, Mode::Insert, Cells::ALL);
        let warehouse = |mode| (WAREHOUSE, mode, all);
        let district = |mode| (DISTRICT, mode, all);
        let customer = |mode| (CUSTOMER, mode, all);
        let inserted = |table| (table, insert, all);
        let ordered = [(STOCK, update, all), (ITEM, read, all), inserted(ORDER_LINE)];
        let [stock, item, line] = ordered;
        let (fresh, order) = (inserted(NEW_ORDER), inserted(ORDERS));
        let new_order =
            [warehouse(read), district(update), customer(read), stock, item, order, fresh, line];
        let delivered = [
            (NEW_ORDER, Mode::Delete, Cells::NONE),
            (ORDERS, update, all),
            (ORDER_LINE, update, all),
            customer(update),
        ];
        let seen = [customer(read), (ORDERS, read, all), (ORDER_LINE, read, all)];
        let counted =
            [district(read), (ORDERS, read, all), (ORDER_LINE, read, all), (STOCK, read, all)];
        let paid = [warehouse(update), district(update), customer(update), inserted(HISTORY)];
        vec![
            procedure("new_order", &new_order),
            procedure("payment", &paid),
            procedure("order_status", &seen),
            procedure("delivery", &delivered),
            procedure("stock_level", &counted),
        ]
    }

    /// The longest transaction is a Delivery of ten orders with fifteen lines each. Such a Delivery
    /// changes 180 records and the index leaves that lead to these records.
    fn log_bytes(&self) -> u64 {
        128 << 10
    }

    fn lines_per_transaction(&self) -> usize {
        // In a measured mix of half New-Order and half Payment, a transaction has 82 READs of 7,331
        // bytes in all (docs/tpcc.md). Most of these READs read one or two lines. An insert reads one
        // line of its bucket.
        100
    }

    async fn load(&self, loader: &mut Loader<'_>) -> Result<(), Failure> {
        population::load(&self.scale, loader).await
    }

    fn records(&self) -> u64 {
        self.scale.rows().iter().sum()
    }

    #[inline]
    fn draw(&self, rng: &mut Rng) -> Input {
        self.draws.draw(self.variant, rng)
    }

    #[inline]
    fn kind(input: &Input) -> usize {
        match input {
            Input::NewOrder { .. } => 0,
            Input::Payment { .. } => 1,
            Input::OrderStatus { .. } => 2,
            Input::Delivery { .. } => 3,
            Input::StockLevel { .. } => 4,
        }
    }

    #[inline]
    fn first_key(input: &Input) -> Option<u64> {
        Some(match *input {
            Input::NewOrder { w_id, .. } | Input::Payment { w_id, .. } => warehouse_key(w_id),
            Input::OrderStatus { w_id, d_id, who: Who::Id(c) } => customer_key(w_id, d_id, c),
            // Only an index can find the customer of this input. Any customer of the warehouse has
            // the same shard, so the function returns the key of customer 0.
            Input::OrderStatus { w_id, d_id, who: Who::Name(_) } => customer_key(w_id, d_id, 0),
            Input::Delivery { w_id, .. } => order_key(w_id, 1, 0),
            Input::StockLevel { w_id, d_id, .. } => district_key(w_id, d_id),
        })
    }

    fn further_keys(input: &Input, see: &mut dyn FnMut(TableId, u64)) {
        match *input {
            Input::NewOrder { w_id, d_id, c_id, ref lines } => {
                see(DISTRICT, district_key(w_id, d_id));
                see(CUSTOMER, customer_key(w_id, d_id, c_id));
                for line in lines.iter() {
                    see(ITEM, line.i_id.into());
                    see(STOCK, stock_key(line.supply_w_id, line.i_id));
                }
            }
            Input::Payment { w_id, d_id, c_w_id, c_d_id, who, .. } => {
                see(DISTRICT, district_key(w_id, d_id));
                if let Who::Id(c) = who {
                    see(CUSTOMER, customer_key(c_w_id, c_d_id, c));
                }
            }
            Input::OrderStatus { .. } | Input::Delivery { .. } | Input::StockLevel { .. } => {}
        }
    }

    #[inline]
    fn pause(&self, input: &Input, rng: &mut Rng) -> Option<Nanos> {
        self.variant.waits.then(|| wait::pause(Self::kind(input), rng))
    }

    #[inline]
    async fn run(
        &self,
        coordinator: &mut Coordinator,
        input: &Input,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        match *input {
            Input::NewOrder { w_id, d_id, c_id, ref lines } => {
                let date = date(coordinator);
                let i_unused = unused_item(self.scale.items);
                let buyer = Buyer { w: w_id, d: d_id, c: c_id, i_unused, date };
                let by_line = self.variant.is_line_by_line;
                new_order::run(coordinator, buyer, lines, by_line, tally).await
            }
            Input::Payment { w_id, d_id, c_w_id, c_d_id, who, cents } => {
                let (date, history) = (date(coordinator), tally.history_key(w_id, &self.sessions));
                let (w, d, c_w, c_d) = (w_id, d_id, c_w_id, c_d_id);
                let paid = Paid { w, d, c_w, c_d, who, cents, history, date };
                payment::run(coordinator, paid, tally).await
            }
            Input::OrderStatus { w_id, d_id, who } => {
                order_status::run(coordinator, (w_id, d_id), who, tally).await
            }
            Input::Delivery { w_id, carrier } => {
                let date = date(coordinator);
                delivery::run(coordinator, w_id, carrier, date, tally).await
            }
            Input::StockLevel { w_id, d_id, threshold } => {
                stock_level::run(coordinator, (w_id, d_id), threshold, tally).await
            }
        }
    }

    fn untold(&self, input: &Input, ended: Untold, tally: &mut Tally) {
        tally.untold(input, ended, unused_item(self.scale.items));
    }

    fn merge(into: &mut Tally, other: Tally) {
        into.add(other);
    }

    fn outcomes(&self, tally: &Tally) -> Vec<(&'static str, String)> {
        tally.outcomes()
    }

    async fn check(&self, cx: &Context, tally: &Tally) -> Result<Vec<Invariant>, Failure> {
        check::check(&self.scale, cx, tally).await
    }
}
