//! Prints the locks that fit a switch, beside the arrays of its lanes.
//!
//! Invariant: the numbers are computed; none is written here.

fn main() {
    println!("12 match-action units of 560 KB, 8 lanes a machine, a window of 64:");
    print!("{}", tarn_locks::switch::budget::report());
}
