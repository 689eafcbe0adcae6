//! Finds the name of the object at an address of a litmus's small database.
//!
//! Invariant: this module knows the catalog's plan and the layout of a slot's head, but knows nothing of a protocol.
//! If an address belongs to no named object, the drawing shows the address's group and offset.

use super::super::cluster::{Cluster, TABLE};
use super::super::script::RecordIndex;
use tarn_fabric::address::{Address, GroupId};
use tarn_store::ids::OwnerTag;
use tarn_store::index::{IndexView, hash_of};
use tarn_store::layout::{DIRECTORY_BYTES, Field, RecordLayout, Slot, Version, VersionWord};

/// A named slot or a named directory record, with the address of its first byte.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Known {
    at: Address,
    bytes: usize,
    name: String,
    /// The layout of the slot, if the object is a slot.
    slot: Option<Slot>,
}

/// The object at an address, and the position of the address in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named<'a> {
    /// The name of the object that contains the address.
    pub name: &'a str,
    /// The first byte of the object.
    pub at: Address,
    /// The distance of the address from the first byte of the object, in bytes.
    pub offset: usize,
    /// Whether the object begins with the words LOCK and VERSION.
    pub is_record: bool,
    /// The field at the address, if the object is a slot of several versions.
    pub field: Option<Field>,
}

/// The names of the objects of a database.
pub struct Names {
    records: Vec<Known>,
    areas: Vec<Known>,
}

impl Names {
    /// Collects the names of a cluster.
    pub fn of(cluster: &Cluster) -> Names {
        let mut records = Vec::new();
        let catalog = &cluster.catalog;
        let (table, view) = (catalog.table(TABLE), IndexView::new(catalog));
        let slot_bytes = table.slot.slot_bytes;
        for (index, name) in cluster.litmus.records.iter().enumerate() {
            let key = cluster.key(RecordIndex(index));
            let place = view.place(catalog, table, hash_of(table, key));
            let bin_bytes = table.geometry.bin_bytes;
            let bin = place.bucket.plus(DIRECTORY_BYTES + usize::from(place.bin) * bin_bytes);
            for slot in 0..bin_bytes / slot_bytes {
                let at = bin.plus(slot * slot_bytes);
                let name = format!("{name}{}", "'".repeat(slot));
                add(&mut records, Known { at, bytes: slot_bytes, name, slot: Some(table.slot) });
            }
            let name = format!("dir({name})");
            add(&mut records, Known { at: place.bucket, bytes: DIRECTORY_BYTES, name, slot: None });
        }
        for index in catalog.indexes() {
            let (at, bytes) = (index.root, index.shape.node_bytes);
            let name = format!("root({})", index.schema.name);
            add(&mut records, Known { at, bytes, name, slot: None });
        }
        let areas = areas(cluster);
        Names { records, areas }
    }

    /// Returns the name of the place at an address.
    pub fn at(&self, address: Address) -> Option<Named<'_>> {
        let within = |known: &&Known| offset_in(known, address).is_some();
        match self.records.iter().find(within) {
            Some(known) => named(known, address, true),
            None => named(self.areas.iter().find(within)?, address, false),
        }
    }

    /// Returns the records and directory records, in order.
    pub fn slots(&self) -> impl Iterator<Item = (&str, Address)> {
        self.records.iter().map(|known| (known.name.as_str(), known.at))
    }
}

fn named(known: &Known, address: Address, is_record: bool) -> Option<Named<'_>> {
    let offset = offset_in(known, address)?;
    let several = known.slot.filter(|slot| slot.record != RecordLayout::InPlace);
    let field = several.map(|slot| slot.field_at(offset));
    Some(Named { name: &known.name, at: known.at, offset, is_record, field })
}

fn offset_in(known: &Known, address: Address) -> Option<usize> {
    let within =
        known.at.group() == address.group() && address.offset_bytes() >= known.at.offset_bytes();
    let offset = within.then(|| (address.offset_bytes() - known.at.offset_bytes()) as usize)?;
    (offset < known.bytes).then_some(offset)
}

/// Adds a named object. If an object at the same place already has a name, the two names are combined into one name.
fn add(all: &mut Vec<Known>, known: Known) {
    match all.iter_mut().find(|other| other.at == known.at) {
        Some(other) => other.name = format!("{}/{}", other.name, known.name),
        None => all.push(known),
    }
}

fn areas(cluster: &Cluster) -> Vec<Known> {
    let catalog = &cluster.catalog;
    let options = catalog.options();
    let mut areas = Vec::new();
    for group in 0..catalog.groups() {
        let group = GroupId(group as u16);
        for coordinator in 0..options.coordinators_max {
            let (at, bytes) = (catalog.log(group, coordinator), options.log_bytes as usize);
            areas.push(Known {
                at,
                bytes,
                name: format!("log {coordinator}.{}", group.0),
                slot: None,
            });
        }
        let header = catalog.table(TABLE).geometry.header(group);
        areas.push(Known { at: header, bytes: 64, name: format!("index {}", group.0), slot: None });
        let heap = catalog.chunk(group, 0);
        let bytes = (catalog.chunks() * options.chunk_bytes) as usize;
        areas.push(Known { at: heap, bytes, name: format!("heap {}", group.0), slot: None });
        let (at, bytes) = (catalog.chunk_word(group, 0), catalog.chunks() as usize * 8);
        areas.push(Known { at, bytes, name: format!("chunks {}", group.0), slot: None });
    }
    areas
}

/// Describes a LOCK word in readable form.
pub fn lock(word: u64) -> String {
    OwnerTag::from_word(word).map_or_else(|| "free".to_owned(), tag)
}

/// Returns a transaction's short name: its compute node, and its number among the transactions of its
/// thread.
pub fn tag(tag: OwnerTag) -> String {
    let thread = if tag.thread() == 0 { String::new() } else { format!(".{}", tag.thread()) };
    format!("T{}{thread}/{}", tag.node().slot.0, tag.count())
}

/// Describes a VERSION word in readable form.
pub fn version(word: u64) -> String {
    let version = Version::from_word(word);
    let absent = if version.is_present() { "" } else { " absent" };
    format!("v{}{absent}", version.counter())
}

/// Describes a word of a slot of several versions in readable form, if the word decides about the
/// versions.
pub fn field(field: Field, word: u64) -> Option<String> {
    match field {
        Field::Committed(cell) => {
            Some(format!("{} {:?}", Field::Committed(cell), VersionWord::from_word(word)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::litmus::Litmus;
    use super::super::super::shape::Shape;
    use super::*;
    use std::rc::Rc;

    #[test]
    fn slots_directories_and_logs_have_names() {
        let litmus = Rc::new(Litmus::load("stale-address").expect("a litmus"));
        let shape = Shape::plain(2, 2);
        let cluster = Cluster::new(&litmus, shape, ("ford", "corrected")).expect("a cluster");
        let names = Names::of(&cluster);
        let all: Vec<&str> = names.slots().map(|(name, _)| name).collect();
        assert_eq!(all, ["x/z", "x'/z'", "dir(x)/dir(z)"]);
        let (_, at) = names.slots().next().expect("one");
        let named = names.at(at.plus(8)).expect("a name");
        assert_eq!((named.name, named.offset, named.is_record), ("x/z", 8, true));
        let log = cluster.catalog.log(GroupId(1), 1).plus(100);
        let named = names.at(log).expect("a name");
        assert_eq!((named.name, named.offset, named.is_record), ("log 1.1", 100, false));
        assert_eq!(names.at(Address::new(GroupId(0), 8)), None);
    }
}
