//! The extent determines how much of a paper's evaluation is run: the sizes of databases, the lengths of points, and
//! the numbers of coordinators.
//!
//! Invariant: for every extent, the page states the amounts that are smaller than the published
//! amounts.

use super::case::Kind;
use super::data::{Paper, Smaller};
use crate::reproduce::Scale;
use crate::reproduce::text::{Text, kept};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// The extent of an evaluation: its sizes, lengths and numbers of coordinators.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extent {
    /// The lengths of the measured points, and their numbers of coordinators.
    pub scale: Scale,
    /// Sizes, lists and lengths, each with a name.
    pub of: BTreeMap<Text, Amount>,
}

/// A size, a length, a name, or a list of such amounts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// A whole number.
    Whole(u64),
    /// A fractional number, such as a length or a skew.
    Fraction(f64),
    /// The name of a profile.
    Name(Text),
    /// A list of amounts.
    List(Vec<Amount>),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Whole(number) => number.fmt(f),
            Amount::Fraction(number) => number.fmt(f),
            Amount::Name(name) => name.fmt(f),
            Amount::List(list) => list.last().map_or(Ok(()), |last| last.fmt(f)),
        }
    }
}

impl Amount {
    /// Returns the number of this amount, or the largest number if the amount is a list. Returns `None` for a name.
    fn number(&self) -> Option<f64> {
        match self {
            Amount::Whole(number) => Some(*number as f64),
            Amount::Fraction(number) => Some(*number),
            Amount::Name(_) => None,
            Amount::List(list) => list.iter().filter_map(Amount::number).reduce(f64::max),
        }
    }
}

impl Serialize for Extent {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flat<'a> {
            scale: &'a Scale,
            #[serde(flatten)]
            of: &'a BTreeMap<Text, Amount>,
        }
        Flat { scale: &self.scale, of: &self.of }.serialize(to)
    }
}

impl Extent {
    /// Returns the amount with this name.
    ///
    /// # Panics
    /// Panics if no amount has this name: this is a mistake in a data file, which the tests find.
    pub(super) fn amount(&self, name: &str) -> &Amount {
        self.of.get(name).unwrap_or_else(|| panic!("the extent has no {name}"))
    }

    fn list(&self, name: &str) -> &[Amount] {
        match self.amount(name) {
            Amount::List(list) => list,
            other => panic!("{name} is no list: {other}"),
        }
    }

    /// Returns the numbers of the list with this name.
    pub(super) fn numbers(&self, name: &str) -> Vec<usize> {
        self.list(name).iter().filter_map(Amount::number).map(|number| number as usize).collect()
    }

    /// Returns the values that a text of an axis or of a setting denotes. `*list` denotes all
    /// values of a list. `first:list` and `last:list` denote the first and the last value of a
    /// list.
    pub(super) fn expand(&self, value: Text) -> Vec<Text> {
        let text = |amount: Option<&Amount>| Text(kept(&amount.expect("a value").to_string()));
        match (value.strip_prefix('*'), value.split_once(':')) {
            (Some(name), _) if matches!(self.amount(name), Amount::List(_)) => {
                self.list(name).iter().map(|it| text(Some(it))).collect()
            }
            (Some(name), _) => vec![text(Some(self.amount(name)))],
            (None, Some(("first", name))) => vec![text(self.list(name).first())],
            (None, Some(("last", name))) => vec![text(self.list(name).last())],
            (None, _) => vec![value],
        }
    }

    /// Returns the lengths of the points of a benchmark. The points of TPC-C run longer, because transactions of
    /// TPC-C take more time.
    pub(super) fn scale_of(&self, kind: Kind) -> Scale {
        let mut scale = self.scale.clone();
        if kind == Kind::Tpcc {
            let number = |amount: &Amount| amount.number().expect("a length");
            match self.amount("tpcc_ms") {
                Amount::List(both) => {
                    (scale.warm_up_ms, scale.virtual_ms) = (number(&both[0]), number(&both[1]));
                }
                counted => scale.virtual_ms = number(counted),
            }
            if let Some(soak) = self.of.get("tpcc_soak_ms") {
                scale.soak_ms = number(soak);
            }
        }
        scale
    }

    /// Returns the sentences about amounts that are smaller than the published amounts.
    pub(super) fn scaled_down(&self, paper: &Paper) -> Vec<String> {
        paper.smaller.iter().filter_map(|smaller| self.said(smaller)).collect()
    }

    fn said(&self, Smaller { amount, than, say }: &Smaller) -> Option<String> {
        let said = say.replace("{virtual_ms}", &self.scale.virtual_ms.to_string());
        let (Some(name), Some(than)) = (amount, than) else {
            let tpcc_ms = self.scale_of(Kind::Tpcc).virtual_ms.to_string();
            return Some(said.replace("{tpcc_ms}", &tpcc_ms));
        };
        let is = self.amount(name);
        let is_smaller = match (is.number(), than.number()) {
            (Some(is), Some(than)) => is < than,
            _ => is != than,
        };
        let said = said.replace("{is}", &is.to_string()).replace("{than}", &than.to_string());
        let share = || is.number().zip(self.amount("warehouses").number()).map(|(it, of)| it / of);
        let said = match said.contains("{is/warehouses}") {
            true => said.replace("{is/warehouses}", &format!("{:.1}", share().unwrap_or_default())),
            false => said,
        };
        is_smaller.then_some(said)
    }
}
