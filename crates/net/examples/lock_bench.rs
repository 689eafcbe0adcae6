//! Measures locks on loopback: `tarn lock bench` without the rest of the program.

fn main() {
    let millis = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(300);
    let config = std::env::args().nth(2);
    match tarn_net::bench::run(millis, config.as_ref().map(AsRef::as_ref)) {
        Ok(report) => print!("{report}"),
        Err(error) => panic!("{error}"),
    }
}
