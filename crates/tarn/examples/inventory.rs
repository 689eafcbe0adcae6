//! An inventory with orders: four workers sell, ship and cancel, while an auditor counts.
//!
//! Three tables, two secondary indexes, keys of text and of two fields, an enum, an optional column, and errors of
//! the program's own. The same transactions run on plain threads, each with a session, and in the tasks of tokio.
//! Invariant: each auditor sees as many pieces as there were at first, in stock and in order lines.
//!
//! `cargo run --release -p tarn --example inventory`, or with the name of a protocol behind `--`.

#![allow(clippy::disallowed_methods, reason = "drives real threads")]

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::thread::scope;
use tarn::{Error, Field, Row, Table, Tarn, Text, Transaction as Tx, Workers};

/// The protocols under which the checks run this example.
const PROTOCOLS: [&str; 8] = ["ford", "occ", "motor", "lotus", "oocc", "drtm", "dslr", "2pl"];
const PRODUCTS: u32 = 20;
const PIECES_EACH: u32 = 200;
const PIECES: u64 = (PRODUCTS * PIECES_EACH) as u64;
const WORKERS: u64 = 4;
const TURNS: u64 = 150;

/// The name of a product.
type Sku = Text<12>;
/// Two products that a customer wants, and the pieces of each.
type Basket = [(Sku, u32); 2];

/// A product on a shelf.
#[derive(Row)]
#[row(table = "products", key(sku), index(by_category(category, cents)))]
struct Product {
    sku: Sku,
    category: Text<8>,
    cents: u32,
    /// The percentage by which the product is cheaper, if it is.
    discount: Option<u8>,
    pieces: u32,
}

/// The state of an order.
#[derive(Field, Clone, Copy, PartialEq, Debug)]
enum Status {
    Open,
    Shipped,
    Cancelled,
}

/// An order of one customer.
#[derive(Row)]
#[row(table = "orders", key(number), index(by_status(status, placed)))]
struct Order {
    number: u64,
    customer: Text<16>,
    status: Status,
    placed: u64,
    cents: u64,
}

/// A product of an order.
#[derive(Row)]
#[row(table = "lines", key(order, position), ordered)]
struct Line {
    order: u64,
    position: u8,
    sku: Sku,
    pieces: u32,
}

/// The reason why the shop refused something.
#[derive(Debug)]
#[expect(dead_code, reason = "main prints it")]
enum ShopError {
    SoldOut { sku: Sku, left: u32 },
    NoSuchProduct(Sku),
    Store(Error),
}

impl From<Error> for ShopError {
    fn from(error: Error) -> ShopError {
        ShopError::Store(error)
    }
}

/// The tables of the shop.
#[derive(Clone, Copy)]
struct Shop {
    products: Table<Product>,
    orders: Table<Order>,
    lines: Table<Line>,
}

impl Shop {
    /// Puts an order with one line for each product.
    async fn sell(self, tx: &mut Tx<'_>, number: u64, basket: Basket) -> Result<(), ShopError> {
        let customer = Text::new(&format!("customer {}", number % 7))?;
        let mut cents = 0;
        for (position, (sku, pieces)) in (0..).zip(basket) {
            let take = |product: &mut Product| match product.pieces.checked_sub(pieces) {
                None => Err(ShopError::SoldOut { sku, left: product.pieces }),
                Some(left) => {
                    product.pieces = left;
                    Ok(product.cents * (100 - u32::from(product.discount.unwrap_or(0))) / 100)
                }
            };
            let taken = self.products.modify(tx, sku, take).await?;
            cents += u64::from(taken.ok_or(ShopError::NoSuchProduct(sku))?? * pieces);
            self.lines.add(tx, &Line { order: number, position, sku, pieces }).await?;
        }
        let (status, placed) = (Status::Open, number);
        self.orders.add(tx, &Order { number, customer, status, placed, cents }).await?;
        Ok(())
    }

    /// Ships the open orders that were placed first.
    async fn ship(self, tx: &mut Tx<'_>, most: u32) -> Result<(), ShopError> {
        let oldest = self.orders.by_status().prefix(Status::Open).limit(most);
        for (record, order) in oldest.update(tx).await? {
            self.orders.set(tx, record, &Order { status: Status::Shipped, ..order });
        }
        Ok(())
    }

    /// Cancels the open order that was placed last, and puts its products back.
    async fn cancel(self, tx: &mut Tx<'_>) -> Result<(), ShopError> {
        let newest = self.orders.by_status().prefix(Status::Open).rev();
        let Some(order) = newest.first(tx).await? else { return Ok(()) };
        let lines = self.lines.prefix(order.number).rows(tx).await?;
        for line in &lines {
            let put_back = |product: &mut Product| product.pieces += line.pieces;
            self.products.modify(tx, line.sku, put_back).await?;
        }
        self.lines.remove_many(tx, lines.iter().map(Row::key)).await?;
        let cancel = |order: &mut Order| order.status = Status::Cancelled;
        self.orders.modify(tx, order.number, cancel).await?;
        Ok(())
    }

    /// Counts the pieces in stock and in order lines.
    async fn audit(self, tx: &mut Tx<'_>) -> Result<u64, Error> {
        let stock = self.products.by_category().all().rows(tx).await?;
        let lines = self.lines.all().rows(tx).await?;
        let pieces = stock.iter().map(|it| it.pieces).chain(lines.iter().map(|it| it.pieces));
        Ok(pieces.map(u64::from).sum())
    }

    /// Runs the turn of a worker that this lot decides.
    async fn turn(self, tx: &mut Tx<'_>, (number, lot): (u64, u32)) -> Result<(), ShopError> {
        let (first, pieces) = (lot / 10 % PRODUCTS, 1 + lot / 10 / PRODUCTS % 11);
        let basket = [first, (first + 1) % PRODUCTS].map(|it| (sku(it), pieces));
        match lot % 10 {
            0 => self.ship(tx, 3).await,
            1 => self.cancel(tx).await,
            _ => self.sell(tx, number, basket).await,
        }
    }
}

/// The turns of one worker, each with a number and a lot.
fn turns(worker: u64) -> impl Iterator<Item = (u64, u32)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(worker);
    (0..TURNS).map(move |turn| (2 * WORKERS * turn + worker, rng.random()))
}

/// Returns 1 for a sale that the shop refused.
fn refused(ended: Result<(), ShopError>) -> Result<u64, ShopError> {
    match ended {
        Err(ShopError::SoldOut { .. }) => Ok(1),
        other => other.map(|()| 0),
    }
}

/// Workers and auditor on plain threads. Returns the number of refused sales.
fn on_threads(tarn: &Tarn, shop: Shop) -> Result<u64, ShopError> {
    let work = |worker| -> Result<u64, ShopError> {
        let mut session = tarn.session()?;
        turns(worker).map(|turn| refused(session.run(async |tx| shop.turn(tx, turn).await))).sum()
    };
    scope(|scope| {
        let threads: Vec<_> = (0..WORKERS).map(|it| scope.spawn(move || work(it))).collect();
        let mut auditor = tarn.session()?;
        while !threads.iter().all(|thread| thread.is_finished()) {
            assert_eq!(auditor.run(async |tx| shop.audit(tx).await)?, PIECES, "on threads");
        }
        threads.into_iter().map(|thread| thread.join().expect("a worker panicked")).sum()
    })
}

/// A worker as a task.
async fn work(on: Workers, shop: Shop, worker: u64) -> Result<u64, ShopError> {
    let mut count = 0;
    for turn in turns(worker) {
        count += refused(on.run(async move |tx| shop.turn(tx, turn).await).await)?;
    }
    Ok(count)
}

/// Workers and auditor as tasks of tokio. Returns the number of refused sales.
async fn in_tasks(on: Workers, shop: Shop) -> Result<u64, ShopError> {
    let spawn = |worker| tokio::spawn(work(on.clone(), shop, worker));
    let tasks: Vec<_> = (WORKERS..2 * WORKERS).map(spawn).collect();
    while !tasks.iter().all(|task| task.is_finished()) {
        assert_eq!(on.run(async move |tx| shop.audit(tx).await).await?, PIECES, "in tasks");
    }
    let mut count = 0;
    for task in tasks {
        count += task.await.expect("a worker panicked")?;
    }
    Ok(count)
}

fn sku(number: u32) -> Sku {
    Text::new(&format!("item-{number:03}")).expect("short")
}

fn run(protocol: &str) -> Result<(), ShopError> {
    let tarn = Tarn::embedded().memory_nodes(2).protocol(protocol, "corrected");
    let tarn = tarn.table::<Product>(100).table::<Order>(2_000).table::<Line>(4_000).open()?;
    let shop = Shop { products: tarn.table()?, orders: tarn.table()?, lines: tarn.table()? };
    let mut session = tarn.session()?;
    session.run(async |tx| {
        let product = |number: u32| {
            let category = Text::literal(if number.is_multiple_of(2) { "tools" } else { "toys" });
            let discount = number.is_multiple_of(5).then_some(10);
            let (sku, cents, pieces) = (sku(number), 100 * number + 99, PIECES_EACH);
            Product { sku, category, cents, discount, pieces }
        };
        shop.products.put_many(tx, &(0..PRODUCTS).map(product).collect::<Vec<_>>()).await
    })?;
    let on_threads = on_threads(&tarn, shop)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    let in_tasks = runtime.block_on(in_tasks(tarn.workers(2)?, shop))?;
    let (pieces, open, cheap) = session.run(async |tx| {
        let open = shop.orders.by_status().prefix(Status::Open).count(tx).await?;
        let tools = Text::literal("tools");
        let range = shop.products.by_category().range((tools, 0)..(tools, 1_000));
        tarn::Ok((shop.audit(tx).await?, open, range.rows(tx).await?))
    })?;
    assert_eq!(pieces, PIECES, "{protocol}: pieces are lost or made");
    let cheap: Vec<_> = cheap.iter().map(|it| it.sku.to_string()).collect();
    let refused = on_threads + in_tasks;
    println!("{protocol}: {open} open, {refused} refused; below 10.00: {}", cheap.join(", "));
    Ok(())
}

fn main() -> Result<(), ShopError> {
    match std::env::args().nth(1) {
        Some(protocol) => run(&protocol),
        None => PROTOCOLS.into_iter().try_for_each(run),
    }
}
